"""A fleet's drift for a person and for a program: equal cases of several nodes once, with what mends them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.show import show
from mpsfleet.slurm.hostlist import compact
from mpsfleet.slurm.names import is_literal
from mpsfleet.slurm.notices import INFO

if TYPE_CHECKING:
    from mpsfleet.slurm.drift_fleet import Compared
    from mpsfleet.slurm.drift_kinds import Drift

SCHEMA = 1
_NAMES_LIMIT = 1000  # characters of one compact list
_LINE_LIMIT = 2000
_MOST_NAMED = 20  # hosts in a command; beyond that the word HOST stays
_HOST, _NODE = re.compile(r"\bHOST\b"), re.compile(r"\bNODE\b")


class Group(NamedTuple):
    """Equal cases: the first of them, its names in Slurm or, where Slurm knows none, in the inventory, and the mend."""

    first: Drift
    names: tuple[str, ...]
    mend: str


def groups(found: Compared) -> tuple[Group, ...]:
    """Put equal cases together, in the order of the first of each."""
    together: dict[Drift, list[Drift]] = {}
    for each in found.drifts:
        together.setdefault(each._replace(host="", node=None), []).append(each)
    return tuple(
        Group(same[0], tuple(each.node or each.host for each in same), _mend(same)) for same in together.values()
    )


def _mend(same: list[Drift]) -> str:
    """Put the names into the command, as far as they are names that a command may hold."""
    hosts = [each.host for each in same]
    nodes = [each.node for each in same if each.node is not None]
    mend = same[0].mend
    if len(hosts) <= _MOST_NAMED and all(is_literal(each) for each in hosts):
        mend = _HOST.sub(",".join(hosts), mend)
    if len(nodes) == len(same):
        mend = _NODE.sub(compact(nodes), mend)
    return mend


def lines(found: Compared) -> list[str]:
    """Give the lines that a person reads: `NODES: SEVERITY: sentence [kind]. Mend`, the problems, and a count."""
    told = []
    for each in groups(found):
        drift = each.first
        sentence = f"{drift.sentence.rstrip('.')} [{drift.kind}]."
        told.append(_line(each.names, f"{drift.severity}: {sentence} {each.mend}"))
    by_sentence: dict[str, list[str]] = {}
    for problem in found.problems:
        by_sentence.setdefault(problem.sentence, []).append(problem.host or "slurm")
    told += [_line(tuple(hosts), f"unknown: {sentence}") for sentence, hosts in by_sentence.items()]
    return [*told, _count(found)]


def _line(names: tuple[str, ...], words: str) -> str:
    return show(f"{show(compact(names), _NAMES_LIMIT)}: {words}", _LINE_LIMIT)


def _count(found: Compared) -> str:
    counted = [each for each in found.drifts if each.severity != INFO]
    on = len({each.host for each in counted})
    told = f"drift on {on}" if counted else "no drift"
    without = f", {len(found.problems)} not known" if found.problems else ""
    return f"{found.looked_at} compared: {told}{without}; verdict {found.verdict}."


def as_json(found: Compared) -> dict[str, object]:
    """Give it as one object of schema 1; every text in it is printable."""
    return {
        "schema": SCHEMA,
        "verdict": found.verdict,
        "drifts": [
            {
                "kind": each.first.kind,
                "severity": each.first.severity,
                "nodes": [show(name) for name in each.names],
                "gpu": each.first.gpu,
                "sentence": show(each.first.sentence, _LINE_LIMIT),
                "mend": show(each.mend, _LINE_LIMIT),
            }
            for each in groups(found)
        ],
        "problems": [
            show(f"{each.host}: {each.sentence}" if each.host else each.sentence, _LINE_LIMIT)
            for each in found.problems
        ],
    }
