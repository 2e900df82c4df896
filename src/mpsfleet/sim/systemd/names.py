"""Unit names, as systemd.unit(5) tells them: templates, their instances, and the specifiers for a name's parts."""

from __future__ import annotations

import re

_SPECIFIER = re.compile("%(.)")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|-")


def template_of(name: str) -> str:
    """Return the template of an instance (a@.service for a@1.service); "" for any other unit."""
    stem, dot, kind = name.rpartition(".")
    prefix, at, instance = stem.partition("@")
    return f"{prefix}@{dot}{kind}" if at and instance else ""


def is_template(name: str) -> bool:
    """Return whether a name is a template's, which is no unit that could be started."""
    return name.rpartition(".")[0].endswith("@") and not template_of(name)


def expand(text: str, name: str) -> str:
    """Return a setting with the specifiers for its unit's name replaced; any other specifier is left as it is."""
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    known = {"i": instance, "I": _unescaped(instance), "n": name, "N": stem, "p": prefix, "%": "%"}
    return _SPECIFIER.sub(lambda found: known.get(found[1], found[0]), text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "/", text)
