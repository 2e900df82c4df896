"""Decisions on drains, by the cases beside this file and by properties; then the steps, against the fake Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet import codes
from mpsfleet.errors import NotInEffect, Refused, UsageError
from mpsfleet.slurm import drains, reasons, states, steps
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.nodes import Node, Reason
from mpsfleet.slurm.steps import Clock, NotAsked, Terms

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

DECISIONS = json.loads(Path(__file__).with_name("cases").joinpath("decisions.json").read_text(encoding="utf-8"))
WEDGED = reasons.build("daemon-wedged", 2)
ROOT = Terms("root")

STATES = st.builds(
    lambda base, flags: states.parse("+".join([base, *sorted(flags)])),
    st.sampled_from([each.value for each in states.Base if each is not states.Base.UNSAID]),
    st.sets(st.sampled_from([*sorted(states.KNOWN_FLAGS), "NEVER_SEEN"]), max_size=4),
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["mpsfleet: reset", "mpsfleet: gpu-lost gpu1", "mpsfleet: reset : reboot issued", "Prolog error"]),
)
NODES = st.builds(
    lambda state, reason: Node("n1", state, reason=reason),
    STATES,
    st.none() | st.builds(Reason, TEXTS, st.sampled_from([None, "root", "alice", "nobody"]), st.none()),
)
CODES = st.sampled_from(sorted(codes.DRAIN_WORDS))


def node_of(case: dict[str, Any]) -> Node:
    reason = None if case["reason"] is None else Reason(case["reason"][0], case["reason"][1], None)
    return Node("n1", states.parse(case["state"]), reason=reason)


@pytest.mark.parametrize("case", DECISIONS["cases"], ids=lambda case: str(case["is"]))
def test_a_drain_is_decided_by_state_and_reason(case: dict[str, Any]) -> None:
    decision = drains.decide_drain(node_of(case), "daemon-wedged", 2, "root")
    assert decision.action.value == case["drain"]
    assert case.get("why", "") in decision.why


@pytest.mark.parametrize("case", DECISIONS["cases"], ids=lambda case: str(case["is"]))
def test_an_undrain_is_decided_by_state_reason_and_user(case: dict[str, Any]) -> None:
    decision = drains.decide_undrain(node_of(case), "root")
    assert decision.action.value == case["undrain"]
    assert case.get("undrain_why", "") in decision.why


@given(NODES, CODES)
def test_a_drain_never_goes_over_one_that_is_there(node: Node, code: str) -> None:
    decision = drains.decide_drain(node, code, None, "root")
    assert not (decision.action is Action.DRAIN and node.state.is_drain)


@given(NODES, CODES)
def test_a_drain_never_touches_a_state_that_is_not_known_to_allow_it(node: Node, code: str) -> None:
    if drains.decide_drain(node, code, None, "root").action is Action.DRAIN:
        assert node.state.base.value in ("IDLE", "ALLOCATED", "MIXED")
        assert node.state.flags <= states.HARMLESS_FLAGS | {"COMPLETING"}


@given(NODES, st.sampled_from(["root", "alice", "nobody", None]))
def test_an_undrain_never_lifts_what_is_not_ours(node: Node, who: str | None) -> None:
    if drains.decide_undrain(node, who).action is Action.UNDRAIN:
        assert node.reason is not None
        assert reasons.parse(node.reason.text) is not None
        assert node.reason.user == who != "nobody"
        assert node.state.drained
        assert node.state.flags <= states.HARMLESS_FLAGS | {"DRAIN"}


@given(NODES, CODES)
def test_a_decision_is_the_same_twice_and_says_why(node: Node, code: str) -> None:
    assert drains.decide_drain(node, code, 1, "root") == drains.decide_drain(node, code, 1, "root")
    assert drains.decide_drain(node, code, 1, "root").why.isprintable()
    assert drains.decide_undrain(node, "root").why.isprintable()


@given(NODES, CODES)
def test_once_drained_there_is_nothing_more_to_do(node: Node, code: str) -> None:
    decision = drains.decide_drain(node, code, None, "root")
    if decision.action is Action.DRAIN:
        state = states.parse(f"{node.state.raw}+DRAIN")
        after = Node("n1", state, reason=Reason(str(decision.reason), "root", None))
        assert drains.decide_drain(after, code, None, "root").action is Action.NONE


def test_a_code_that_drains_nothing_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="never drains"):
        drains.decide_drain(Node("n1", states.parse("IDLE")), "directory-mode", None, "root")


def test_a_drain_is_done_and_verified(slurm: FakeSlurm) -> None:
    slurm.add("n1", "MIXED")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, ROOT)
    assert (outcome.action, outcome.changed, outcome.exit_code) == (Action.DRAIN, True, 0)
    assert slurm.node("n1") == ("MIXED+DRAIN", "mpsfleet: daemon-wedged gpu2")
    assert outcome.after is not None
    assert outcome.after.state.draining


def test_a_second_drain_changes_nothing(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: daemon-wedged gpu2")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, ROOT)
    assert (outcome.action, outcome.changed, outcome.exit_code) == (Action.NONE, False, 0)
    assert slurm.updates() == []


def test_a_foreign_drain_is_refused_and_untouched(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "Kill task failed", user="slurm")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, ROOT)
    assert isinstance(outcome.error, Refused)
    assert outcome.exit_code == 75
    assert slurm.updates() == []


def test_a_dry_run_decides_and_writes_nothing(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, Terms("root", dry_run=True))
    assert (outcome.action, outcome.changed, outcome.after) == (Action.DRAIN, True, None)
    assert slurm.updates() == []


@pytest.mark.parametrize("name", ["ALL", "n[1-2]", "n1,n2", "-n1", "", "n1 State=DOWN"])
def test_a_list_of_nodes_never_reaches_scontrol(slurm: FakeSlurm, name: str) -> None:
    slurm.add("n1")
    slurm.add("n2")
    assert steps.drain(slurm.door(), name, WEDGED, ROOT).exit_code == 75
    assert steps.undrain(slurm.door(), name, ROOT).exit_code == 75
    assert slurm.calls() == []


def test_a_node_unknown_to_slurm_is_refused(slurm: FakeSlurm) -> None:
    outcome = steps.drain(slurm.door(), "n9", WEDGED, ROOT)
    assert isinstance(outcome.error, Refused)
    assert "knows no node n9" in str(outcome.error)


def test_another_cluster_is_refused_before_anything_else(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, Terms("root", cluster="prod"))
    assert isinstance(outcome.error, Refused)
    assert [each["words"] for each in slurm.calls()] == [["show", "config"]]


def test_the_right_cluster_is_let_pass(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert steps.drain(slurm.door(), "n1", WEDGED, Terms("root", cluster="lab")).changed


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("without effect", "not in effect"),
        ("no permission", "Invalid user id"),
        ("somebody is faster", "somebody else"),
    ],
)
def test_a_drain_without_effect_is_said(slurm: FakeSlurm, mode: str, words: str) -> None:
    slurm.add("n1")
    slurm.write(mode=mode)
    outcome = steps.drain(slurm.door(), "n1", WEDGED, ROOT)
    assert isinstance(outcome.error, NotInEffect)
    assert outcome.exit_code == 2
    assert words in str(outcome.error)


def test_a_drain_that_scontrol_did_not_end_is_judged_by_reading_again(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.write(mode="silent at updates")
    outcome = steps.drain(slurm.door(timeout_s=0.5), "n1", WEDGED, ROOT)
    assert isinstance(outcome.error, NotInEffect)
    assert "did not end within 0.5 s" in str(outcome.error)


@pytest.mark.parametrize("mode", ["refused", "silent", "endless", "binary"])
def test_a_slurm_that_cannot_be_asked_changes_nothing(slurm: FakeSlurm, mode: str) -> None:
    slurm.add("n1")
    slurm.write(mode=mode)
    outcome = steps.drain(slurm.door(timeout_s=1), "n1", WEDGED, ROOT)
    assert isinstance(outcome.error, NotAsked)
    assert outcome.exit_code == 3
    assert slurm.updates() == []


def test_an_undrain_gives_our_node_back(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    outcome = steps.undrain(slurm.door(), "n1", ROOT)
    assert (outcome.action, outcome.changed, outcome.exit_code) == (Action.UNDRAIN, True, 0)
    assert slurm.node("n1") == ("IDLE", None)
    assert [each[2] for each in slurm.updates()] == ["State=UNDRAIN"]


def test_an_undrain_leaves_no_reason_of_ours_behind_where_slurm_keeps_reasons(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    slurm.write(mode="keeps reasons")
    assert steps.undrain(slurm.door(), "n1", ROOT).exit_code == 0
    assert slurm.node("n1") == ("IDLE", "undrained by mpsfleet")


def test_an_undrain_without_effect_is_said(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    slurm.write(mode="without effect")
    assert isinstance(steps.undrain(slurm.door(), "n1", ROOT).error, NotInEffect)


class Passing:
    """A clock that changes the fake cluster at a given second."""

    def __init__(self, slurm: FakeSlurm, at_s: float, **changes: Any) -> None:
        self.seconds, self.slurm, self.at_s, self.changes = 0.0, slurm, at_s, changes

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        if self.seconds < self.at_s <= self.seconds + seconds:
            self.slurm.write(**self.changes)
        self.seconds += seconds


def drained_node(state: str, reason: str = "mpsfleet: daemon-wedged gpu2") -> dict[str, Any]:
    return {"n1": {"state": state, "reason": reason}}


def waited(slurm: FakeSlurm, wait_s: float, passing: Passing) -> steps.Outcome:
    slurm.add("n1", "MIXED")
    outcome = steps.drain(slurm.door(), "n1", WEDGED, ROOT)
    return steps.wait_until_free(slurm.door(), outcome, wait_s, passing.clock())


def test_a_wait_ends_when_the_last_job_has_gone(slurm: FakeSlurm) -> None:
    passing = Passing(slurm, 3, nodes=drained_node("IDLE+DRAIN"))
    outcome = waited(slurm, 60, passing)
    assert (outcome.error, outcome.changed) == (None, True)
    assert passing.seconds < 10


def test_a_wait_that_is_over_is_refused_and_the_node_stays_drained(slurm: FakeSlurm) -> None:
    passing = Passing(slurm, 1e9)
    outcome = waited(slurm, 30, passing)
    assert isinstance(outcome.error, Refused)
    assert (outcome.changed, passing.seconds) == (True, 30)
    assert slurm.node("n1")[0] == "MIXED+DRAIN"


def test_a_completing_node_is_not_free(slurm: FakeSlurm) -> None:
    outcome = waited(slurm, 5, Passing(slurm, 1, nodes=drained_node("IDLE+COMPLETING+DRAIN")))
    assert isinstance(outcome.error, Refused)


def test_a_wait_ends_when_somebody_takes_the_drain_over(slurm: FakeSlurm) -> None:
    passing = Passing(slurm, 2, nodes=drained_node("MIXED+DRAIN", "mine now"))
    outcome = waited(slurm, 60, passing)
    assert isinstance(outcome.error, Refused)
    assert passing.seconds < 10


def test_a_wait_outlives_a_restart_of_slurmctld(slurm: FakeSlurm) -> None:
    slurm.write(mode="")
    passing = Passing(slurm, 2, mode="refused")
    outcome = waited(slurm, 8, passing)
    assert isinstance(outcome.error, NotAsked)
    assert passing.seconds == 8


def test_a_refused_drain_is_not_waited_for(slurm: FakeSlurm) -> None:
    slurm.add("n1", "DOWN")
    passing = Passing(slurm, 1e9)
    outcome = steps.wait_until_free(slurm.door(), steps.drain(slurm.door(), "n1", WEDGED, ROOT), 30, passing.clock())
    assert (outcome.exit_code, passing.seconds) == (75, 0)


def test_an_undrain_waits_for_the_node_to_register(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    slurm.write(mode="registers later")
    passing = Passing(slurm, 0.3, nodes={"n1": {"state": "IDLE", "reason": None}})
    outcome = steps.undrain(slurm.door(), "n1", ROOT, passing.clock())
    assert outcome.after is not None
    assert (outcome.after.state.raw, passing.seconds) == ("IDLE", 0.4)


def test_an_undrained_node_that_does_not_register_is_undrained_all_the_same(slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    slurm.write(mode="registers later")
    passing = Passing(slurm, 1e9)
    outcome = steps.undrain(slurm.door(), "n1", ROOT, passing.clock())
    assert (outcome.exit_code, outcome.changed) == (0, True)
    assert passing.seconds < 4
