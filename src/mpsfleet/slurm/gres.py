"""Generic resources (GRES) of a node as values: what `Gres=` and `GresUsed=` of `scontrol show nodes` say.

Forms seen on Slurm 22.05 and 24.11, and in gres.shtml "Shared GRES Usage":
    gpu:a100:4(S:0-1)                       four, of a type, on sockets 0 and 1
    gpu:tesla:2,gpu:kepler:2                several entries of one name add up
    gpu:a100:2(IDX:0-1), gpu:0(IDX:N/A)     used devices, by index
    mps:a100:100(100/100,0/100), shard:8(-/5,5/5)   used and total per device; "-": that GPU is taken as a whole
    mps:(null):0(IDX:N/A)                   no type, as 22.05 has it for a node that registered without the name
On 22.05 the count in `GresUsed=…mps:a100:1(IDX:0)` counts devices and not shares; on 24.11 it counts shares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_COUNT = re.compile(r"([0-9]{1,18})([KMGTP]?)")  # slurmctld prints 1024 as 1K
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")  # a name or a type
_ENTRY = re.compile(r"((?:[^,()]|\([^()]*\))+)(?:,|$)")
_NOTE = re.compile(r"\(([^()]*)\)")
_FRACTION = re.compile(r"(-|[0-9]{1,18})/([0-9]{1,18})")
_INDICES = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_NO_CONSUME = "no_consume"
_NO_TYPE = ":(null)"
_MOST_DEVICES = 4096  # more than one node can hold; an index list is not expanded beyond it


class GresError(ValueError):
    """A GRES text that means nothing; the message names the entry."""


class Share(NamedTuple):
    """How much of one device is in use, in shares; `used` is None where the GPU is taken as a whole."""

    used: int | None
    total: int


@dataclass(frozen=True)
class Gres:
    """One entry: a name, perhaps a type, a count, and what stands in its brackets."""

    name: str
    type: str | None
    count: int
    sockets: str | None = None  # "0-1", as written
    indices: tuple[int, ...] | None = None  # of GresUsed; () for IDX:N/A, None where not said
    shares: tuple[Share, ...] | None = None  # per device, of GresUsed
    notes: tuple[str, ...] = ()  # brackets of a kind that is not known, kept as written


@lru_cache(maxsize=256)  # a fleet has few different texts, and reading them anew was a seventh of a verdict's time
def parse(text: str) -> tuple[Gres, ...]:
    """Read a GRES list; a trailing comma is let pass, an empty text is no GRES. Raises GresError."""
    rest = text.strip(" ").rstrip(",")
    entries: list[Gres] = []
    position = 0
    while position < len(rest):
        match = _ENTRY.match(rest, position)
        if match is None:
            raise GresError(f"GRES entry {rest[position : position + 60]!r} is not understood")
        entries.append(_entry(match.group(1)))
        position = match.end()
    return tuple(entries)


def count_of(entries: Iterable[Gres], name: str) -> int:
    """Give the sum over all entries (types) of a name, 0 where there is none."""
    return sum(each.count for each in entries if each.name == name)


def _entry(text: str) -> Gres:
    text = text.replace(_NO_TYPE, "")
    head, *parts = _NOTE.sub("", text).strip(" ").split(":")
    parts = [each for each in parts if each != _NO_CONSUME]
    if not _WORD.fullmatch(head):
        raise GresError(f"GRES entry {text[:60]!r} has no name")
    amount = _COUNT.fullmatch(parts[-1]) if parts else None
    count = int(amount.group(1)) * _UNIT[amount.group(2)] if amount else 1  # Slurm counts one where none is said
    kinds = parts[:-1] if amount else parts
    if len(kinds) > 1 or not all(_WORD.fullmatch(each) for each in kinds) or _is_negative(parts):
        raise GresError(f"GRES entry {text[:60]!r} is not name[:type][:count]")
    gres = Gres(head, kinds[0] if kinds else None, count)
    for note in _NOTE.findall(text):
        gres = _with_note(gres, note)
    return gres


def _is_negative(parts: list[str]) -> bool:
    return bool(parts) and parts[-1].startswith("-")


def _with_note(gres: Gres, note: str) -> Gres:
    kind, _, value = note.partition(":")
    if kind == "S":
        return replace(gres, sockets=value)
    if kind == "IDX":
        indices = () if value in ("N/A", "") else _indices(value)
        return replace(gres, notes=(*gres.notes, note)) if indices is None else replace(gres, indices=indices)
    fractions = [_FRACTION.fullmatch(each) for each in note.split(",")]
    if all(fractions):
        shares = (Share(None if one == "-" else int(one), int(all_)) for one, all_ in _FRACTION.findall(note))
        return replace(gres, shares=tuple(shares))
    return replace(gres, notes=(*gres.notes, note))


def _indices(text: str) -> tuple[int, ...] | None:
    if not _INDICES.fullmatch(text):
        return None
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found.extend(range(int(low), min(int(high or low), int(low) + _MOST_DEVICES) + 1))
        if len(found) > _MOST_DEVICES:
            return None
    return tuple(found)
