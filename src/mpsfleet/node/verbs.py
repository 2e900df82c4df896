"""The acting verbs of a node: apply, remove, reset, prepare, and the two the unit calls, run-daemon and settle."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from mpsfleet.errors import CRITICAL, OK, REFUSED, VERDICT_EXIT, MpsfleetError, NotInEffect, Refused, UsageError
from mpsfleet.node import act, config, daemon, files, free, plan, prepare
from mpsfleet.node.audit import read_config, require_root, write_line
from mpsfleet.node.desired import CONFIG
from mpsfleet.node.host import Host, locks
from mpsfleet.node.host import files as disk
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Outcome
from mpsfleet.node.probe import probe, short_name
from mpsfleet.node.render import json as render_json
from mpsfleet.node.render import text as render_text
from mpsfleet.node.reset import Options, reset

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

_LOCK_WAIT_S = 10.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see `{self.prog} --help`")


def main(verb: str, argv: list[str], root: str = "") -> int:
    """Run one acting verb. Returns the exit code of the judgement after it, 2 not in effect, 75 refused."""
    words = _parser(verb).parse_args(argv)
    host = Host.at(root)
    require_root(host, f"node {verb}")
    if verb in ("run-daemon", "settle"):
        return _of_the_unit(verb, host)
    try:
        outcome = _outcome(verb, host, words)
    except Refused as error:
        outcome = Outcome(verb, short_name(), words.dry_run, refused=str(error))
    except NotInEffect as error:
        outcome = Outcome(verb, short_name(), words.dry_run, failed=str(error))
    write_line(render_json.outcome(outcome) if words.json else render_text.outcome(outcome))
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    """Return the exit code of what an acting verb did."""
    if outcome.refused:
        return REFUSED
    if outcome.failed:
        return CRITICAL
    return VERDICT_EXIT[outcome.report.verdict] if outcome.report is not None else OK


def _parser(verb: str) -> _Parser:
    parser = _Parser(prog=f"mpsfleet node {verb}", description=_HELP[verb])
    if verb not in ("run-daemon", "settle"):
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
        parser.add_argument("--json", action="store_true", help="one line of JSON")
    if verb == "apply":
        parser.add_argument("--config", metavar="-", help="read the new node.toml from standard input")
    if verb in ("reset", "remove"):
        parser.add_argument("--any-drain", action="store_true", help="accept a drain that somebody else set")
    if verb == "reset":
        parser.add_argument(
            "--others", action="store_true", help="also end root's control daemons on other directories"
        )
    return parser


_HELP = {
    "apply": "Deploy or repair what node.toml asks for. Restarts no daemon.",
    "remove": "Take away all that apply put there. Logs stay.",
    "reset": "Stop the daemon, clean its directories, start it and verify. The node must be drained by us and idle.",
    "prepare": "Make the pipe and log directories safe for a start (the unit calls this).",
    "run-daemon": "Become the control daemon (the unit calls this).",
    "settle": "Wait until the started daemon answers (the unit calls this).",
}


def _outcome(verb: str, host: Host, words: argparse.Namespace) -> Outcome:
    text = read_config(words.config) if verb == "apply" and words.config else None
    if verb == "remove" and _nothing_installed(host):
        return Outcome(verb, short_name(), words.dry_run)
    desired = desired_or_error(host, text)
    if verb == "reset":
        return reset(host, desired, Options(any_drain=words.any_drain, others=words.others, dry_run=words.dry_run))
    if verb == "prepare":  # the unit's start needs it, so the kill switch does not stop it
        return _prepare(host, desired, dry_run=words.dry_run)
    act.refuse_when_off(host)
    if verb == "apply":
        return _apply(host, desired, text, dry_run=words.dry_run)
    return _remove(host, desired, dry_run=words.dry_run, any_drain=words.any_drain)


def desired_or_error(host: Host, text: str | None = None) -> Desired:
    """Return the desired state; MpsfleetError with every mistake, one sentence each, when it cannot be used."""
    desired, mistakes = config.load(host, text)
    if mistakes:
        raise MpsfleetError("; ".join(str(each) for each in mistakes))
    return desired


def _prepare(host: Host, desired: Desired, *, dry_run: bool) -> Outcome:
    if not dry_run:
        return Outcome("prepare", short_name(), dry_run, prepare.prepare(host, desired))
    facts = probe(host, desired)
    return Outcome("prepare", facts.node, dry_run, plan.preparations(facts))


def _apply(host: Host, desired: Desired, text: str | None, *, dry_run: bool) -> Outcome:
    if text is None:
        text = disk.read(host.path(CONFIG)).decode()
    if not disk.executable(host.path(desired.control_binary)):
        message = (
            f"NVIDIA's control program {desired.control_binary} is not installed; install its package (Debian: "
            "nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-VERSION; RHEL and SLES: nvidia-driver-cuda) and deploy again"
        )
        raise Refused(message)
    program = act.program_path()
    with locks.held(host, "node", _LOCK_WAIT_S):
        facts = probe(host, desired)
        installed = act.installed(host, desired, text, program)
        actions = plan.apply(desired, files.table(desired, text), program, installed, facts)
        told = (plan.foreign_daemon(installed.unit, facts), plan.moved_daemon(installed.unit, desired, facts))
        messages = tuple(each for each in told if each)
        if dry_run:
            changes = tuple(each.change for each in actions)
            return Outcome("apply", facts.node, dry_run=True, changes=changes, messages=messages)
        changes = act.run(host, desired, actions)
        after = judge(probe(host, desired) if actions else facts, desired)
        return Outcome("apply", facts.node, dry_run=False, changes=changes, messages=messages, report=after)


def _nothing_installed(host: Host) -> bool:
    """Tell a node that was never deployed to, or is removed already."""
    paths = (CONFIG, files.PROGRAM_LINK, files.UNIT_PATH)
    return not any(disk.exists(host.path(each)) for each in paths)


def _remove(host: Host, desired: Desired, *, dry_run: bool, any_drain: bool) -> Outcome:
    program = disk.link_target(host.path(files.PROGRAM_LINK)) or files.PROGRAM_LINK
    text = disk.read(host.path(CONFIG)).decode()
    with locks.held(host, "node", _LOCK_WAIT_S):
        facts = probe(host, desired)
        installed = act.installed(host, desired, text, program)
        actions = plan.remove(desired, files.table(desired, text), installed, facts)
        if any(each.kind is plan.Kind.STOP for each in actions):
            why = free.why_not(host, desired, any_drain=any_drain)
            if why is not None:
                raise Refused(why)
        if dry_run:
            return Outcome("remove", facts.node, dry_run=True, changes=tuple(each.change for each in actions))
        return Outcome("remove", facts.node, dry_run=False, changes=act.run(host, desired, actions))


def _of_the_unit(verb: str, host: Host) -> int:
    """Run what the unit calls around its daemon."""
    desired = desired_or_error(host)
    if verb == "run-daemon":
        daemon.become(host, desired)
    problem = daemon.settle(host, desired)
    if problem is not None:
        raise NotInEffect(problem)
    return OK
