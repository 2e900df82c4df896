"""The policy: failures and recoveries in a row, strikes and hand-over, and what holds whatever happens to a cluster."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.slurm.test_slurm_verdict import finding, judge, known, reported, view

from mpsfleet import codes
from mpsfleet.slurm import drains, policy, reasons, states
from mpsfleet.slurm.budget import Budget, Limit
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.ledger import DRAINED, FOUND, RELEASED, UNDRAINED, Entry, Event, Ledger, noted
from mpsfleet.slurm.nodes import Node, Reason
from mpsfleet.slurm.policy import HOLD_S, ROW_S, STRIKE_S, Policy
from mpsfleet.slurm.reports import Garbage, HostReport

if TYPE_CHECKING:
    from mpsfleet.slurm.verdict import Decision, FleetVerdict

T = 1_796_000_000.0
DAY_S = 86400.0
NO_LIMIT = Limit(100, is_percent=True)
ANY_NUMBER = Budget(NO_LIMIT, NO_LIMIT, Limit(10_000))
UNLIMITED = Policy(budget=ANY_NUMBER)
OURS = "mpsfleet: gpu-lost gpu2"
WEDGED = finding("daemon-wedged")


class Cluster:
    """One node n1 in Slurm, whose audits come one after the other, with the decisions carried out as Slurm would."""

    def __init__(self, node: Node, rules: Policy = UNLIMITED) -> None:
        self.node, self.rules = node, rules
        self.ledger, self.now = Ledger("lab"), T

    def audit(self, report: HostReport, after_s: float = 60.0) -> Decision:
        """Judge one report and carry the decision out."""
        self.now += after_s
        fleet = judge([report], view(self.node))
        fleet, self.ledger = policy.weigh(fleet, self.ledger, self.rules, "root", self.now)
        decision = fleet.hosts[0].decision
        if decision.action is Action.DRAIN:
            self.slurm("IDLE+DRAIN", str(decision.reason))
            self.ledger = noted(self.ledger, "n1", DRAINED, decision.reason, (self.now, "", "verdict"))
        elif decision.action is Action.UNDRAIN:
            self.slurm("IDLE")
            self.ledger = noted(self.ledger, "n1", UNDRAINED, decision.reason, (self.now, "", "verdict"))
        return decision

    def slurm(self, state: str, reason: str | None = None) -> None:
        """Change the node as Slurm has it."""
        self.node = known("n1", state, reason)

    def events(self) -> list[str]:
        return [each.what for each in self.ledger.entry("n1").events]


FAILS, IS_WELL = reported("n1", finding()), reported("n1")
UNASKED = HostReport("n1", "n1", None, "unreachable: timed out")


def test_what_one_look_can_see_wrongly_drains_at_the_second_in_a_row() -> None:
    lab = Cluster(known("n1"))
    first = lab.audit(reported("n1", WEDGED))
    assert (first.action, first.why) == (
        Action.NONE,
        "Found failing once; it is drained when 2 audits in a row find it so.",
    )
    assert lab.audit(reported("n1", WEDGED)).action is Action.DRAIN


@pytest.mark.parametrize("code", sorted({each.code for each in codes.CODES if each.drain} - codes.TWICE))
def test_what_is_certain_drains_at_once(code: str) -> None:
    assert Cluster(known("n1")).audit(reported("n1", finding(code))).action is Action.DRAIN


def test_an_audit_that_finds_it_well_ends_the_row() -> None:
    lab = Cluster(known("n1"))
    actions = [lab.audit(each).action for each in (reported("n1", WEDGED), IS_WELL, reported("n1", WEDGED))]
    assert actions == [Action.NONE] * 3


def test_an_audit_without_an_answer_neither_counts_nor_ends_the_row() -> None:
    lab = Cluster(known("n1"))
    given = [reported("n1", WEDGED), UNASKED, UNASKED, reported("n1", WEDGED)]
    assert [lab.audit(each).action for each in given] == [Action.NONE, Action.NONE, Action.NONE, Action.DRAIN]


def test_audits_far_apart_are_not_in_a_row() -> None:
    lab = Cluster(known("n1"))
    lab.audit(reported("n1", WEDGED))
    assert lab.audit(reported("n1", WEDGED), ROW_S + 1).action is Action.NONE


@pytest.mark.parametrize("after", [1, 3])
def test_a_site_may_say_how_often(after: int) -> None:
    lab = Cluster(known("n1"), Policy(budget=ANY_NUMBER, after=after))
    actions = [lab.audit(reported("n1", WEDGED)).action for _ in range(after)]
    assert actions == [Action.NONE] * (after - 1) + [Action.DRAIN]


def test_a_node_is_given_back_after_two_audits_in_a_row_that_find_it_well() -> None:
    lab = Cluster(known("n1"))
    lab.audit(FAILS)
    told = lab.audit(IS_WELL)
    assert (told.action, told.why) == (
        Action.NONE,
        "Found well once; it is given back when 2 audits in a row find it so.",
    )
    assert [lab.audit(each).action for each in (UNASKED, IS_WELL)] == [Action.NONE, Action.NONE]
    assert lab.audit(IS_WELL).action is Action.UNDRAIN
    assert lab.events() == [DRAINED, UNDRAINED]


@pytest.mark.parametrize(
    ("state", "part"),
    [
        ("MIXED+DRAIN", "A job is still on the node"),
        ("IDLE+COMPLETING+DRAIN", "A job is still on the node"),
        ("IDLE+DRAIN+MAINTENANCE", "maintenance"),
        ("IDLE+DRAIN+REBOOT_REQUESTED", "reboot"),
        ("IDLE+DRAIN+POWERING_DOWN", "power"),
        ("DOWN+DRAIN", "is DOWN"),
        ("IDLE+DRAIN+NOT_RESPONDING", "does not respond"),
        ("IDLE+DRAIN+SOMETHING_NEW", "does not know"),
    ],
)
def test_nothing_is_given_back_before_it_is_free_or_in_a_state_of_somebody_elses(state: str, part: str) -> None:
    lab = Cluster(known("n1", state, OURS))
    for _ in range(3):
        told = lab.audit(IS_WELL)
        assert told.action is Action.NONE
        assert part in told.why


def test_a_resets_own_drain_is_left_to_the_one_who_resets() -> None:
    lab = Cluster(known("n1", "IDLE+DRAIN", "mpsfleet: reset"))
    assert {lab.audit(IS_WELL).action for _ in range(4)} == {Action.NONE}


def test_a_node_that_flaps_stays_out_longer_and_is_then_handed_over() -> None:
    lab = Cluster(known("n1"))
    assert lab.audit(FAILS).action is Action.DRAIN
    assert [lab.audit(IS_WELL).action for _ in range(2)] == [Action.NONE, Action.UNDRAIN]
    assert lab.audit(FAILS).action is Action.DRAIN

    held = [lab.audit(IS_WELL) for _ in range(3)]
    assert {each.action for each in held} == {Action.NONE}
    assert held[-1].why == "It was drained twice in a week, so it stays out 27 minutes more."
    assert lab.audit(IS_WELL, HOLD_S).action is Action.UNDRAIN

    third = lab.audit(FAILS)
    assert (third.action, str(third.reason)) == (Action.DRAIN, "mpsfleet: flapping gpu2")
    assert "drain number 3 in a week, this time for gpu-lost" in third.why
    later = [lab.audit(IS_WELL, DAY_S) for _ in range(20)]
    assert {each.action for each in later} == {Action.NONE}
    assert "a person is to find out why" in later[-1].why


def test_a_handed_over_node_stays_so_where_the_ledger_is_lost() -> None:
    lab = Cluster(known("n1", "IDLE+DRAIN", "mpsfleet: flapping gpu2"))
    assert {lab.audit(IS_WELL, HOLD_S).action for _ in range(5)} == {Action.NONE}


def test_drains_of_long_ago_do_not_count() -> None:
    lab = Cluster(known("n1"))
    for _ in range(4):
        assert lab.audit(FAILS).reason == reasons.DrainReason("gpu-lost", 2)
        lab.audit(IS_WELL)
        assert lab.audit(IS_WELL).action is Action.UNDRAIN
        lab.now += STRIKE_S


def test_strikes_can_be_turned_off() -> None:
    lab = Cluster(known("n1"), Policy(budget=ANY_NUMBER, strikes=0))
    for number in range(6):
        assert lab.audit(FAILS).reason == reasons.DrainReason("gpu-lost", 2)
        lab.audit(IS_WELL)
        assert lab.audit(IS_WELL, policy.hold_s(number + 1)).action is Action.UNDRAIN


@pytest.mark.parametrize(("strikes", "minutes"), [(0, 0), (1, 0), (2, 30), (3, 60), (4, 120), (100, 30 * 2**16)])
def test_the_time_out_of_service_doubles(strikes: int, minutes: float) -> None:
    assert policy.hold_s(strikes) == minutes * 60


@pytest.mark.parametrize("code", ["gpu-lost", "daemon-wedged"])
def test_a_lost_ledger_costs_the_counts_and_no_drain(code: str) -> None:
    lab = Cluster(known("n1", "IDLE+DRAIN", f"mpsfleet: {code}"))
    lab.audit(IS_WELL)
    assert lab.events() == [FOUND]
    lab.ledger = Ledger("lab")
    assert [lab.audit(IS_WELL).action for _ in range(2)] == [Action.NONE, Action.UNDRAIN]


def test_a_drain_of_slurms_own_that_bears_an_old_reason_of_ours_is_left_alone() -> None:
    lab = Cluster(known("n1"))
    lab.audit(FAILS)
    set_at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(lab.now))
    lab.slurm("IDLE", OURS)  # resumed by a person, on a Slurm that leaves the reason
    lab.audit(IS_WELL, 10)
    old = dataclasses.replace(known("n1", "IDLE+DRAIN", OURS), reason=Reason(OURS, "root", set_at))
    lab.node = old  # "Prolog error", in the old words
    told = [lab.audit(IS_WELL) for _ in range(4)]
    assert {each.action for each in told} == {Action.NONE}
    assert "of a drain of mpsfleet's that is over" in told[-1].why
    assert lab.events() == [DRAINED, RELEASED]


@pytest.mark.parametrize(("state", "reason"), [("IDLE", None), ("IDLE+DRAIN", "my own reasons"), ("MIXED", None)])
def test_who_ends_or_changes_our_drain_of_a_failing_node_is_not_fought(state: str, reason: str | None) -> None:
    lab = Cluster(known("n1"))
    lab.audit(FAILS)
    lab.slurm(state, reason)
    told = [lab.audit(each) for each in (FAILS, UNASKED, FAILS)]
    lab.slurm("IDLE")
    told += [lab.audit(FAILS, DAY_S) for _ in range(3)]
    assert {each.action for each in told} == {Action.NONE}
    assert "is left as they have it" in told[-1].why
    lab.audit(IS_WELL)
    assert lab.audit(FAILS).action is Action.DRAIN


def test_a_drain_that_others_ended_is_written_down_and_counts_as_a_strike() -> None:
    lab = Cluster(known("n1"))
    lab.audit(FAILS)
    lab.slurm("IDLE")
    lab.audit(IS_WELL)
    assert lab.events() == [DRAINED, RELEASED]
    lab.audit(FAILS)
    assert len(lab.ledger.entry("n1").drains_since(T)) == 2


def test_a_reason_to_which_a_reboot_added_is_nobody_elses_to_end() -> None:
    lab = Cluster(known("n1"))
    lab.audit(FAILS)
    lab.slurm("IDLE+DRAIN", f"{OURS} : reboot issued")
    assert {lab.audit(IS_WELL).action for _ in range(4)} == {Action.NONE}
    assert lab.events() == [DRAINED, RELEASED]


def test_a_drain_of_another_user_in_our_words_is_left_to_that_user() -> None:
    node = dataclasses.replace(known("n1", "IDLE+DRAIN", OURS), reason=Reason(OURS, "mallory", None))
    lab = Cluster(node)
    told = [lab.audit(IS_WELL) for _ in range(3)]
    assert {each.action for each in told} == {Action.NONE}
    assert "set by mallory" in told[-1].why


def test_what_a_node_published_counts_once() -> None:
    lab = Cluster(known("n1"))
    published = reported("n1", WEDGED)._replace(stamp=int(T))
    assert {lab.audit(published).action for _ in range(5)} == {Action.NONE}
    assert lab.audit(published._replace(stamp=int(T) + 60, times=2)).action is Action.DRAIN


def test_what_a_node_published_before_it_was_drained_does_not_bring_it_back() -> None:
    lab = Cluster(known("n1"))
    old = IS_WELL._replace(stamp=int(T), times=3)
    lab.audit(FAILS)
    assert {lab.audit(old).action for _ in range(3)} == {Action.NONE}
    assert lab.audit(old._replace(stamp=int(lab.now) + 60)).action is Action.UNDRAIN


@pytest.mark.parametrize("jump_s", [-10 * DAY_S, 10 * DAY_S, -T])
def test_a_clock_that_jumps_drains_nothing_and_brings_nothing_back_early(jump_s: float) -> None:
    lab = Cluster(known("n1"))
    lab.audit(reported("n1", WEDGED))
    assert lab.audit(IS_WELL, jump_s).action is Action.NONE
    lab.now = T
    for _ in range(2):
        lab.audit(FAILS)
        if len(lab.ledger.entry("n1").drains_since(0)) < 2:
            lab.slurm("IDLE")
            lab.audit(IS_WELL)
    assert lab.audit(IS_WELL, min(jump_s, 0)).action is Action.NONE
    assert lab.audit(IS_WELL).action is Action.NONE  # the second drain keeps it out


def test_drains_of_an_hour_have_a_limit_of_their_own() -> None:
    names = [f"n{number}" for number in range(12)]
    past = {
        f"m{number}": Entry(events=(Event(T - 60, DRAINED, OURS), Event(T - 30, UNDRAINED, OURS)))
        for number in range(3)
    }
    fleet = judge([reported(each, finding()) for each in names], view(*map(known, [*names, *past])))
    limits = Budget(NO_LIMIT, NO_LIMIT, Limit(5))
    weighed, _ = policy.weigh(fleet, Ledger("lab", past), Policy(budget=limits), "root", T)

    drained = [each.host for each in weighed.hosts if each.decision.action is Action.DRAIN]
    assert drained == ["n0", "n1"]
    [*_, last] = weighed.hosts
    assert "drains at most 5 of the cluster's GPU nodes in an hour, and has drained 5" in last.decision.why
    later, _ = policy.weigh(fleet, Ledger("lab", past), Policy(budget=limits), "root", T + 3600)
    assert sum(each.decision.action is Action.DRAIN for each in later.hosts) == 5


def test_a_slurm_that_could_not_be_asked_changes_no_count() -> None:
    kept = Ledger("lab", {"n1": Entry(failing=1, at=T)})
    fleet = judge([FAILS], view(error="slurmctld could not be asked."))
    assert policy.weigh(fleet, kept, Policy(), "root", T) == (fleet, kept)


# What holds whatever happens

NAMES = tuple(f"n{number}" for number in range(7))
FOREIGN = ("Kill task failed", "Prolog error", f"{OURS} : reboot issued", f"{OURS} x", "mpsfleet: ", "mpsfleet: nonsense", "",
           reasons.GIVEN_BACK)  # fmt: skip
FLAGS = (
    "",
    "+MAINTENANCE",
    "+REBOOT_REQUESTED",
    "+POWERED_DOWN",
    "+NOT_RESPONDING",
    "+COMPLETING",
    "+INVALID_REG",
    "+NEW_FLAG",
)
LIMITS = st.integers(0, 5).map(Limit)


def said(name: str, how: str) -> HostReport:
    """Give a host's report of one kind."""
    kinds: dict[str, Any] = {
        "fails": reported(name, finding()),
        "wedged": reported(name, WEDGED),
        "user": reported(name, finding(origin="user")),
        "well": reported(name),
        "warn": reported(name, finding("directory-unprotected", "warn")),
        "garbage": HostReport(name, name, Garbage("it is not sound JSON")),
        "unreachable": HostReport(name, name, None, "unreachable: timed out"),
        "other": reported(name, finding(), node="ALL"),
    }
    return kinds[how]  # type: ignore[no-any-return]


