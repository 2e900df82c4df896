"""Many host names as one short text: `n[1-3,7]`, the form that Slurm and ClusterShell users read; and back.

`compact` is for reading by a person. Names differ in their last number; leading zeros are kept, so that the text names
exactly the hosts that went in (`n[08-11]` is n08, n09, n10 and n11).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARTS = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_LONGEST_NUMBER = 18  # digits; a longer one is part of a name and not something to count with
_LIST_ENTRY = re.compile(r"((?:[^,\[\]]|\[[^\[\]]*\])*)(,|$)")
_NUMBERS = re.compile(rf"([0-9]{{1,{_LONGEST_NUMBER}}})(?:-([0-9]{{1,{_LONGEST_NUMBER}}}))?")
MOST_NAMES = 65536  # of one list; Slurm's own limit (MAX_RANGE in src/common/hostlist.c)
_Key = tuple[str, str, int]  # text before the number, text after it, width where padded (else 0)


class HostlistError(ValueError):
    """A text that is no list of names; the message names the part."""


class EmptyEntry(HostlistError):
    """A list with nothing between two commas, or after the last one."""


def expand(text: str, *, skip_empty: bool = False) -> tuple[str, ...]:
    """Give the names of a list as Slurm writes it, in its order: `n[1-3,7]`, `rack[0-1]n[08-11]`, `a,b`.

    Also for device files (`/dev/nvidia[0-3]`). An empty text names nothing. An empty entry (`n1,`) raises EmptyEntry
    unless `skip_empty`, as Slurm reads over it (seen on 24.11). Raises HostlistError, also for more than MOST_NAMES.
    """
    entries = _entries(text)
    if "" in entries and not skip_empty:
        raise EmptyEntry(f"{text[:60]!r} has a comma without a name beside it")
    names: list[str] = []
    for entry in filter(None, entries):
        names += _names(entry, MOST_NAMES - len(names))
    return tuple(names)


def _entries(text: str) -> list[str]:
    rest, position = text.strip(), 0
    entries: list[str] = []
    while rest:
        entry = _LIST_ENTRY.match(rest, position)
        if entry is None:
            raise HostlistError(f"{rest[position : position + 60]!r} is not a list of names")
        entries.append(entry.group(1).strip())
        if len(entries[-1].split()) > 1:
            raise HostlistError(f"{entries[-1][:60]!r} has a blank inside a name")
        position = entry.end()
        if not entry.group(2):
            break
    return entries


def _names(entry: str, most: int) -> list[str]:
    choices: list[list[str]] = []
    count = 1
    for part in re.split(r"(\[[^\]]*\])", entry):
        choices.append(_numbers(part[1:-1]) if part.startswith("[") else [part])
        count *= len(choices[-1])
        if count > most:
            raise HostlistError(f"{entry[:60]!r} names more than {MOST_NAMES} hosts")
    return ["".join(each) for each in itertools.product(*choices)]


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part)
        low, high = (match.group(1), match.group(2) or match.group(1)) if match else ("1", "0")
        if int(low) > int(high) or int(high) - int(low) >= MOST_NAMES:
            raise HostlistError(f"[{text[:60]}] is not a list of numbers")
        numbers += [str(each).zfill(len(low)) for each in range(int(low), int(high) + 1)]
    return numbers


def compact(hosts: Iterable[str]) -> str:
    """Give the hosts, each once, as a comma-separated list of names and bracketed ranges in natural order."""
    plain: set[str] = set()
    split: dict[tuple[str, str], set[str]] = {}
    for host in hosts:
        match = _PARTS.fullmatch(host)
        if match is None or len(match.group(2)) > _LONGEST_NUMBER:
            plain.add(host)
        else:
            split.setdefault((match.group(1), match.group(3)), set()).add(match.group(2))
    numbers: dict[_Key, set[int]] = {}
    for (before, after), digits in split.items():
        padded = {len(each) for each in digits if each.startswith("0") and len(each) > 1}
        for each in digits:
            width = len(each) if len(each) in padded else 0
            numbers.setdefault((before, after, width), set()).add(int(each))
    words = [((name, -1), name) for name in plain]
    for (before, after, width), values in numbers.items():
        words.append(((before, min(values)), _bracketed(before, after, width, sorted(values))))
    return ",".join(word for _, word in sorted(words))


def _bracketed(before: str, after: str, width: int, values: list[int]) -> str:
    ranges: list[list[int]] = []
    for value in values:
        if ranges and value == ranges[-1][1] + 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    texts = [_range(low, high, width) for low, high in ranges]
    if len(values) == 1:
        return f"{before}{texts[0]}{after}"
    return f"{before}[{','.join(texts)}]{after}"


def _range(low: int, high: int, width: int) -> str:
    first = str(low).zfill(width)
    return first if low == high else f"{first}-{str(high).zfill(width)}"
