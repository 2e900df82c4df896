"""Text of others made safe to print: one line, printable characters, bounded length.

Process names, file names, daemon answers and Slurm's reasons can hold terminal escapes, newlines and bidirectional
controls. Every such text passes `show` where it is rendered.
"""

from __future__ import annotations

LIMIT = 160  # characters


def show(text: object, limit: int = LIMIT) -> str:
    """Return `text` as one printable line of at most `limit` characters; what is not printable is escaped.

    `str.isprintable` is false for controls, separators other than the space, surrogates and format characters, which
    include the bidirectional ones.
    """
    raw = str(text)
    cut = raw[: limit + 1]
    safe = cut if cut.isprintable() else "".join(_escape(each) for each in cut)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