def undrained(fleet: FleetVerdict) -> set[str]:
    return {each.host for each in fleet.hosts if each.decision.action is Action.UNDRAIN}


CERTAINLY_FAILING = ("fails", "wedged")


class Anything(RuleBasedStateMachine):
    """A cluster in which people, reboots, faults and runs of ours come in any order."""

    @initialize(
        cluster=LIMITS, partition=LIMITS, hour=LIMITS, after=st.none() | st.integers(1, 2), well=st.integers(1, 2)
    )
    def begin(self, cluster: Limit, partition: Limit, hour: Limit, after: int | None, well: int) -> None:
        self.policy = Policy(Budget(cluster, partition, hour), after, well)
        self.nodes = {each: known(each, partitions=("p" if each < "n4" else "q",)) for each in NAMES}
        self.ledger, self.now = Ledger("lab"), T
        self.ours: set[str] = set()  # drained by a run of ours, and not changed by anybody since
        self.overruled: set[str] = set()  # somebody changed that, and no audit since has found the node well

    def change(self, name: str, state: str, reason: str | None) -> None:
        told = None if reason is None else Reason(reason, "root", None)
        self.nodes[name] = dataclasses.replace(self.nodes[name], state=states.parse(state), reason=told)
        if name in self.ours:
            self.overruled.add(name)
        self.ours.discard(name)

    @rule(name=st.sampled_from(NAMES), reason=st.sampled_from(FOREIGN), base=st.sampled_from(["IDLE", "MIXED", "DOWN"]))
    def somebody_drains(self, name: str, reason: str, base: str) -> None:
        self.change(name, f"{base}+DRAIN", reason)

    @rule(name=st.sampled_from(NAMES))
    def somebody_resumes(self, name: str) -> None:
        self.change(name, "IDLE", None)

    @rule(name=st.sampled_from(NAMES), flag=st.sampled_from(FLAGS), base=st.sampled_from(["IDLE", "MIXED", "DOWN"]))
    def the_state_changes(self, name: str, flag: str, base: str) -> None:
        node = self.nodes[name]
        drain = "+DRAIN" if node.state.is_drain else ""
        self.nodes[name] = dataclasses.replace(node, state=states.parse(f"{base}{drain}{flag}"))

    @rule()
    def the_ledger_is_lost(self) -> None:
        self.ledger = Ledger("lab")
        self.overruled.clear()
        self.ours.clear()  # as far as anybody can know, until a run finds them in Slurm

    @rule(seconds=st.sampled_from([1.0, 600.0, 4000.0, 8 * DAY_S, -100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(how=st.sampled_from(["fails", "well"]), times=st.integers(1, 3))
    def runs_that_find_all_alike(self, how: str, times: int) -> None:
        for _ in range(times):
            self.a_run([how] * len(NAMES))

    @rule(hows=st.lists(st.sampled_from(["fails", "wedged", "user", "well", "warn", "garbage", "unreachable", "other"]),
                        min_size=len(NAMES), max_size=len(NAMES)))  # fmt: skip
    def a_run(self, hows: list[str]) -> None:
        self.judge_and_act(hows)

    def judge_and_act(self, hows: list[str]) -> None:
        given = [said(name, how) for name, how in zip(NAMES, hows)]
        fleet = judge(given, view(*self.nodes.values()))
        weighed, kept = policy.weigh(fleet, self.ledger, self.policy, "root", self.now)
        assert policy.weigh(fleet, self.ledger, self.policy, "root", self.now) == (weighed, kept)
        self._check(weighed, dict(zip(NAMES, hows)))
        self.ours |= {name for name in NAMES if kept.entry(name).is_drained}
        nothing = self.policy._replace(budget=Budget(Limit(0), Limit(0), Limit(0)))
        spent, _ = policy.weigh(fleet, self.ledger, nothing, "root", self.now)
        assert undrained(spent) == undrained(weighed)  # the way back is never bound by the budget
        if set(hows) == {"well"}:
            assert not any(each.decision.action is Action.DRAIN for each in weighed.hosts)
        for host in weighed.hosts:
            name, decision = host.host, host.decision
            node = self.nodes[name]
            if decision.action is Action.DRAIN:
                base = "+".join([node.state.base.value, *sorted(node.state.flags), "DRAIN"])
                self.change(name, base, str(decision.reason))
                self.ours.add(name)
                kept = noted(kept, name, DRAINED, decision.reason, (self.now, "", "verdict"))
            elif decision.action is Action.UNDRAIN:
                self.ours.discard(name)
                self.change(name, "IDLE", reasons.GIVEN_BACK)
                kept = noted(kept, name, UNDRAINED, decision.reason, (self.now, "", "verdict"))
        self.overruled -= {name for name, how in zip(NAMES, hows) if how in ("well", "warn")}
        self.ledger = kept

    def _check(self, fleet: FleetVerdict, hows: dict[str, str]) -> None:
        drained = {each.host for each in fleet.hosts if each.decision.action is Action.DRAIN}
        for host in fleet.hosts:
            node = self.nodes[host.host]
            if host.host in drained:
                assert host.host not in self.overruled  # nobody is fought
                assert hows[host.host] in CERTAINLY_FAILING  # unknown, well and a user's doing never drain
                assert not node.state.is_drain  # so no reason that holds a node is ever written over
                assert node.state.base is not states.Base.DOWN
                assert reasons.parse(str(host.decision.reason)) == host.decision.reason
            if host.decision.action is Action.UNDRAIN:
                assert hows[host.host] in ("well", "warn")
                assert drains.our_reason(node) is not None
                assert node.state.drained
        now_out = {name for name, node in self.nodes.items() if drains.our_reason(node) is not None}
        limits = self.policy.budget
        if drained:
            assert len(now_out | drained) <= max(limits.cluster.number, len(now_out))
            for place in ("p", "q"):
                members = {name for name, node in self.nodes.items() if place in node.partitions}
                if members & drained:
                    assert len((now_out | drained) & members) <= limits.partition.number

    @invariant()
    def the_ledger_knows_what_slurm_knows(self) -> None:
        if not hasattr(self, "nodes"):
            return
        for name, entry in self.ledger.entries.items():
            if name in self.ours:
                assert entry.is_drained


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
