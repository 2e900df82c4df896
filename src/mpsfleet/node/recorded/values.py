"""Answers as JSON and back: named tuples by their class and fields, without those that have their default.

Only classes of this program's node room are made from a recording, and only by their fields.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from mpsfleet.errors import MpsfleetError

_ROOM = "mpsfleet.node."
_CLASS = re.compile(r"([a-z_]+(?:\.[a-z_]+){0,2})\.([A-Z][A-Za-z]*)")
_KIND = "$"  # the member that says what an object is; no field can have this name


class RecordingError(MpsfleetError):
    """The recording cannot be used; the sentence says why."""


def encode(value: Any) -> Any:  # noqa: ANN401  # any answer
    """Return an answer as what JSON can hold. TypeError for one that is no value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {_KIND: "bytes", "text": value.decode("utf-8", "surrogateescape")}
    if isinstance(value, OSError):
        return {_KIND: "error", "errno": value.errno or 0, "text": value.strerror or str(value)}
    if isinstance(value, dict):
        return {_KIND: "map", "items": [[encode(key), encode(each)] for key, each in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind = type(value)
        fields: dict[str, Any] = {_KIND: f"{kind.__module__.removeprefix(_ROOM)}.{kind.__name__}"}
        defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]  # a named tuple has it
        for name, each in zip(value._fields, value):
            if name not in defaults or type(each) is not type(defaults[name]) or each != defaults[name]:
                fields[name] = encode(each)
        return fields
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    raise TypeError(f"{type(value).__name__} is no value")


def decode(value: Any) -> Any:  # noqa: ANN401  # any answer
    """Return the answer that `encode` made this of. RecordingError for anything else."""
    if isinstance(value, list):
        return tuple(decode(each) for each in value)
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    try:
        if kind == "bytes":
            return value["text"].encode("utf-8", "surrogateescape")
        if kind == "error":
            return OSError(value["errno"], value["text"])
        if kind == "map":
            return {decode(key): decode(each) for key, each in value["items"]}
        return _class(kind)(**{name: decode(each) for name, each in value.items() if name != _KIND})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RecordingError(f"the recording holds a value that this version does not know ({kind})") from None


def _class(kind: object) -> Any:  # noqa: ANN401  # a class, by its name
    found = _CLASS.fullmatch(kind) if isinstance(kind, str) else None
    if found is None:
        raise ValueError(kind)
    try:
        made = getattr(importlib.import_module(_ROOM + found[1]), found[2])
    except ImportError:
        raise ValueError(kind) from None
    if not (isinstance(made, type) and issubclass(made, tuple) and hasattr(made, "_fields")):
        raise ValueError(kind)
    return made
