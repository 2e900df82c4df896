"""How text written by others is put before a person: printable, on one line, bounded.

Node reports, drain reasons, comments and scontrol's own words may hold terminal escapes, newlines or direction marks,
and Slurm stores reasons of up to 100 kB unfiltered. Everything of that kind passes through `show` on its way out.
"""

from __future__ import annotations

LIMIT = 160
_CUT = "..."


def show(text: object, limit: int = LIMIT) -> str:
    """Give text as one printable line of at most `limit` characters.

    What Python calls not printable (controls, escapes, line ends, direction marks, surrogates) becomes \\xNN, \\uNNNN
    or \\UNNNNNNNN; a text that had to be cut ends in "...".
    """
    raw = str(text)[: limit + 1]  # a longer rest cannot be shown, so it is not looked at
    line = "".join(each if each.isprintable() else _escaped(each) for each in raw)
    return line if len(line) <= limit else line[: limit - len(_CUT)] + _CUT


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:  # noqa: PLR2004 - the ranges of Python's own escapes
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004
