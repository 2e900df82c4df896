# SPDX-License-Identifier: Apache-2.0

"""Values of variables as TOML."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.toml import toml_value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("/usr/bin/x", "string", '"/usr/bin/x"'),
        ('a"b\\c', "string", '"a\\"b\\\\c"'),
        ("a\nb\tc\rd", "string", '"a\\nb\\tc\\rd"'),
        ("\x00\x1b\x7f", "string", '"\\u0000\\u001b\\u007f"'),
        ("ü😀", "string", '"ü😀"'),
        (12, "string", '"12"'),
        ("", "string", '""'),
        (100, "number", "100"),
        ("50", "number", "50"),
        (" 2.5 ", "number", "2.5"),
        (2.0, "number", "2.0"),
        (True, "boolean", "true"),
        ("yes", "boolean", "true"),
        ("False", "boolean", "false"),
        (0, "boolean", "false"),
        (True, "as it is", "true"),
        (3, "as it is", "3"),
        ("3", "as it is", '"3"'),
        ([0, "2"], "gpus", "[0, 2]"),
        (["GPU-5a3c", "Tesla T4", 4090, "4090"], "gpus", '["GPU-5a3c", "Tesla T4", "4090", "4090"]'),
        ([], "gpus", "[]"),
    ],
)
def test_a_value_is_written_as(value: object, kind: str, text: str) -> None:
    assert toml_value(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("50%", "number", "'50%' is not a number"),
        (True, "number", "'True' is not a number"),
        (None, "number", "'None' is not a number"),
        ("nan", "number", "not a finite number"),
        ("inf", "number", "not a finite number"),
        ("maybe", "boolean", "'maybe' is neither true nor false"),
        (None, "as it is", "None is a NoneType"),
        ([1], "as it is", "is a list"),
        ("0,1", "gpus", "'0,1' is no list"),
        (0, "gpus", "'0' is no list"),
        (["all"], "gpus", "'all' names no GPU"),
        ([True], "gpus", "'True' names no GPU"),
        (1, "date", "no kind 'date'"),
    ],
)
def test_a_value_of_another_kind_is_an_error(value: object, kind: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        toml_value(value, kind)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is in Python from 3.11")
def test_every_character_comes_back_as_it_was() -> None:
    import tomllib

    text = "".join(chr(each) for each in range(0x3000) if not 0xD800 <= each < 0xE000) + "😀"

    assert tomllib.loads(f"value = {toml_value(text, 'string')}") == {"value": text}
