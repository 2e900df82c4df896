"""Reset: end the control daemon of this node, clean its directories, start it through systemd, and see that it serves.

The ladder, least force first: refuse unless the node is free → take the directories from users → `quit -t` (never a
bare `quit`, which blocks for ever with a client that stays) → wait → stop the unit → TERM → KILL of processes held by
pidfd → prepare → start → audit. Killed at any step, the next run converges. Only the daemons of the configured pipe
directory and of our unit are ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from mpsfleet.codes import BEYOND_RESET
from mpsfleet.errors import MpsfleetError, NotInEffect, Refused
from mpsfleet.node import act, daemon, free, prepare, units
from mpsfleet.node.files import UNIT, UNIT_PATH
from mpsfleet.node.host import files as disk
from mpsfleet.node.host import locks, processes
from mpsfleet.node.host.children import state_of
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Change, Outcome, Unreadable
from mpsfleet.node.probe import directories, probe, procfs

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Daemon, Facts, Process
    from mpsfleet.node.plan import UnitState

QUIT_S = 3  # seconds the daemon gives its servers
_GRACE_S = 2.0
_LOCK_WAIT_S = 5.0
_STOP_S = 30.0


class Options:
    """What the caller allows."""

    def __init__(self, *, any_drain: bool, others: bool, dry_run: bool) -> None:
        self.any_drain = any_drain  # a drain by somebody else counts too
        self.others = others  # end root's control daemons on other directories as well
        self.dry_run = dry_run


def reset(host: Host, desired: Desired, options: Options) -> Outcome:
    """Reset this node's daemon and return what was done with the judgement after it. Refused, NotInEffect."""
    act.refuse_when_off(host)
    if disk.read_or_none(host.path(UNIT_PATH)) is None:
        raise Refused(f"{UNIT} is not installed on this node; deploy it first (playbook deploy_mps)")
    with locks.held(host, "node", _LOCK_WAIT_S):
        _require_free(host, desired, options)
        if not options.dry_run:
            prepare.check(host, desired)
        facts = probe(host, desired)
        _require_sense(facts, desired)
        unit = units.state(host)
        targets = _targets(facts, unit, desired, options)
        if options.dry_run:
            return Outcome("reset", facts.node, dry_run=True, changes=_planned(desired, targets, unit))
        changes = prepare.prepare(host, desired)  # taken from users first: then who hears a command cannot change
        changes += _end(host, desired, options, targets, unit)
        changes += prepare.prepare(host, desired)
        act.start(host, desired)
        changes += (Change(UNIT, "start", "and its daemon answers"),)
        after = judge(probe(host, desired), desired)
        _verify_as_user(host, desired)
        return Outcome("reset", facts.node, dry_run=False, changes=changes, report=after)


def _require_free(host: Host, desired: Desired, options: Options) -> None:
    why = free.why_not(host, desired, any_drain=options.any_drain)
    if why is not None:
        raise Refused(why)


def _require_sense(facts: Facts, desired: Desired) -> None:
    """Refuse where the GPUs themselves are ill or cannot be asked: restarting MPS would not help, and might hang."""
    for each in judge(facts, desired).findings:
        if each.code in BEYOND_RESET:
            raise Refused(f"a reset of MPS does not help here: {each.message}; to do: {each.remedy}")


def _targets(facts: Facts, unit: UnitState, desired: Desired, options: Options) -> tuple[Daemon, ...]:
    """Return root's control daemons that this reset is about."""
    if isinstance(facts.daemons, Unreadable):
        raise MpsfleetError(f"the daemons of this node are not known: {facts.daemons.reason}")
    return tuple(
        each
        for each in facts.daemons
        if options.others or each.directory == desired.pipe_directory or each.process.pid == unit.main_pid
    )


def _planned(desired: Desired, targets: tuple[Daemon, ...], unit: UnitState) -> tuple[Change, ...]:
    ends = tuple(
        Change(f"control daemon {each.process.pid} of {each.directory}", "end", "quit -t, then TERM, then KILL")
        for each in targets
    )
    stop = () if unit.active in ("inactive", "failed") else (Change(UNIT, "stop", f"it is {unit.active}"),)
    cleaned = tuple(
        Change(path, "prepare", "taken from users, cleaned, 0755 root:root")
        for path in (desired.pipe_directory, desired.log_directory)
    )
    return (*ends, *stop, *cleaned, Change(UNIT, "start", "then verified as root and as a user"))


