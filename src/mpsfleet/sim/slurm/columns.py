"""The -o formats of sinfo and squeue: `%20R %N`, `%.18i`, as their manual pages say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def line(form: str, values: Mapping[str, str]) -> str:
    """Return one line of a format; a width cuts, a dot before it aligns to the right, a letter not known is empty."""

    def filled(match: re.Match[str]) -> str:
        right, width, letter = match.groups()
        text = values.get(letter, "")
        if not width:
            return text
        return (text.rjust(int(width)) if right else text.ljust(int(width)))[: int(width)]

    return FIELD.sub(filled, form).rstrip() if form.endswith("%N") else FIELD.sub(filled, form)


def options(argv: list[str], valued: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Read options: `valued` names those with a value; return options by their long name, and the other words."""
    found: dict[str, str] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word in valued or name in valued:
            found[valued[name]] = value if equals else next(words, "")
        elif not word.startswith("--") and word[:2] in valued and len(word) > 2:  # noqa: PLR2004  # -wn1
            found[valued[word[:2]]] = word[2:]
        elif word.startswith("-"):
            found[word.lstrip("-")] = "yes"
        else:
            rest.append(word)
    return found, rest
