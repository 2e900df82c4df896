"""The acting verbs of a node: apply, remove, reset, prepare, and the two the unit calls, run-daemon and settle."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, NoReturn

from mpsfleet.errors import CRITICAL, OK, REFUSED, VERDICT_EXIT, MpsfleetError, NotInEffect, Refused, UsageError
from mpsfleet.node import act, config, daemon, deploy, instances, plan, prepare, settings, topology, unattended
from mpsfleet.node.acknowledge import acknowledge
from mpsfleet.node.audit import read_config, require_root, write_line
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host
from mpsfleet.node.judge import lacks_gpus
from mpsfleet.node.model import Outcome, Unreadable
from mpsfleet.node.probe import probe, short_name
from mpsfleet.node.render import json as render_json
from mpsfleet.node.render import text as render_text
from mpsfleet.node.reset import Options, quiesce, reset, unquiesce

if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.instances import Instance


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see `{self.prog} --help`")


def main(verb: str, argv: list[str], root: str = "") -> int:
    """Run one acting verb. Returns the exit code of the judgement after it, 2 not in effect, 75 refused."""
    words = _parser(verb).parse_args(argv)
    host = Host.at(root)
    require_root(host, f"node {verb}")
    if verb in ("run-daemon", "settle"):
        return _of_the_unit(verb, host, words.instance)
    try:
        outcome = _outcome(verb, host, words)
    except Refused as error:
        outcome = Outcome(verb, short_name(host), words.dry_run, refused=str(error))
    except NotInEffect as error:
        outcome = Outcome(verb, short_name(host), words.dry_run, failed=str(error))
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
    if verb in ("prepare", "run-daemon", "settle"):
        which = "?" if verb == "prepare" else None
        parser.add_argument("instance", nargs=which, default="", help="`node`, or a GPU's index (all of them)")
    if verb == "apply":
        parser.add_argument("--config", metavar="-", help="read the new node.toml from standard input")
    if verb in ("reset", "remove", "quiesce"):
        parser.add_argument("--any-drain", action="store_true", help="accept a drain that somebody else set")
    if verb == "reset":
        parser.add_argument(
            "--gpu", type=int, action="append", default=[], metavar="N", help="only the daemon of this GPU; repeatable"
        )
        parser.add_argument(
            "--others", action="store_true", help="also end root's control daemons on other directories"
        )
        parser.add_argument(
            "--unattended", action="store_true", help="only daemons that are ill; one that does not run needs no drain"
        )
    return parser


_HELP = {
    "apply": "Deploy or repair what node.toml asks for. Ends a daemon only where the node is free.",
    "remove": "Take away all that apply put there. Logs stay.",
    "reset": "Stop, clean, start and verify the daemons. The node must be drained by us and idle.",
    "quiesce": "Stop the daemons and keep them stopped, over reboots too, for work on the driver. Needs a free node.",
    "unquiesce": "Start the daemons again after `quiesce`, and verify them.",
    "acknowledge": "Say that the fatal errors in the kernel log are seen to: audits tell of later ones alone.",
    "prepare": "Make the pipe and log directories safe for a start (the unit calls this).",
    "run-daemon": "Become the control daemon (the unit calls this).",
    "settle": "Wait until the started daemon answers (the unit calls this).",
}


def _outcome(verb: str, host: Host, words: argparse.Namespace) -> Outcome:
    text = read_config(words.config) if verb == "apply" and words.config else None
    if verb == "remove" and deploy.is_bare(host):
        return deploy.nothing(verb, host, dry_run=words.dry_run)
    of_daemons = verb in ("reset", "quiesce", "unquiesce")
    if of_daemons and deploy.is_bare(host) and lacks_gpus(probe(host, Desired()), Desired()):
        message = f"this node has no NVIDIA GPU, so there is nothing to {verb}"
        return deploy.nothing(verb, host, dry_run=words.dry_run)._replace(skipped=message)
    desired = desired_or_error(host, text)
    if verb == "reset":
        return _reset(host, desired, words)
    if verb == "quiesce":
        return quiesce(host, desired, Options(words.any_drain, dry_run=words.dry_run))
    if verb == "unquiesce":
        return unquiesce(host, desired, dry_run=words.dry_run)
    if verb == "prepare":  # the unit's start needs it, so the kill switch does not stop it
        return _prepare(host, desired, words.instance, dry_run=words.dry_run)
    act.refuse_when_off(host)
    if verb == "acknowledge":
        return acknowledge(host, desired, dry_run=words.dry_run)
    if verb == "apply":
        return deploy.apply(host, desired, text, dry_run=words.dry_run)
    return deploy.remove(host, desired, dry_run=words.dry_run, any_drain=words.any_drain)


def _reset(host: Host, desired: Desired, words: argparse.Namespace) -> Outcome:
    if words.unattended:
        if words.any_drain or words.others or words.gpu:
            raise UsageError("--unattended chooses by itself; it takes neither --any-drain nor --others nor --gpu")
        return unattended.put_right(host, desired, dry_run=words.dry_run)
    names = tuple(dict.fromkeys(str(each) for each in words.gpu))
    return reset(host, desired, Options(words.any_drain, words.others, words.dry_run, names))


def desired_or_error(host: Host, text: str | None = None) -> Desired:
    """Return the desired state; MpsfleetError with every mistake, one sentence each, when it cannot be used."""
    desired, mistakes = config.load(host, text)
    if mistakes:
        raise MpsfleetError("; ".join(str(each) for each in mistakes))
    return desired


def _prepare(host: Host, desired: Desired, name: str, *, dry_run: bool) -> Outcome:
    wanted = instances.of(desired, _cards(host)) if not name else (_instance(host, desired, name),)
    if not dry_run:
        return Outcome("prepare", short_name(host), dry_run, prepare.prepare(host, wanted))
    facts = probe(host, desired)
    return Outcome("prepare", facts.node, dry_run, plan.preparations(facts))


def _instance(host: Host, desired: Desired, name: str) -> Instance:
    """Return the instance that a unit names; MpsfleetError where the configuration has none of that name."""
    found = instances.by_name(instances.of(desired, _cards(host)), name)
    if found is None:
        raise MpsfleetError(f"the configuration of this node has no control daemon called {name}; deploy it again")
    return found


def _cards(host: Host) -> tuple[Card, ...] | None:
    found = topology.recorded(host)
    if isinstance(found, Unreadable):
        raise MpsfleetError(found.reason)
    return found


def _of_the_unit(verb: str, host: Host, name: str) -> int:
    """Run what the unit calls around its daemon."""
    desired = desired_or_error(host)
    instance = _instance(host, desired, name)
    if verb == "run-daemon":
        daemon.become(host, desired, instance)
    problem = settings.settle(host, desired, instance, main_pid=os.environ.get("MAINPID", ""))
    if problem is not None:
        raise NotInEffect(problem)
    return OK
