"""`mpsfleet slurm nodes|drain|undrain|verdict|drift|lint`: words to values, values to text or JSON, exit status.

Exit status: 0 ok, 1 warning, 2 critical or not in effect, 3 unknown (could not ask), 64 wrong usage, 75 refused.
Anything said about a failure is one sentence on standard error; with --json the object stands on standard output too.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from mpsfleet.errors import VERDICT_EXIT, MpsfleetError, UsageError
from mpsfleet.show import show
from mpsfleet.slurm import budget, lines, reasons, reports, steps, trigger, verdict
from mpsfleet.slurm.arguments import parse
from mpsfleet.slurm.budget import Budget
from mpsfleet.slurm.commands import Caller, Scontrol, Unreadable, this_caller
from mpsfleet.slurm.drains import own_name
from mpsfleet.slurm.drift_command import drift
from mpsfleet.slurm.lint.command import lint
from mpsfleet.slurm.render import node_json, node_line, outcome_json, outcome_line
from mpsfleet.slurm.steps import REAL_CLOCK, NotAsked, Outcome, Terms

if TYPE_CHECKING:
    import argparse

    from mpsfleet.slurm.nodes import NodeTable

_SENTENCE = 2000  # characters of one sentence on standard error


def main(argv: list[str], door: Scontrol | None = None, root: str = "") -> int:
    """Run one verb with its arguments (`["drain", "n1", "--code", "gpu-lost"]`) and give the exit status.

    `root`: the directory under which the controller lies, "" for this machine.
    """
    _make_printable()
    try:
        words = parse(argv[1:] if argv[:1] == ["slurm"] else argv)
        if words.verb == "lint":  # reads files, and asks nobody
            return lint(words, this_caller() if door is None else door.caller, root)
        return _VERBS[words.verb](words, replace(Scontrol.under(root) if door is None else door, tell=_teller()))
    except MpsfleetError as error:
        return _say(error)
    except SystemExit as done:  # argparse, after --help
        return int(done.code or 0)


def _nodes(words: argparse.Namespace, door: Scontrol) -> int:
    table = door.show_nodes()
    if isinstance(table, Unreadable):
        if words.json:
            _print_json({"schema": lines.SCHEMA, "nodes": [], "problems": [show(table.reason, _SENTENCE)]})
        raise NotAsked(table.reason)
    wanted = {each for each in words.nodes if each not in {node.name for node in table.nodes}}
    shown = [each for each in table.nodes if not words.nodes or each.name in words.nodes]
    troubles = [each.sentence for each in table.problems if not words.nodes or each.node in (None, *words.nodes)]
    troubles += [f"slurmctld names no readable node {show(each)}" for each in sorted(wanted)]
    if words.json:
        _print_json({"schema": lines.SCHEMA, "nodes": [node_json(each) for each in shown], "problems": troubles})
    else:
        for node in shown:
            _print(node_line(node))
    return _say(NotAsked("; ".join(troubles) + ".")) if troubles else 0


def _drain(words: argparse.Namespace, door: Scontrol) -> int:
    outcome = steps.drain(door, words.node, reasons.build(words.code, words.gpu), _terms(words, door))
    if words.wait is not None:
        outcome = steps.wait_until_free(door, outcome, words.wait, REAL_CLOCK)
    return _finish(outcome, as_json=words.json)


def _undrain(words: argparse.Namespace, door: Scontrol) -> int:
    return _finish(steps.undrain(door, words.node, _terms(words, door)), as_json=words.json)


def _terms(words: argparse.Namespace, door: Scontrol) -> Terms:
    return Terms(own_name(door.caller.acting_uid), words.cluster, words.dry_run)


def _finish(outcome: Outcome, *, as_json: bool) -> int:
    if as_json:
        _print_json(outcome_json(outcome))
    elif outcome.error is None:
        _print(outcome_line(outcome))
    return 0 if outcome.error is None else _say(outcome.error)


def _verdict(words: argparse.Namespace, door: Scontrol) -> int:
    given = reports.read(read_reports(words.reports, door.caller))
    who = own_name(door.caller.acting_uid)
    cluster = door.cluster_name()
    table: NodeTable | Unreadable = cluster if isinstance(cluster, Unreadable) else door.show_nodes()
    judged = verdict.judge(given, verdict.view_of(cluster, table, words.cluster), who)
    fleet = budget.within(judged, Budget(words.max_drained, words.max_drained_partition))
    if not words.trigger_drain:
        fleet = trigger.only_told(fleet, "trigger_drain is off")
        changed = False
    elif words.dry_run:
        fleet = trigger.only_told(fleet, "dry run")
        changed = trigger.to_drain_count(fleet) > 0
    else:
        fleet = trigger.carry_out(fleet, door, who)
        changed = trigger.drained_count(fleet) > 0
    if words.json:
        _print_json(lines.as_json(fleet, changed=changed))
    else:
        _print("\n".join(lines.grouped(fleet)))
    return VERDICT_EXIT[fleet.verdict]


def _drift(words: argparse.Namespace, door: Scontrol) -> int:
    return drift(words, door, None if words.reports is None else reports.read(read_reports(words.reports, door.caller)))


_VERBS: dict[str, Callable[[argparse.Namespace, Scontrol], int]] = {
    "nodes": _nodes,
    "drain": _drain,
    "undrain": _undrain,
    "verdict": _verdict,
    "drift": _drift,
}


def read_reports(source: str, caller: Caller) -> str:
    """Read the reports from standard input ("-") or a regular file. Raises UsageError and ReportsError.

    Root under sudo reads standard input alone: the file would be opened with rights that the user does not have.
    """
    try:
        if source == "-":
            data = sys.stdin.buffer.read(reports.INPUT_LIMIT + 1)
        elif caller.is_sudo:
            raise UsageError("Under sudo, --reports takes - alone: pass the reports on standard input.")
        else:
            data = _read_regular(Path(source))
    except OSError as error:
        raise reports.ReportsError(f"The reports cannot be read from {show(source)}: {error.strerror}.") from None
    if len(data) > reports.INPUT_LIMIT:
        raise reports.ReportsError(f"The reports are larger than {reports.INPUT_LIMIT} bytes; nothing was read.")
    return data.decode("utf-8", "replace")


def _read_regular(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise reports.ReportsError(f"The reports cannot be read from {show(path)}: it is not a regular file.")
        return stream.read(reports.INPUT_LIMIT + 1)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_json(value: object) -> None:
    _print(json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False))


def _say(error: MpsfleetError) -> int:
    sys.stderr.write(f"mpsfleet: {show(error, _SENTENCE)}\n")
    return error.exit_code


def _teller() -> Callable[[str], None]:
    """Give a way to say sentences on standard error, each once."""
    said: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            sys.stderr.write(f"mpsfleet: {show(sentence, _SENTENCE)}\n")

    return tell


def _make_printable() -> None:
    """Let a terminal without Unicode get escapes instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
