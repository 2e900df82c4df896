"""Many host names as one short text: `n[1-3,7]`, the form that Slurm and ClusterShell users read.

Only for reading by a person. Names differ in their last number; leading zeros are kept, so that the text names exactly
the hosts that went in (`n[08-11]` is n08, n09, n10 and n11).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARTS = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_LONGEST_NUMBER = 18  # digits; a longer one is part of a name and not something to count with
_Key = tuple[str, str, int]  # text before the number, text after it, width where padded (else 0)


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
