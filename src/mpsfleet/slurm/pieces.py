"""JSON taken apart without being parsed: where the members of an array or object lie in the text.

A parser builds values many times the size of a hostile text (40 MB of `{}` took 1.4 GB) and gives up on the whole when
one part is bad. Here brackets and strings alone are followed, so that each part can be measured, and parsed or thrown
away, by itself. A text that is no JSON gives pieces that the parser then refuses.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:"]', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


class Piece(NamedTuple):
    """The text from `start` to `end`: one value (`key` is None in an array, else the name as written, in quotes)."""

    key: str | None
    start: int
    end: int
    depth: int  # brackets within brackets, 0 for a plain value


class PiecesError(ValueError):
    """The text is not an array or object at that place, or it does not end where it should; the message names no content."""


def members(text: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
    """Give the direct members of the array or object that starts at the first character that is not a blank."""
    stop = len(text) if end is None else end
    opening = _skip_blanks(text, start, stop)
    if opening >= stop or text[opening] not in "[{":
        raise PiecesError(f"no array or object at character {opening}")
    begin, depth, deepest, key = opening + 1, 1, 0, None
    for token in _TOKEN.finditer(text, opening + 1, stop):
        word = token.group()
        if word in "[{":
            depth += 1
            deepest = max(deepest, depth - 1)
        elif word in "]}":
            depth -= 1
            if depth == 0:
                if word != _CLOSING[text[opening]] or text[token.end() : stop].strip():
                    break
                if text[begin : token.start()].strip() or key is not None:
                    yield Piece(key, begin, token.start(), deepest)
                return
        elif depth == 1 and word == ":" and key is None:
            key, begin = text[begin : token.start()].strip(), token.end()
        elif depth == 1 and word == ",":
            yield Piece(key, begin, token.start(), deepest)
            begin, deepest, key = token.end(), 0, None
        elif word == '"':
            break
    raise PiecesError(f"the array or object at character {opening} does not end where it should")


def _skip_blanks(text: str, start: int, stop: int) -> int:
    while start < stop and text[start] in " \t\r\n":
        start += 1
    return start
