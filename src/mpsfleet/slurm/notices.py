"""One sentence about a host, with its severity: what verdicts and drift are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.codes import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

INFO = "info"  # for a person to read; does not count in a verdict


class Notice(NamedTuple):
    """`severity` is one of codes.SEVERITIES or INFO; `remedy` says what to do, "" where there is nothing."""

    severity: str
    sentence: str
    remedy: str = ""


def highest(notices: Iterable[Notice]) -> str:
    """Give the worst severity, "ok" where nothing counts."""
    return worst(each.severity for each in notices if each.severity != INFO)


def worst(severities: Iterable[str]) -> str:
    """Give the worst of some severities, "ok" for none."""
    return max(severities, key=SEVERITIES.index, default="ok")


def rank(severity: str) -> int:
    """Give a number that sorts the most severe first and INFO last."""
    return len(SEVERITIES) if severity == INFO else len(SEVERITIES) - 1 - SEVERITIES.index(severity)
