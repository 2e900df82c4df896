"""Reset: end the control daemon of this node, clean its directories, start it through systemd, and see that it serves.

The ladder, least force first: refuse unless the node is free → take the directories from users → `quit -t` (never a
bare `quit`, which blocks for ever with a client that stays) → wait → stop the unit → TERM → KILL of processes held by
pidfd → prepare → start → audit. Killed at any step, the next run converges. Only the daemons of the
instances that were asked for are ended, and with the whole node those of units that are no longer configured.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.codes import BEYOND_RESET
from mpsfleet.errors import MpsfleetError, NotInEffect, Refused, UsageError
from mpsfleet.node import act, daemon, files, free, prepare, topology, units
from mpsfleet.node.host import files as disk
from mpsfleet.node.host import locks, processes
from mpsfleet.node.host.children import state_of
from mpsfleet.node.instances import Instance, of
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Change, Outcome, Unreadable
from mpsfleet.node.probe import directories, probe, procfs

if TYPE_CHECKING:
    from mpsfleet.node.actions import UnitState
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Daemon, Facts, Process

QUIT_S = 3  # seconds the daemon gives its servers
_GRACE_S = 2.0
LOCK_WAIT_S = 5.0
_STOP_S = 30.0
_NO_MORE = "the configuration has no such daemon any more"
_UNRECORDED = "which daemons this node should run depends on its GPUs, which no deploy has recorded; deploy it first"


class Options(NamedTuple):
    """What the caller allows, and which instances are meant."""

    any_drain: bool = False  # a drain by somebody else counts too
    others: bool = False  # end root's control daemons on other directories as well
    dry_run: bool = False
    names: tuple[str, ...] = ()  # the instances to reset; () for all of the node


class Scope(NamedTuple):
    """What one reset is about."""

    instances: tuple[Instance, ...]
    retired: tuple[UnitState, ...]  # units that the configuration has no more; ended with a reset of the whole node
    units: tuple[UnitState, ...]  # of the instances
    targets: tuple[Daemon, ...]  # root's control daemons to end

    def running(self) -> tuple[UnitState, ...]:
        """Return the units that have to be stopped."""
        return tuple(each for each in (*self.retired, *self.units) if each.runs)


def reset(host: Host, desired: Desired, options: Options) -> Outcome:
    """Reset daemons of this node and return what was done with the judgement after it. Refused, NotInEffect."""
    require_ready(host, desired)
    if disk.exists(host.path(files.QUIESCED)):
        raise Refused("this node is quiesced for work on the driver; end that with `mpsfleet node unquiesce`")
    with locks.held(host, "node", LOCK_WAIT_S):
        instances = chosen(host, desired, options.names)
        _require_free(host, desired, options, instances)
        if not options.dry_run:
            for each in instances:
                prepare.check(host, each)
        facts = probe(host, desired)
        require_sense(facts, desired, instances)
        scope = scope_of(host, facts, instances, options)
        if options.dry_run:
            return Outcome("reset", facts.node, dry_run=True, changes=_planned(scope))
        changes = prepare.prepare(host, instances)  # taken from users first: then who hears a command cannot change
        changes += _end(host, desired, options, scope)
        changes += _retire(host, desired, scope)
        changes += start(host, desired, instances)
        after = judge(probe(host, desired), desired)
        verify_as_user(host, desired, instances)
        return Outcome("reset", facts.node, dry_run=False, changes=changes, report=after)


def quiesce(host: Host, desired: Desired, options: Options) -> Outcome:
    """Stop the daemons of the node and keep them stopped over reboots, so that the driver can be exchanged."""
    require_ready(host, desired)
    with locks.held(host, "node", LOCK_WAIT_S):
        instances = chosen(host, desired, ())
        _require_free(host, desired, options, instances)
        facts = probe(host, desired)
        scope = scope_of(host, facts, instances, options)
        there = disk.exists(host.path(files.QUIESCED))
        mark = Change(files.QUIESCED, "create", "no unit of ours starts while it is there")
        if options.dry_run:
            stops = tuple(Change(each.unit, "stop", f"it is {each.active}") for each in scope.running())
            return Outcome("quiesce", facts.node, dry_run=True, changes=(*(() if there else (mark,)), *stops))
        changes: tuple[Change, ...] = ()
        if not there:
            disk.publish(host.path(files.QUIESCED), b"by `mpsfleet node quiesce`\n", 0o644)
            changes += (mark,)
        changes += prepare.prepare(host, instances) if scope.targets else ()
        changes += _end(host, desired, options, scope)
        return Outcome("quiesce", facts.node, False, changes, report=judge(probe(host, desired), desired))


def unquiesce(host: Host, desired: Desired, *, dry_run: bool) -> Outcome:
    """Let the daemons of the node start again, start them and verify. Needs no drain: nothing is ended."""
    require_ready(host, desired)
    with locks.held(host, "node", LOCK_WAIT_S):
        instances = chosen(host, desired, ())
        facts = probe(host, desired)
        # The mark stays where the new driver does not work; of a quiesced node nothing else is judged.
        require_sense(facts._replace(quiesced=False), desired, instances)
        gone = Change(files.QUIESCED, "remove", "the units may start again")
        changes: tuple[Change, ...] = (gone,) if disk.exists(host.path(files.QUIESCED)) else ()
        idle = tuple(at.instance for at in facts.instances if facts.serving(at) is None)
        if dry_run:
            starts = tuple(Change(each.unit, "start", "then verified as root and as a user") for each in idle)
            return Outcome("unquiesce", facts.node, dry_run=True, changes=(*changes, *starts))
        disk.remove(host.path(files.QUIESCED))
        changes += start(host, desired, idle)
        after = judge(probe(host, desired), desired)
        verify_as_user(host, desired, instances)
        return Outcome("unquiesce", facts.node, dry_run=False, changes=changes, report=after)


def require_ready(host: Host, desired: Desired) -> None:
    """Refuse where a person has put the kill switch, and where nothing is deployed."""
    act.refuse_when_off(host)
    if disk.read_or_none(host.path(files.unit_path(desired))) is None:
        raise Refused(f"{files.unit_path(desired)} is not on this node; deploy it first (playbook deploy_mps)")


def start(host: Host, desired: Desired, instances: tuple[Instance, ...]) -> tuple[Change, ...]:
    """Prepare the directories of instances whose daemons have ended, and start them."""
    changes = prepare.prepare(host, instances) if instances else ()
    for each in instances:
        act.start(host, desired, each)
        changes += (Change(each.unit, "start", "and its daemon answers"),)
    return changes


def chosen(host: Host, desired: Desired, names: tuple[str, ...]) -> tuple[Instance, ...]:
    """Return the instances of these names, or all of the node. UsageError, Refused where there is none."""
    cards = topology.recorded(host)
    if isinstance(cards, Unreadable):
        raise MpsfleetError(cards.reason)
    known = of(desired, cards)
    for each in names:
        if each not in {instance.name for instance in known}:
            has = ", ".join(instance.name for instance in known) or "none"
            raise UsageError(f"this node has no control daemon of its own for GPU {each}; it has: {has}")
    if not known:
        message = "this node has no GPU under MPS, so there is nothing to reset" if cards else _UNRECORDED
        raise Refused(message)
    return tuple(each for each in known if not names or each.name in names)


def _require_free(host: Host, desired: Desired, options: Options, instances: tuple[Instance, ...]) -> None:
    gpus = frozenset(uuid for each in instances for uuid in each.gpus)
    why = free.why_not(host, desired, any_drain=options.any_drain, gpus=gpus if options.names else None)
    if why is not None:
        raise Refused(why)


def require_sense(facts: Facts, desired: Desired, instances: tuple[Instance, ...]) -> None:
    """Refuse where the GPUs themselves are ill or cannot be asked: restarting MPS would not help, and might hang."""
    subjects = {f"gpu{each.name}" for each in instances}
    for each in judge(facts, desired).findings:
        elsewhere = desired.daemons == "gpu" and each.subject.startswith("gpu") and each.subject not in subjects
        if each.code in BEYOND_RESET and not elsewhere:
            raise Refused(f"a reset of MPS does not help here: {each.message}; to do: {each.remedy}")


def scope_of(host: Host, facts: Facts, instances: tuple[Instance, ...], options: Options) -> Scope:
    """Return what this reset is about. The daemons of instances that were not named are left alone."""
    if isinstance(facts.daemons, Unreadable):
        raise MpsfleetError(f"the daemons of this node are not known: {facts.daemons.reason}")
    names = tuple(each.unit for each in instances)
    wanted = {at.instance.unit for at in facts.instances}
    known = units.states(host, units.known(host, tuple(wanted)))
    mine = tuple(each for each in known if each.unit in names)
    retired = () if options.names else tuple(each for each in known if each.unit not in wanted)
    pids = {each.main_pid for each in (*mine, *retired) if each.main_pid}
    directories_ = {each.pipe_directory for each in instances}
    spared = {at.pipe.path for at in facts.instances} - directories_
    targets = tuple(
        each
        for each in facts.daemons
        if each.directory in directories_
        or each.process.pid in pids
        or (options.others and each.directory not in spared)
    )
    return Scope(instances, retired, mine, targets)


def _planned(scope: Scope) -> tuple[Change, ...]:
    ends = tuple(
        Change(f"control daemon {each.process.pid} of {each.directory}", "end", "quit -t, then TERM, then KILL")
        for each in scope.targets
    )
    stops = tuple(Change(each.unit, "stop", f"it is {each.active}") for each in scope.running())
    gone = tuple(Change(each.unit, "disable", _NO_MORE) for each in scope.retired if each.enabled == "enabled")
    cleaned = tuple(
        Change(path, "prepare", "taken from users, cleaned, 0755 root:root")
        for each in scope.instances
        for path in (each.pipe_directory, each.log_directory)
    )
    starts = tuple(Change(each.unit, "start", "then verified as root and as a user") for each in scope.instances)
    return (*ends, *stops, *gone, *cleaned, *starts)


def _end(host: Host, desired: Desired, options: Options, scope: Scope) -> tuple[Change, ...]:
    """End the daemons, their servers with them, and return what it took."""
    with contextlib.ExitStack() as stack:
        held = _hold(host, stack, scope.targets)
        servers = _hold_servers(host, stack, scope.targets)
        # again: the last moment before the first step that ends a client
        _require_free(host, desired, options, scope.instances)
        changes = _quit(host, desired, scope, held)
        alive = {each.pid for each in held if each.alive()}
        for unit in scope.running():
            units.tell(host, "stop", unit.unit, limit_s=_STOP_S)
            if unit.main_pid in alive:
                changes += (Change(unit.unit, "stop", "its daemon did not quit: ended by TERM or KILL"),)
        for number, each in enumerate((*held, *servers)):
            if not each.alive():
                continue
            problem = each.end(_GRACE_S, _GRACE_S)
            if problem is not None:
                raise NotInEffect(f"{problem}; reboot the node")
            what = "control daemon" if number < len(held) else "MPS server"
            changes += (Change(f"{what} {each.pid}", "end", "by a signal: it did not quit"),)
    return changes


def _retire(host: Host, desired: Desired, scope: Scope) -> tuple[Change, ...]:
    """Take away the units that the configuration has no more; their daemons have ended."""
    changes: tuple[Change, ...] = ()
    for each in scope.retired:
        if each.enabled == "enabled":
            units.tell(host, "disable", "--quiet", each.unit, limit_s=_STOP_S)
            changes += (Change(each.unit, "disable", _NO_MORE),)
    for path in files.UNIT_PATHS if scope.retired else ():
        if path != files.unit_path(desired) and disk.remove(host.path(path)):
            units.tell(host, "daemon-reload", limit_s=_STOP_S)
            changes += (Change(path, "remove", _NO_MORE),)
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


def _quit(host: Host, desired: Desired, scope: Scope, held: list[processes.Held]) -> tuple[Change, ...]:
    """Ask the daemon that serves each pipe directory to quit, where it is certain who would hear it."""
    ours = {each.pipe_directory for each in scope.instances}
    changes: tuple[Change, ...] = ()
    for directory in dict.fromkeys(each.directory for each in scope.targets):
        if directory in ours:  # another one is not ours to speak in
            changes += _quit_one(host, desired, directory, scope.targets, held)
    return changes


def _quit_one(
    host: Host, desired: Desired, directory: str, targets: tuple[Daemon, ...], held: list[processes.Held]
) -> tuple[Change, ...]:
    pipe, fd = directories.look(host, directory)
    try:
        serving = daemon.hears_root(host, pipe, fd, targets)
    finally:
        if fd >= 0:
            os.close(fd)
    if serving is None or state_of(serving.process.pid, host.proc) in ("T", "t", "D"):
        return ()  # a stopped daemon hears nothing
    daemon.command(host, desired, directory, f"quit -t {QUIT_S}", QUIT_S + 2.0)
    mine = [each for each in held if each.pid == serving.process.pid]
    end = time.monotonic() + _GRACE_S
    if all(each.wait(max(0.0, end - time.monotonic())) for each in mine):
        return (Change(f"control daemon {serving.process.pid}", "quit", "it ended by itself"),)
    return ()


def verify_as_user(host: Host, desired: Desired, instances: tuple[Instance, ...]) -> None:
    """Ask the new daemons with NVIDIA's own program as an ordinary user, as a job would."""
    for each in instances:
        problem = daemon.refuses_user(host, desired, each)
        if problem is not None:
            raise NotInEffect(problem)
