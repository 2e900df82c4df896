"""Small words of sentences: numbers in a row, and their plural."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 8


def numbers(values: Iterable[object], most: int = _MOST) -> str:
    """Return "3, 4 and 7"; of a long row its beginning and how many more there are."""
    words = [str(each) for each in values]
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def plural(count: int) -> str:
    """Return the ending of a regular noun."""
    return "" if count == 1 else "s"
