# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text of nodes made safe for a terminal: one line, printable characters, bounded length."""

from __future__ import annotations

LIMIT = 160  # characters


def printable(text: object, limit: int = LIMIT) -> str:
    """Return `text` as one printable line of at most `limit` characters.

    Escapes what `str.isprintable` refuses: controls, line ends, surrogates, and format characters, which include the
    bidirectional ones.
    """
    raw = str(text)[: limit + 1]
    safe = "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode("ascii")
        for each in raw
    )
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
