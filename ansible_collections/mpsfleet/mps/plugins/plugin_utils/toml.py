# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of variables as TOML, for node.toml.

https://toml.io/en/v1.0.0#string
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_INDEX_DIGITS = 3  # of a GPU's index; a longer number is a model's, such as 4090
_DELETE = 0x7F  # TOML wants it escaped, JSON does not: one reason why JSON's escaping will not do


def toml_value(value: Any, kind: str = "as it is") -> str:
    """Return `value` as TOML text: a string, number, boolean, or a list that names GPUs.

    `kind` "number" and "boolean" read what people put in quotes (`"50"`, `"yes"`), "string" puts quotes around a
    number. ValueError, one sentence, where the value is not of that kind.
    """
    if kind == "gpus":
        return _gpus(value)
    if kind == "string":
        return _string(str(value))
    if kind == "number":
        return _number(_read_number(value))
    if kind == "boolean":
        return _boolean(value)
    if kind != "as it is":
        message = f"there is no kind {kind!r} of TOML value (known: string, number, boolean, gpus)"
        raise ValueError(message)
    if isinstance(value, bool):
        return _boolean(value)
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, str):
        return _string(value)
    message = f"{printable(value, 40)} is a {type(value).__name__}; node.toml has texts, numbers and booleans"
    raise ValueError(message)


def _string(text: str) -> str:
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if number < ord(" ") or number == _DELETE:
        return f"\\u{number:04x}"
    return character


def _gpus(value: Any) -> str:
    """Return indices as numbers, also those in quotes, since "0" as a text would be a part of every A100's name."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(_gpu(each) for each in value) + "]"
    message = f"{printable(value, 40)!r} is no list; name the GPUs as [0, 1] or [A100]"
    raise ValueError(message)


def _gpu(value: Any) -> str:
    text = str(value).strip()
    if text.lower() == "all" or not text or isinstance(value, (bool, float, Mapping)):
        message = f"{printable(value, 40)!r} names no GPU; a list holds indices, UUIDs or models"
        raise ValueError(message)
    return _number(int(text)) if text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS else _string(text)


def _read_number(value: Any) -> int | float:
    if isinstance(value, str):
        for read in (int, float):
            try:
                return read(value.strip())
            except ValueError:
                continue
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    message = f"{printable(value, 40)!r} is not a number"
    raise ValueError(message)


def _number(value: float) -> str:
    if not math.isfinite(value):
        message = f"{value} is not a finite number"
        raise ValueError(message)
    return str(int(value)) if isinstance(value, int) else repr(float(value))


def _boolean(value: Any) -> str:
    words = {"true": "true", "yes": "true", "1": "true", "false": "false", "no": "false", "0": "false"}
    text = words.get(str(value).strip().lower())
    if text is None:
        message = f"{printable(value, 40)!r} is neither true nor false"
        raise ValueError(message)
    return text
