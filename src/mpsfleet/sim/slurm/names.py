"""Node lists as people type them: `n1,n3` and `n[1-3,7]`."""

from __future__ import annotations

import re

_BRACKETED = re.compile(r"([^,\[\]]*)\[([^\[\]]*)\]|([^,\[\]]+)")
_MOST = 10_000


def expand(text: str) -> tuple[str, ...]:
    """Return the names of a list; a text that is none is taken for one name, which no node will have."""
    names: list[str] = []
    for head, ranges, plain in _BRACKETED.findall(text):
        if plain:
            names.append(plain)
            continue
        for each in ranges.split(","):
            low, _, high = each.partition("-")
            if not low.isdigit() or not (high or low).isdigit() or int(high or low) - int(low) > _MOST:
                return (text,)
            names += [f"{head}{number:0{len(low)}}" for number in range(int(low), int(high or low) + 1)]
    return tuple(names)
