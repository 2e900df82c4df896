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
    """Give the findings, the worst first, then by place.

    The same about several nodes is one finding, at the first of their lines: a site may have a line for each node.
    """
    first: dict[tuple[str, ...], Finding] = {}
    nodes: dict[tuple[str, ...], dict[str, None]] = {}
    for each in sorted(findings, key=lambda each: each.place):
        key = (each.code, each.message, each.place.file, "" if each.nodes else str(each.place.line))
        first.setdefault(key, each)
        nodes.setdefault(key, {}).update(dict.fromkeys(each.nodes))
    whole = [each._replace(nodes=tuple(nodes[key])) for key, each in first.items()]
    return tuple(sorted(whole, key=lambda each: (-SEVERITIES.index(each.severity), each.place, each.code)))


def verdict(findings: Iterable[Finding]) -> str:
    """Give the worst severity."""
    return max((each.severity for each in findings), key=SEVERITIES.index, default="ok")
