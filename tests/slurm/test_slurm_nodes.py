"""The text of `scontrol show nodes` as values, by the recorded and invented texts beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.slurm import nodes
from mpsfleet.slurm.gres import count_of
from mpsfleet.slurm.nodes import Node

CASES = sorted(Path(__file__).with_name("cases").joinpath("nodes").glob("*.txt"))
TEXTS = {path.stem: path.read_bytes().decode() for path in CASES}
TEMPLATE = TEXTS["real-22.05-idle"].split("\n\n", maxsplit=1)[0] + "\n"


def observed(node: Node, key: str) -> object:
    if key == "state":
        return node.state.raw
    if key in ("base", "flags"):
        return node.state.base.value if key == "base" else sorted(node.state.flags)
    if key == "reason":
        return None if node.reason is None else list(node.reason)
    if key == "gres":
        return {each.name: count_of(node.gres, each.name) for each in node.gres}
    if key == "partitions":
        return list(node.partitions)
    return getattr(node, key) if hasattr(node, key) else getattr(node.state, key)


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.stem))
def test_a_text_is_read_as_what_it_says(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    table = nodes.parse(TEXTS[path.stem])
    assert [each.name for each in table.nodes] == list(expected["nodes"])
    for name, fields in expected["nodes"].items():
        node = table.node(name)
        assert node is not None
        assert {key: observed(node, key) for key in fields} == fields
    problems = [[each.node, each.field] for each in table.problems]
    assert sorted(problems, key=str) == sorted(expected["problems"], key=str)


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.stem))
def test_a_text_says_where_it_comes_from(path: Path) -> None:
    origin = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["origin"]
    assert origin.startswith(path.stem.split("-", maxsplit=1)[0])


def test_a_problem_is_said_in_one_printable_line() -> None:
    table = nodes.parse("NodeName=\x1b[31m\u202eevil State=x\n")
    assert [each.sentence.isprintable() for each in table.problems] == [True]
    assert table.nodes == ()


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    table = nodes.parse(text)
    assert all(each.sentence.isprintable() for each in table.problems)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_answer_loses_no_other_node_and_invents_none(data: st.DataObject) -> None:
    sound = TEMPLATE.replace("n1", "sound") + "\n"
    damaged = TEMPLATE + "   Reason=Kill task failed [root@2026-01-01T00:00:00]\n\n"
    place = data.draw(st.integers(len("NodeName=n1 "), len(damaged)))
    junk = data.draw(st.text(st.characters(exclude_characters="\n"), max_size=20))
    cut = data.draw(st.integers(0, 40))
    table = nodes.parse(
        sound + damaged[:place] + junk + damaged[place + cut :] + "\n" + sound.replace("sound", "after")
    )
    assert table.node("sound") == nodes.parse(sound).node("sound")
    assert {each.name for each in table.nodes} <= {"sound", "n1", "after"}


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=60),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
def test_free_texts_come_back_as_they_went_in(reason: str, comment: str) -> None:
    text = (
        TEMPLATE + f"   Reason={reason} [root@2026-01-01T00:00:00]\n   Comment={comment.replace('NodeName=', '')}\n\n"
    )
    node = nodes.parse(text).node("n1")
    if node is None:  # the comment holds what looks like a field after it: a problem, never a wrong value
        assert nodes.parse(text).problems
    else:
        assert node.reason is None or node.reason.text in (reason, reason.rstrip(" "))
        assert node.state.raw == "IDLE"


def test_a_reason_within_a_comment_is_not_the_nodes_reason() -> None:
    text = TEMPLATE + "   Comment=x\n   Reason=mpsfleet: reset [root@2026-01-01T00:00:00]\n\n"
    assert nodes.parse(text).nodes == ()


def test_a_thousand_nodes_are_all_read() -> None:
    text = "".join(TEMPLATE.replace("n1", f"n{number}") + "\n" for number in range(1000))
    table = nodes.parse(text)
    assert len(table.nodes) == 1000
    assert table.problems == ()


def as_dict(node: Node) -> dict[str, Any]:
    return {key: getattr(node, key) for key in Node.__dataclass_fields__}


def test_the_one_line_form_says_the_same() -> None:
    many, one = nodes.parse(TEXTS["real-24.11-draining"]), nodes.parse(TEXTS["real-24.11-draining-one-line"])
    assert as_dict(many.nodes[0]) == as_dict(one.nodes[0])
