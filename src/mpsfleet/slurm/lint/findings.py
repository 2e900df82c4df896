"""A finding of the lint: a code of the rules, a place in a file, one sentence, and the nodes it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.slurm.lint.rules import BY_CODE

if TYPE_CHECKING:
    from collections.abc import Iterable

SEVERITIES = ("ok", "warn", "unknown", "critical")  # rising; the verdict is the highest


class Place(NamedTuple):
    """A line of a file, from 1; 0 is the file as a whole."""

    file: str
    line: int


class Finding(NamedTuple):
    """One thing that is wrong, or that somebody should know."""

    code: str
    place: Place
    message: str
    nodes: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """How bad it is."""
        return BY_CODE[self.code].severity

    @property
    def remedy(self) -> str:
        """What to do."""
        return BY_CODE[self.code].remedy


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Give the findings, the worst first, then by place; equal ones once, with all their nodes."""
    nodes: dict[Finding, dict[str, None]] = {}
    for each in findings:
        nodes.setdefault(each._replace(nodes=()), {}).update(dict.fromkeys(each.nodes))
    whole = [each._replace(nodes=tuple(names)) for each, names in nodes.items()]
    return tuple(sorted(whole, key=lambda each: (-SEVERITIES.index(each.severity), each.place, each.code)))


def verdict(findings: Iterable[Finding]) -> str:
    """Give the worst severity."""
    return max((each.severity for each in findings), key=SEVERITIES.index, default="ok")
