"""Trackable resources (TRES) of a node as values: the generic ones in `CfgTRES=` and `AllocTRES=`.

Slurm lists a typed resource and its total side by side: `gres/gpu:a100=1,gres/gpu=1` is one GPU. Which of the two are
there, and whether any is, is AccountingStorageTRES's to say: without gres in it (its default) neither is, however many
GPUs are allocated (seen on 22.05, 24.11 and 26.05). So a number tells, and no number tells nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = "gres/"
_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_GENERIC = re.compile(r"gres/([A-Za-z0-9_.+-]+)(?::([A-Za-z0-9_.+-]+))?=([0-9]{1,18})(?:\.0+)?([KMGTP]?)")


class TresError(ValueError):
    """A TRES text that means nothing."""


class Tres(NamedTuple):
    """One generic resource: `gpu` of type `a100`, or the total of a name, which has no type."""

    name: str
    type: str | None
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks a resource for


def parse(text: str) -> tuple[Tres, ...]:
    """Read the generic resources of a list such as `cpu=64,mem=250G,gres/gpu=4`. Raises TresError."""
    found = []
    for part in text.split(","):
        if not part.startswith(_PREFIX):
            continue
        match = _GENERIC.fullmatch(part)
        if match is None:
            raise TresError(f"TRES entry {part[:60]!r} is not gres/name[:type]=count")
        name, kind, number, unit = match.groups()
        found.append(Tres(name, kind, int(number) * _UNIT[unit]))
    return tuple(found)


def count_of(entries: Iterable[Tres], name: str) -> int | None:
    """Give how many of a name: the total where it is listed, else the sum of its types; None where it is not listed."""
    mine = [each for each in entries if each.name == name]
    totals = [each.count for each in mine if each.type is None]
    if totals:
        return max(totals)
    return sum(each.count for each in mine) if mine else None
