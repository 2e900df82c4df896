"""JSON taken apart without being parsed: where the members of an array or object lie in the text.

A parser builds values many times the size of a hostile text (40 MB of `{}` took 1.4 GB) and gives up on the whole when
one part is bad. Here brackets and strings alone are followed, so that each part can be measured, and parsed or thrown
away, by itself. A text that is no JSON gives pieces that the parser then refuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:"]', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


class Piece(NamedTuple):
    """The text from `start` to `end`: one value (`key` is None in an array, else the name as written, in quotes)."""

    key: str | None
    start: int
    end: int
    depth: int  # brackets within brackets, 0 for a plain value
    brackets: int  # how many are opened in it


class PiecesError(ValueError):
    """The text is no array or object at that place, or does not end where it should; holds nothing of its content."""


class _Mark(NamedTuple):
    """A comma or colon of the container itself, or its closing bracket, and what the value before it holds."""

    word: str
    start: int
    end: int
    depth: int
    brackets: int


def members(text: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
    """Give the direct members of the array or object that starts at the first character that is not a blank."""
    stop = len(text) if end is None else end
    opening = _skip_blanks(text, start, stop)
    if opening >= stop or text[opening] not in _CLOSING:
        raise PiecesError(f"no array or object at character {opening}")
    begin, key, is_first = opening + 1, None, True
    for mark in _marks(text, opening, stop):
        if mark.word == ":" and key is None:
            key, begin = text[begin : mark.start].strip(), mark.end
            continue
        if mark.word == "," or not is_first or key is not None or text[begin : mark.start].strip():
            yield Piece(key, begin, mark.start, mark.depth, mark.brackets)
        begin, key, is_first = mark.end, None, False
        if mark.word == _CLOSING[text[opening]] and not text[mark.end : stop].strip():
            return
    raise PiecesError(f"the array or object at character {opening} does not end where it should")


def _marks(text: str, opening: int, stop: int) -> Iterator[_Mark]:
    """Follow brackets and strings up to the bracket that closes the first one, or to the end of the text."""
    depth = deepest = brackets = 0
    for token in _TOKEN.finditer(text, opening, stop):
        word = token.group()
        if word in "[{":
            depth += 1
            brackets += 1
            if depth > deepest + 1:
                deepest = depth - 1
        elif word in "]}":
            depth -= 1
            if depth == 0:
                yield _Mark(word, token.start(), token.end(), deepest, brackets - 1)
                return
        elif word == '"':  # a string without an end
            return
        elif depth == 1 and word in ",:":
            yield _Mark(word, token.start(), token.end(), deepest, brackets - 1)
            if word == ",":
                deepest, brackets = 0, 1


def _skip_blanks(text: str, start: int, stop: int) -> int:
    while start < stop and text[start] in " \t\r\n":
        start += 1
    return start
