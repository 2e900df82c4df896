"""The words of the `slurm` verbs, for argparse; a mistake is one sentence that names the nearest right word."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
from typing import NoReturn

from mpsfleet import codes
from mpsfleet.errors import UsageError
from mpsfleet.show import show
from mpsfleet.slurm import budget, hostlist
from mpsfleet.slurm.lint.judge_cluster import DEFAULT_PIPE_DIRECTORY
from mpsfleet.slurm.lint.wanted import WAYS
from mpsfleet.slurm.policy import Policy
from mpsfleet.slurm.reasons import MOST_GPU

VERBS = ("nodes", "drain", "undrain", "verdict", "history", "drift", "lint")
_LONGEST_WAIT_S = 30 * 86400.0


class _Parser(argparse.ArgumentParser):
    """argparse that raises one sentence instead of printing usage and leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{show(message, 600).rstrip('.')} (see {self.prog} --help).")

    def options(self) -> list[str]:
        """Give every option this parser knows."""
        return [option for each in self._actions for option in each.option_strings]


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the words after `mpsfleet slurm`. Raises UsageError; `verb` names the verb."""
    top, verbs = _parsers()
    if not argv:
        raise UsageError(f"say which verb: {', '.join(VERBS)} (see {top.prog} --help).")
    verb = argv[0]
    if not verb.startswith("-") and verb not in verbs:
        raise UsageError(f"there is no slurm verb {show(verb, 40)}; {_nearest(verb, list(VERBS))}")
    for word in argv[1:]:  # argparse would complain first of what is missing, and of a mistyped option last
        option, known = word.split("=")[0], verbs[verb].options() if verb in verbs else []
        if known and word.startswith("--") and option not in known:
            raise UsageError(f"slurm {verb} has no option {show(option, 60)}; {_nearest(option, known)}")
    return top.parse_args(argv)


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    top = _Parser(prog="mpsfleet slurm", description="What Slurm believes and is told.", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS), parser_class=_Parser)

    nodes = _verb(verbs, "nodes", "Show the nodes as slurmctld sees them.")
    nodes.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes; default: all")

    drain = _verb(verbs, "drain", "Drain one node with our reason, unless somebody else has drained it.")
    drain.add_argument("node", metavar="NODE", help="the Slurm NodeName, one literal name")
    drain.add_argument("--code", required=True, type=_code, help="why: a finding code that drains, or reset")
    drain.add_argument("--gpu", type=_gpu, metavar="N", help="the GPU's index, for the reason")
    drain.add_argument("--wait", type=_seconds, metavar="SECONDS", help="wait until nothing of a job is on it")
    _writes(drain)

    undrain = _verb(verbs, "undrain", "Give one node back that we drained and nothing is on.")
    undrain.add_argument("node", metavar="NODE", help="the Slurm NodeName, one literal name")
    _writes(undrain)

    verdict = _verb(verbs, "verdict", "Judge a fleet by its nodes' reports and Slurm's view.")
    source = verdict.add_mutually_exclusive_group(required=True)
    source.add_argument("--reports", metavar="FILE|-", help="the reports as JSON; - is standard input")
    source.add_argument(
        "--published", action="store_true", help="judge by what the nodes published in Slurm themselves"
    )
    _policy(verdict)
    _writes(verdict)

    history = _verb(verbs, "history", "Show what mpsfleet drained and gave back, when and why.")
    history.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes; default: all in the ledger")
    _ledger(history)

    drift = _verb(verbs, "drift", "Compare what Slurm registers with what runs on the nodes.")
    drift.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes; default: all")
    drift.add_argument("--reports", metavar="FILE|-", help="the nodes' reports as JSON; default: Slurm's side alone")
    drift.add_argument("--cluster", metavar="NAME", help="compare only if slurmctld's ClusterName is this")

    lint = _verb(verbs, "lint", "Check slurm.conf and gres.conf against each other, and against a node's GPUs.")
    lint.add_argument("--slurm-conf", metavar="FILE", type=_path, help="default: the first in a usual place")
    lint.add_argument("--gres-conf", metavar="FILE", type=_path, help="default: beside slurm.conf, where there is one")
    lint.add_argument("--node", metavar="NAME", help="only this node, by its name in Slurm; default: all")
    lint.add_argument("--gpus-json", metavar="FILE|-", help="that node's /etc/mpsfleet/gpus.json; - is standard input")
    lint.add_argument(
        "--pipe-directory", metavar="PATH", default=DEFAULT_PIPE_DIRECTORY, help="of the daemons; default: %(default)s"
    )
    lint.add_argument("--multi-user", action="store_true", help="the daemons serve several users at once")
    lint.add_argument("--want", choices=WAYS, help="show the lines of slurm.conf that share GPUs in this way")
    lint.add_argument("--shares", type=_shares, metavar="N", help="with --want: of each GPU; default: mps 100, shard 4")
    lint.add_argument(
        "--shared",
        action="append",
        default=[],
        type=_shared,
        metavar="N:NODES",
        help="with --want: N GPUs of these nodes are shared; default: those that gres.conf names, else all",
    )
    made = (nodes, drain, undrain, verdict, history, drift, lint)
    return top, dict(zip(VERBS, made))


def _verb(verbs: argparse._SubParsersAction[_Parser], name: str, what: str) -> _Parser:
    verb = verbs.add_parser(name, help=what, description=what, allow_abbrev=False)
    verb.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return verb


def _policy(verdict: argparse.ArgumentParser) -> None:
    say = verdict.add_argument
    say("--trigger-drain", action="store_true", help="drain the nodes that must be drained")
    say("--trigger-undrain", action="store_true", help="give back the nodes drained by mpsfleet that are well again")
    say(
        "--drain-after",
        type=_times,
        metavar="N",
        help="drain a node found failing N times in a row; default: once, twice where one look can be wrong",
    )
    say(
        "--undrain-after",
        type=_times,
        metavar="N",
        default=Policy().well,
        help="give a node back found well N times in a row; default: %(default)s",
    )
    say(
        "--strikes",
        type=_strikes,
        metavar="N",
        default=Policy().strikes,
        help="at the Nth drain in a week leave the node to a person; 0: never; default: %(default)s",
    )
    say(
        "--max-drained",
        type=_limit,
        metavar="LIMIT",
        default=budget.USUAL.cluster,
        help="keep at most so many GPU nodes drained at once, a number or N%%; default: 25%%, at least 3",
    )
    say(
        "--max-drained-partition",
        type=_limit,
        metavar="LIMIT",
        default=budget.USUAL.partition,
        help="the same in each partition; default: 50%%, at least 3",
    )
    say(
        "--max-drained-hour",
        type=_limit,
        metavar="LIMIT",
        default=budget.USUAL.hour,
        help="drain at most so many GPU nodes in an hour; default: 25%%, at least 3",
    )


def _ledger(verb: argparse.ArgumentParser) -> None:
    help_ = "directory of the ledger; default: mpsfleet in slurmctld's StateSaveLocation, else /var/lib/mpsfleet"
    verb.add_argument("--ledger", metavar="DIR", type=_path, help=help_)


def _writes(verb: argparse.ArgumentParser) -> None:
    _ledger(verb)
    verb.add_argument("--cluster", metavar="NAME", help="write only if slurmctld's ClusterName is this")
    verb.add_argument("--dry-run", action="store_true", help="decide and write nothing")


def _code(text: str) -> str:
    if text in codes.DRAIN_WORDS:
        return text
    why = "never drains a node" if text in codes.BY_NAME else "is no finding code"
    raise argparse.ArgumentTypeError(f"{show(text, 60)} {why}; {_nearest(text, sorted(codes.DRAIN_WORDS))}")


def _limit(text: str) -> budget.Limit:
    try:
        return budget.limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _times(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{show(text, 60)} is not a number from 1 to 999")
    return int(text)


def _strikes(text: str) -> int:
    return 0 if text == "0" else _times(text)


def _gpu(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise argparse.ArgumentTypeError(f"{show(text, 60)} is not an index from 0 to {MOST_GPU}")
    return int(text)


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("an empty name is no file")
    return os.path.abspath(text)


def _shares(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{show(text, 60)} is not a number from 1 to 999999")
    return int(text)


def _shared(text: str) -> tuple[int, tuple[str, ...]]:
    count, _, nodes = text.partition(":")
    try:
        return _shares(count), hostlist.expand(nodes)
    except hostlist.HostlistError as error:
        raise argparse.ArgumentTypeError(f"{show(error, 80)}") from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_WAIT_S:  # also refuses NaN
        raise argparse.ArgumentTypeError(f"{show(text, 60)} is not a number of seconds from 0 to {_LONGEST_WAIT_S:.0f}")
    return value
