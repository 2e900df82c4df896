"""Public cases about what scontrol and sinfo say: states, records, JSON, and what may be done to a node because of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.node import free
from mpsfleet.node.host.children import Answer
from mpsfleet.slurm import drains, drift, gres, json_nodes, lines, nodes, states, verdict
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.reports import HostReport
from mpsfleet.slurm.state_table import Step

if TYPE_CHECKING:
    from tests.cases.conftest import Row

WHEN = "2026-01-01T00:00:00"
IDS = """
B01 B02 B04 B05 B06 B08 B09 B10 B11 B12 B13 B14 B15 B17 B19 B20 B21 B22 B23 B24 B26 B27 D21 H02 H03 H04 H12 H13
E01 E02 E03 E05 E09 E14 E15 E16 E17 E18 E19 E23 E24 E26 E27
A04 A05 A08 A19 A20 A22 E21 E29 E30 E31 F01 F03 F04 F05 F06 F07 F08 F10 F11 F12 G18
"""
WORDS = st.sampled_from(["IDLE", "mixed", "ALLOCATED", "DOWN", "drng", "MAINT", "NoSuch"])
FLAGS = st.lists(st.sampled_from(sorted(states.KNOWN_FLAGS | {"BESPOKE"})), max_size=5)


def test_every_case_is_here_and_says_what_it_is(every_case: dict[str, Row]) -> None:
    prose = {"source", "evidence", "about"}
    for each in IDS.split():
        assert prose <= set(every_case[each]), each
        assert set(every_case[each]) - {*prose, "left_out"}, each


def slurm_node(row: Row) -> nodes.Node:
    reason = nodes.Reason(row["reason"], row.get("user", "root"), WHEN) if "reason" in row else None
    return nodes.Node(
        "n1", states.parse(row["state"]), reason=reason, gres=gres.parse(row.get("gres", "gpu:4,mps:400"))
    )


def assert_read(found: nodes.Node, row: Row) -> None:
    """Compare what a row says of a node, and nothing else."""
    why = found.reason or nodes.Reason("", None, None)
    read: Row = {
        "name": found.name,
        "reason": why.text,
        "user": why.user,
        "time": why.time,
        "os": found.os,
        "extra": found.extra,
        "gpus": gres.count_of(found.gres, "gpu"),
        "partitions": list(found.partitions),
        "reservation": found.reservation,
        "comment": found.comment is not None,
        "boot": found.boot_time is not None,
        "base": found.state.base.value,
        "flags": sorted(found.state.flags),
    }
    assert {key: read[key] for key in row if key in read} == {key: row[key] for key in row if key in read}


def test_a_word_is_a_base_and_flags(state: Row) -> None:
    if state.get("refused"):
        with pytest.raises(ValueError, match="is not a node state"):
            states.parse(state["word"])
        return
    found = states.parse(state["word"])
    assert (found.base.value, sorted(found.flags)) == (state["base"], state["flags"])
    assert list(found.unknown_flags) == state.get("unknown", [])
    assert (found.has_jobs, found.raw) == (state["jobs"], state["word"])
    for name in ("drained", "draining"):
        assert getattr(found, name) is state.get(name, getattr(found, name))


def test_a_node_is_read_from_text(node: Row) -> None:
    table = nodes.parse(f"{node['text']}\n\n")
    if node.get("problem") or node.get("nothing"):
        assert table.nodes == ()
        assert bool(table.problems) is bool(node["text"])
        return
    (found,) = table.nodes
    assert table.problems == ()
    assert_read(found, node)


def test_a_node_is_read_from_json(json_node: Row) -> None:
    answer = json_nodes.parse(f'{{"nodes": [{json_node["json"]}]}}', json_nodes.iso_of)
    if json_node.get("problem"):
        assert (answer.table.nodes, [each.node for each in answer.table.problems]) == ((), ["n1"])
        return
    assert_read(answer.table.nodes[0], json_node)


def test_nodes_are_read_from_json_or_refused_as_a_whole(json_nodes_of: Row) -> None:
    if json_nodes_of.get("refused"):
        with pytest.raises(json_nodes.NotJsonError):
            json_nodes.parse(json_nodes_of["text"], json_nodes.iso_of)
        return
    found = json_nodes.parse(json_nodes_of["text"], json_nodes.iso_of).table.nodes
    assert [each.name for each in found] == json_nodes_of["names"]


def test_a_step_is_taken_or_refused_with_its_reason(step: Row) -> None:
    node = slurm_node(step)
    for verb, wanted, made in (
        ("drain", Action.DRAIN, drains.decide_drain(node, "daemon-absent", None, "root")),
        ("undrain", Action.UNDRAIN, drains.decide_undrain(node, "root")),
    ):
        if verb in step:
            assert made.action is (Action.REFUSE if step[verb] else wanted)
            assert step[verb] in made.why
    for kind in (Step.RESET, Step.CONTACT):
        if kind.value in step:
            why = states.obstacle(node.state, kind)
            assert (why is None) is (step[kind.value] == "")
            assert step[kind.value] in (why or "")


def test_what_slurm_shows_of_a_node_is_told(notice: Row) -> None:
    found = slurm_node(notice)
    slurm = drift.registry(nodes.NodeTable((found,), ()), ["n1"])
    told = drift.notices("n1", "n1", slurm, is_clean=False)
    assert [each.severity for each in told] == ([notice["severity"]] if notice["severity"] else [])
    assert all(notice["says"] in each.sentence and notice.get("remedy", "") in each.remedy for each in told)


def test_a_silent_host_is_unknown_unless_slurm_has_its_node_off(silent: Row) -> None:
    given = HostReport("n1", "n1", None, "unreachable: timed out")
    slurm = verdict.SlurmView("lab", nodes.NodeTable((slurm_node(silent),), ()))
    fleet = verdict.judge((given,), slurm, "root")
    (host,) = fleet.hosts
    assert (fleet.verdict, host.verdict, host.decision.action) == (silent["verdict"], silent["verdict"], Action.NONE)
    assert silent["says"] in host.message
    assert "timed out" in host.message
    assert lines.grouped(fleet)[-1] == silent["count"]
    assert "n1: ok" not in lines.grouped(fleet)


def test_a_controller_out_of_reach_leaves_a_node_as_it_is(controller: Row) -> None:
    answer = Answer(None, "", "") if controller.get("hangs") else Answer(controller["rc"], "", controller["err"])
    why = free._by_drain(answer, "n1", any_drain=True, idle=True)
    assert why is not None
    assert why.startswith("Slurm cannot be asked about node n1")
    assert controller["says"] in why
    assert why.endswith("whether it is free is not known")


@settings(max_examples=200, deadline=None)
@given(WORDS, FLAGS, st.sampled_from(["", "*", "-", "~", "$"]))
def test_a_state_that_is_not_wholly_known_allows_no_step(word: str, flags: list[str], sign: str) -> None:
    found = nodes.Node("n1", states.parse("+".join((word + sign, *flags))))
    made = drains.decide_drain(found, "daemon-absent", None, "root")
    if found.state.unknown_flags or found.state.base.value == "UNSAID" or not found.state.responding:
        assert made.action is Action.REFUSE
    assert (made.reason is None) is (made.action is not Action.DRAIN)


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda each: (
            st.lists(each, max_size=4)
            | st.dictionaries(
                st.sampled_from(["nodes", "name", "state", "gres", "partitions", "reason"]), each, max_size=4
            )
        ),
        max_leaves=12,
    ).map(json.dumps)
)
def test_no_answer_ends_a_reader(text: str) -> None:
    nodes.parse(text)
    try:
        found: Any = json_nodes.parse(text, json_nodes.iso_of)
    except json_nodes.NotJsonError:
        found = None
    assert found is None or isinstance(found.table, nodes.NodeTable)
