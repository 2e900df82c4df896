"""The verbs of `mpsfleet slurm`: words to values, values to text or JSON, and the exit status.

Exit status: 0 ok, 1 warning, 2 critical or not in effect, 3 unknown (could not ask), 64 wrong usage, 75 refused.
Anything said about a failure is one sentence on standard error; with --json the object stands on standard output too.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from mpsfleet.errors import VERDICT_EXIT, MpsfleetError, UsageError
from mpsfleet.show import show
from mpsfleet.slurm import fleet_run, history, lines, published, reasons, reports, steps
from mpsfleet.slurm.arguments import parse
from mpsfleet.slurm.budget import Budget
from mpsfleet.slurm.commands import Caller, Scontrol, Unreadable, this_caller
from mpsfleet.slurm.drains import own_name
from mpsfleet.slurm.drift_command import drift
from mpsfleet.slurm.fleet_run import Orders
from mpsfleet.slurm.lint.command import lint
from mpsfleet.slurm.policy import Policy
from mpsfleet.slurm.render import node_json, node_line, outcome_json, outcome_line
from mpsfleet.slurm.steps import REAL_CLOCK, NotAsked, Outcome, Terms

if TYPE_CHECKING:
    import argparse

    from mpsfleet.slurm.nodes import NodeTable
    from mpsfleet.slurm.reports import HostReport

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
    _note(words, door, outcome)
    if words.wait is not None:
        outcome = steps.wait_until_free(door, outcome, words.wait, REAL_CLOCK)
    return _finish(outcome, as_json=words.json)


def _undrain(words: argparse.Namespace, door: Scontrol) -> int:
    outcome = steps.undrain(door, words.node, _terms(words, door))
    _note(words, door, outcome)
    return _finish(outcome, as_json=words.json)


def _note(words: argparse.Namespace, door: Scontrol, outcome: Outcome) -> None:
    """Write what was done into the ledger. Where that fails the step stands, and it is said."""
    if not outcome.changed or outcome.dry_run or outcome.error is not None:
        return
    trouble = fleet_run.note(outcome, door, words.ledger, time.time(), door.root)
    if trouble:
        door.tell(f"{show(outcome.node)} was {outcome.action.value}ed, and the ledger does not say so: {trouble}")


def _published(table: NodeTable) -> tuple[HostReport, ...]:
    return published.reports(table, time.time())


def _history(words: argparse.Namespace, door: Scontrol) -> int:
    found = fleet_run.read_ledger(door, words.ledger, door.root)
    nodes, now = tuple(words.nodes), time.time()
    if words.json:
        _print_json(history.as_json(found, nodes, now))
    else:
        _print("\n".join(history.text(found, nodes, now)))
    return 0


def _terms(words: argparse.Namespace, door: Scontrol) -> Terms:
    return Terms(own_name(door.caller.acting_uid), words.cluster, words.dry_run)


def _finish(outcome: Outcome, *, as_json: bool) -> int:
    if as_json:
        _print_json(outcome_json(outcome))
    elif outcome.error is None:
        _print(outcome_line(outcome))
    return 0 if outcome.error is None else _say(outcome.error)


def _verdict(words: argparse.Namespace, door: Scontrol) -> int:
    given = () if words.published else reports.read(read_reports(words.reports, door.caller))
    limits = Budget(words.max_drained, words.max_drained_partition, words.max_drained_hour)
    orders = Orders(
        own_name(door.caller.acting_uid),
        Policy(limits, words.drain_after, words.undrain_after, words.strikes),
        words.cluster,
        words.trigger_drain,
        words.trigger_undrain,
        words.dry_run,
        words.ledger,
        door.root,
    )
    fleet, changed = fleet_run.run(_published if words.published else lambda _: given, door, orders)
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
    "history": _history,
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
