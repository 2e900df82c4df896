"""`scontrol --json show nodes` as values: recorded answers say what their texts say, and other shapes are let pass."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.slurm import cli, json_nodes, nodes
from mpsfleet.slurm.commands import NoSuchNode, Unreadable
from mpsfleet.slurm.json_nodes import NotJsonError
from mpsfleet.slurm.nodes import Node, NodeTable, Problem, Reason

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

CASES = Path(__file__).with_name("cases") / "json"
ORIGINS = json.loads((CASES / "origins.json").read_text(encoding="utf-8"))
RECORDED = sorted(ORIGINS)
PLAIN = {"name": "n1", "state": ["IDLE"]}
NEVER = 4294967294
NO_TIMES: tuple[object, ...] = (0, None, -2, NEVER, NEVER + 1, 2**64 - 2, 10**30, True, "1796140791", 1.5, [])
# What may differ between the two forms of one answer: nothing; the raw word's order of flags is no value.
COMPARED = tuple(Node.__dataclass_fields__)


def utc(seconds: int) -> str | None:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return None


def read(*given: object, **more: object) -> NodeTable:
    return json_nodes.parse(json.dumps({"nodes": list(given), **more}), utc).table


def one(**fields: object) -> Node:
    table = read({**PLAIN, **fields})
    assert table.problems == ()
    return table.nodes[0]


@pytest.mark.parametrize("name", RECORDED)
def test_json_and_text_of_the_same_cluster_give_equal_values(name: str) -> None:
    text = nodes.parse((CASES / f"{name}.txt").read_bytes().decode())
    answer = json_nodes.parse((CASES / f"{name}.json").read_bytes().decode(), utc)

    assert (text.problems, answer.table.problems, answer.errors) == ((), (), ())
    assert len(text.nodes) == len(answer.table.nodes) == 4
    for one_text, one_json in zip(text.nodes, answer.table.nodes):
        assert {key: getattr(one_json, key) for key in COMPARED} == {key: getattr(one_text, key) for key in COMPARED}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_has_what_a_site_has(name: str) -> None:
    table = nodes.parse((CASES / f"{name}.txt").read_bytes().decode())
    states = {each.state.raw for each in table.nodes}
    assert {"IDLE+DRAIN", "DOWN", "MIXED"} <= states
    assert "first line\nsecond  line" in {each.reason.text for each in table.nodes if each.reason}
    assert ORIGINS[name].startswith("real: ")


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({"state": "idle", "state_flags": ["DRAIN"]}, "IDLE+DRAIN"),
        ({"state": "idle", "state_flags": []}, "IDLE"),
        ({"state": "mixed", "state_flags": None}, "MIXED"),
        ({"state": ["DRAIN", "IDLE"]}, "IDLE+DRAIN"),
        ({"state": ["UNKNOWN", "NOT_RESPONDING"]}, "UNKNOWN+NOT_RESPONDING"),
        ({"state": "DOWN+DYNAMIC_NORM+NOT_RESPONDING"}, "DOWN+DYNAMIC_NORM+NOT_RESPONDING"),
        ({"state": ["IDLE", "DYNAMIC_NORM", "MAINTENANCE", "RESERVED", "PLANNED"]},
         "IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED"),
        ({"state": ["IDLE", "A_NEW_FLAG"]}, "IDLE+A_NEW_FLAG"),
    ],
)  # fmt: skip
def test_a_state_is_a_base_and_flags_in_every_shape(fields: dict[str, object], raw: str) -> None:
    assert one(**fields).state.raw == raw


@pytest.mark.parametrize(
    "state", [None, [], "", 4, {"a": 1}, ["IDLE", 4], ["IDLE", None], ["IDLE", "DOWN"], ["IDLE", "x y"]]
)
def test_a_state_that_is_none_or_two_is_a_problem_of_its_node_alone(state: object) -> None:
    table = read({**PLAIN, "state": state}, {**PLAIN, "name": "n2"})
    assert [each.name for each in table.nodes] == ["n2"]
    assert [(each.node, each.field) for each in table.problems] == [("n1", "State")]


def test_a_flag_that_is_not_known_stays_and_forbids() -> None:
    assert one(state=["IDLE", "A_NEW_FLAG"]).state.unknown_flags == ("A_NEW_FLAG",)


@pytest.mark.parametrize("nothing", [None, "", "(null)", "N/A", "n/a", "None", "NONE", "n/s", "Unknown"])
def test_every_spelling_of_nothing_is_nothing(nothing: str | None) -> None:
    node = one(gres=nothing, gres_used=nothing, reason=nothing, comment=nothing, address=nothing, reservation=nothing)
    assert (node.gres, node.gres_used, node.reason, node.comment, node.address, node.reservation) == (
        (), None, None, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "iso"),
    [
        (1796140791, "2026-12-01T15:59:51"),
        ({"set": True, "infinite": False, "number": 1796140791}, "2026-12-01T15:59:51"),
        ({"set": False, "infinite": False, "number": 1796140791}, None),
        ({"set": True, "infinite": True, "number": 1796140791}, None),
        *((each, None) for each in NO_TIMES),
    ],
)
def test_a_time_in_every_shape_and_every_number_that_stands_for_none(number: object, iso: str | None) -> None:
    assert one(boot_time=number).boot_time == iso


def test_a_reason_keeps_its_text_whatever_it_imitates() -> None:
    told = "mpsfleet: reset [root@2026-01-01T00:00:00]\n   State=IDLE"
    node = one(reason=told, reason_set_by_user="alice", reason_changed_at=1796140791)
    assert node.reason == Reason(told, "alice", "2026-12-01T15:59:51")


def test_a_reason_without_a_time_names_no_user() -> None:
    assert one(reason="x", reason_set_by_user="root", reason_changed_at=0).reason == Reason("x", None, None)


@pytest.mark.parametrize(("key", "field"), [("gres", "Gres"), ("reason", "Reason")])
@pytest.mark.parametrize("value", [4, {"a": 1}, ["gpu:4"], True])
def test_a_value_that_decides_is_a_problem_in_another_type(key: str, field: str, value: object) -> None:
    table = read({**PLAIN, key: value})
    assert [(each.node, each.field) for each in table.problems] == [("n1", field)]
    assert table.nodes == ()


@pytest.mark.parametrize("value", [4, {"a": 1}, None, True])
def test_a_value_that_informs_is_left_out_in_another_type(value: object) -> None:
    node = one(version=value, operating_system=value, partitions=value, extra=value, next_state_after_reboot=value)
    assert (node.version, node.os, node.partitions, node.extra, node.next_state) == (None, None, (), None, None)


def test_a_map_where_an_array_was_is_read_by_its_names() -> None:
    answer = json_nodes.parse(json.dumps({"nodes": {"n1": {"state": "idle"}, "n2": {"state": "down"}}}), utc)
    assert [(each.name, each.state.raw) for each in answer.table.nodes] == [("n1", "IDLE"), ("n2", "DOWN")]


def test_partitions_may_be_one_text() -> None:
    assert one(partitions="a,b").partitions == one(partitions=["a", "b"]).partitions == ("a", "b")


def test_a_node_named_twice_is_no_node() -> None:
    table = read(PLAIN, {**PLAIN, "state": ["DOWN"]})
    assert (table.nodes, [each.node for each in table.problems]) == ((), ["n1"])


@pytest.mark.parametrize("node", [4, None, [], {}, {"name": 4}])
def test_an_entry_without_a_name_is_a_problem_and_no_other_is_lost(node: object) -> None:
    table = read(node, PLAIN)
    assert [each.name for each in table.nodes] == ["n1"]
    assert [type(each) for each in table.problems] == [Problem]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "slurm_load_node error\n{}",
        '{"nodes": [',
        '{"nodes": []} trailing',
        "[]",
        "null",
        "{}",
        '"x"',
        "[" * 100000,
    ],
)
def test_what_is_not_slurms_json_as_a_whole_is_said_and_not_guessed_at(text: str) -> None:
    with pytest.raises(NotJsonError) as told:
        json_nodes.parse(text, utc)
    assert str(told.value).isprintable()


def test_what_slurm_calls_an_error_is_passed_on() -> None:
    text = json.dumps({"nodes": [], "errors": [{"error": "Unspecified error", "description": "it broke"}]})
    assert json_nodes.parse(text, utc).errors == ("Unspecified error: it broke",)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("state", "state_flags", "reason", "reason_changed_at", "reason_set_by_user", "gres", "gres_used", "boot_time",
        "partitions", "next_state_after_reboot", "comment", "version")  # fmt: skip


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_whatever_stands_in_a_field_costs_no_other_node(fields: dict[str, Any]) -> None:
    table = read({**PLAIN, **fields}, {"name": "sound", "state": ["IDLE"]})
    assert table.node("sound") is not None
    assert all(each.sentence.isprintable() for each in table.problems)


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("slurm-wlm 20.11.4", None),
        ("slurm-wlm 22.05.8", None),
        ("slurm 23.02.7", "--json"),
        ("slurm 23.11.10", "--json=v0.0.40"),
        ("slurm-wlm 24.11.5", "--json=v0.0.42"),
        ("slurm 26.05.5-rc1", "--json=v0.0.42"),
        ("slurm 31.05.0", None),
        ("", None),
        ("scontrol", None),
    ],
)
def test_json_is_asked_for_where_its_shape_is_known(version: str, option: str | None) -> None:
    assert json_nodes.option_for(version) == option


class TestTheDoor:
    def words(self, slurm: FakeSlurm) -> list[list[str]]:
        return [each["words"] for each in slurm.calls()]

    def test_a_new_slurm_is_read_as_json(self, slurm: FakeSlurm) -> None:
        slurm.write(version="slurm-wlm 24.11.5")
        slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
        door = slurm.door()

        table, node = door.show_nodes(), door.show_node("n1")

        assert isinstance(table, NodeTable)
        assert table.nodes == (node,)
        assert isinstance(node, Node)
        assert (node.state.raw, node.reason and node.reason[:2]) == ("IDLE+DRAIN", ("mpsfleet: reset", "root"))
        assert self.words(slurm) == [
            ["--json=v0.0.42", "show", "nodes"],
            ["--json=v0.0.42", "show", "node", "n1"],
        ]

    def test_an_old_slurm_is_read_as_text(self, slurm: FakeSlurm) -> None:
        slurm.add("n1")
        assert isinstance(slurm.door().show_node("n1"), Node)
        assert self.words(slurm) == [["show", "node", "n1"]]

    def test_an_empty_answer_about_one_node_is_asked_again_as_text(self, slurm: FakeSlurm) -> None:
        slurm.write(version="slurm-wlm 24.11.5")
        assert slurm.door().show_node("n9") == NoSuchNode("n9")

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"noise": "sackd: a message\n"}, "is not JSON from its first character to its last"),
            ({"has_no_json": True}, "unable to find plugin"),
            ({"errors": [{"description": "it broke"}]}, "it broke"),
        ],
    )
    @pytest.mark.parametrize("words", [["nodes"], ["nodes", "--json"]])
    def test_without_json_the_text_is_read_and_that_is_said_once(
        self, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], words: list[str], change: dict[str, Any], why: str
    ) -> None:
        slurm.write(version="slurm-wlm 24.11.5", **change)
        slurm.add("n1", "IDLE")

        status = cli.main(words, slurm.door())

        told = capsys.readouterr()
        assert status == 0
        assert "n1" in told.out
        assert why in told.err
        assert told.err.endswith("its text was read instead.\n")
        assert told.err.count("\n") == 1

    def test_a_slurmctld_out_of_reach_is_not_asked_a_second_time(self, slurm: FakeSlurm) -> None:
        slurm.write(version="slurm-wlm 24.11.5", mode="refused")
        answer = slurm.door().show_nodes()
        assert isinstance(answer, Unreadable)
        assert "slurmctld could not be asked" in answer.reason
        assert len(slurm.calls()) == 1

    def test_a_drain_and_an_undrain_work_by_json(self, slurm: FakeSlurm) -> None:
        slurm.write(version="slurm-wlm 24.11.5")
        slurm.add("n1")
        assert cli.main(["drain", "n1", "--code", "reset"], slurm.door()) == 0
        assert slurm.node("n1") == ("IDLE+DRAIN", "mpsfleet: reset")
        assert cli.main(["undrain", "n1"], slurm.door()) == 0
        assert slurm.node("n1") == ("IDLE", None)