def _end(
    host: Host, desired: Desired, options: Options, targets: tuple[Daemon, ...], unit: UnitState
) -> tuple[Change, ...]:
    """End the daemons, their servers with them, and return what it took."""
    with contextlib.ExitStack() as stack:
        held = _hold(host, stack, targets)
        servers = _hold_servers(host, stack, targets)
        _require_free(host, desired, options)  # again: the last moment before the first step that ends a client
        changes = _quit(host, desired, targets, held)
        if unit.active not in ("inactive", "failed"):
            by_force = any(each.alive() for each in held)
            units.tell(host, "stop", UNIT, limit_s=_STOP_S)
            if by_force:
                changes += (Change(UNIT, "stop", "its daemon did not quit: ended by TERM or KILL"),)
        for number, each in enumerate((*held, *servers)):
            if not each.alive():
                continue
            problem = each.end(_GRACE_S, _GRACE_S)
            if problem is not None:
                raise NotInEffect(f"{problem}; reboot the node")
            what = "control daemon" if number < len(held) else "MPS server"
            changes += (Change(f"{what} {each.pid}", "end", "by a signal: it did not quit"),)
    return changes


def _hold(host: Host, stack: contextlib.ExitStack, targets: tuple[Daemon, ...]) -> list[processes.Held]:
    """Take hold of the daemons: a process is one only if, after its pidfd is open, it still holds that control_lock."""

    def same(daemon_: Daemon, pid: int) -> bool:
        now = procfs.process(host, pid)
        return now is not None and any(each.lock == daemon_.lock for each in procfs.daemons(host, (now,)))

    found = []
    for each in targets:
        held = processes.hold(each.process.pid, lambda pid, each=each: same(each, pid))  # type: ignore[misc]
        if held is not None:
            stack.callback(held.close)
            found.append(held)
    return found


def _hold_servers(host: Host, stack: contextlib.ExitStack, targets: tuple[Daemon, ...]) -> list[processes.Held]:
    """Take hold of the servers: children of those daemons with the kernel name of MPS."""
    parents = {each.process.pid for each in targets}
    named = procfs.named_mps(host)

    def same(server: Process, pid: int) -> bool:
        now = procfs.process(host, pid)
        return now is not None and (now.start, now.ppid) == (server.start, server.ppid)

    found = []
    for each in () if isinstance(named, Unreadable) else named:
        if each.ppid not in parents:
            continue
        held = processes.hold(each.pid, lambda pid, each=each: same(each, pid))  # type: ignore[misc]
        if held is not None:
            stack.callback(held.close)
            found.append(held)
    return found


def _quit(host: Host, desired: Desired, targets: tuple[Daemon, ...], held: list[processes.Held]) -> tuple[Change, ...]:
    """Ask the daemon that serves the pipe directory to quit, where it is certain who would hear it."""
    pipe, fd = directories.look(host, desired.pipe_directory)
    try:
        serving = daemon.hears_root(host, pipe, fd, targets)
    finally:
        if fd >= 0:
            os.close(fd)
    if serving is None or state_of(serving.process.pid, host.proc) in ("T", "t", "D"):
        return ()  # a stopped daemon hears nothing
    daemon.command(host, desired, f"quit -t {QUIT_S}", QUIT_S + 2.0)
    mine = [each for each in held if each.pid == serving.process.pid]
    end = time.monotonic() + _GRACE_S
    if all(each.wait(max(0.0, end - time.monotonic())) for each in mine):
        return (Change(f"control daemon {serving.process.pid}", "quit", "it ended by itself"),)
    return ()


def _verify_as_user(host: Host, desired: Desired) -> None:
    """Ask the new daemon with NVIDIA's own program as an ordinary user, as a job would."""
    problem = daemon.refuses_user(host, desired)
    if problem is not None:
        raise NotInEffect(problem)
