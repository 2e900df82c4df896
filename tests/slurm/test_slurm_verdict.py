"""The fleet's verdict and its drains: joined from reports and Slurm's nodes, decided, grouped and carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet import codes
from mpsfleet.slurm import gres, lines, states, trigger, verdict
from mpsfleet.slurm.commands import Unreadable
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.nodes import Node, NodeTable, Problem, Reason
from mpsfleet.slurm.reports import Finding, Garbage, HostReport, Report
from mpsfleet.slurm.verdict import FleetVerdict, SlurmView

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

GRES = gres.parse("gpu:a100:4,mps:a100:400")


def finding(code: str = "gpu-lost", severity: str = "critical", origin: str = "node", **more: Any) -> Finding:
    words = {"subject": "gpu2", "message": f"it is {code}", "evidence": (), "remedy": "their remedy", **more}
    return Finding(code=code, severity=severity, origin=origin, **words)


def reported(name: str, *findings: Finding, node: str | None = None) -> HostReport:
    worst = max((each.severity for each in findings), key=codes.SEVERITIES.index, default="ok")
    return HostReport(name, name, Report(node or name, worst, "0.1.0", findings))


def known(name: str, state: str = "IDLE", reason: str | None = None, **more: Any) -> Node:
    told = None if reason is None else Reason(reason, "root", None)
    return Node(name, states.parse(state), reason=told, **{"gres": GRES, **more})


def view(*nodes: Node, error: str | None = None) -> SlurmView:
    return SlurmView("lab", NodeTable(() if error else nodes, ()), error)


def judge(hosts: list[HostReport], slurm: SlurmView) -> FleetVerdict:
    return verdict.judge(tuple(hosts), slurm, "root")


def test_a_healthy_fleet_is_ok_and_decides_nothing() -> None:
    names = [f"n{number}" for number in range(1, 9)]
    fleet = judge([reported(each) for each in names], view(*map(known, names)))
    assert fleet.verdict == "ok"
    assert {each.decision.action for each in fleet.hosts} == {Action.NONE}
    assert lines.grouped(fleet) == ["n[1-8]: ok", "8 hosts: 8 ok; verdict ok."]


def test_a_critical_finding_of_the_node_drains_it() -> None:
    [host] = judge([reported("n1", finding())], view(known("n1"))).hosts
    assert (host.verdict, host.decision.action, str(host.decision.reason)) == (
        "critical",
        Action.DRAIN,
        "mpsfleet: gpu-lost gpu2",
    )


@pytest.mark.parametrize("origin", ["user", "either"])
def test_what_a_user_can_do_drains_nothing(origin: str) -> None:
    [host] = judge([reported("n1", finding(origin=origin))], view(known("n1"))).hosts
    assert (host.verdict, host.decision.action) == ("critical", Action.NONE)
    assert "user's doing" in host.decision.why


@pytest.mark.parametrize("code", ["directory-mode", "never-heard-of", "ALL", "reset"])
def test_a_code_that_does_not_drain_is_told_and_drains_nothing(code: str) -> None:
    [host] = judge([reported("n1", finding(code))], view(known("n1"))).hosts
    assert (host.verdict, host.decision.action) == ("critical", Action.NONE)
    assert code in host.message


def test_below_critical_nothing_drains() -> None:
    [host] = judge([reported("n1", finding(severity="unknown"))], view(known("n1"))).hosts
    assert (host.verdict, host.decision.action) == ("unknown", Action.NONE)


UNKNOWN = {
    "unreachable": HostReport("n1", "n1", None, "unreachable: timed out"),
    "no report and no error": HostReport("n1", "n1", None),
    "garbage": HostReport("n1", "n1", Garbage("it is not sound JSON")),
    "a report of another node": reported("n1", finding(), node="n2"),
    "a report that calls itself every node": reported("n1", finding(), node="ALL"),
    "a report beside an error": HostReport("n1", "n1", Report("n1", "critical", "0", (finding(),)), "it died"),
    "no node name": HostReport("n1", None, Report("n1", "critical", "0", (finding(),))),
    "a list as the node name": HostReport("n1", "n[1-4]", Report("n[1-4]", "critical", "0", (finding(),))),
}


@pytest.mark.parametrize("given_host", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_drains_nothing(given_host: HostReport) -> None:
    [host] = judge([given_host], view(known("n1"), known("n2"))).hosts
    assert (host.verdict, host.decision.action) == ("unknown", Action.NONE)
    assert "unknown drains nothing" in host.decision.why


def test_two_hosts_that_claim_one_node_are_both_unknown() -> None:
    hosts = [reported("a", finding(), node="n1")._replace(node="n1"), reported("b", node="n1")._replace(node="n1")]
    fleet = judge(hosts, view(known("n1")))
    assert [each.verdict for each in fleet.hosts] == ["unknown", "unknown"]
    assert [each.decision.action for each in fleet.hosts] == [Action.NONE, Action.NONE]


def test_a_host_named_twice_is_unknown() -> None:
    fleet = judge([reported("n1", finding()), reported("n1")._replace(node="n2")], view(known("n1"), known("n2")))
    assert [each.verdict for each in fleet.hosts] == ["unknown", "unknown"]


def test_a_slurm_not_asked_is_unknown_once_and_drains_nothing() -> None:
    hosts = [reported("n1", finding()), reported("n2")]
    fleet = judge(hosts, view(error="slurmctld could not be asked."))
    assert (fleet.verdict, [each.verdict for each in fleet.hosts]) == ("critical", ["critical", "ok"])
    assert {each.decision.action for each in fleet.hosts} == {Action.NONE}
    assert sum("slurm: unknown:" in each for each in lines.grouped(fleet)) == 1
    assert judge([reported("n2")], view(error="x")).verdict == "unknown"


def test_another_cluster_is_not_used() -> None:
    slurm = verdict.view_of("prod", NodeTable((known("n1"),), ()), "lab")
    assert slurm.error is not None
    assert judge([reported("n1", finding())], slurm).hosts[0].decision.action is Action.NONE


def test_no_host_at_all_is_unknown() -> None:
    fleet = judge([], view(known("n1")))
    assert fleet.verdict == "unknown"
    assert "0 hosts" in lines.grouped(fleet)[-1]


def test_a_node_unknown_to_slurm_names_the_variable_and_the_likely_name() -> None:
    fleet = judge([reported("gpu-a", finding())], view(known("n1", hostname="gpu-a")))
    [host] = fleet.hosts
    assert (host.verdict, host.decision.action) == ("critical", Action.NONE)
    [line] = [each for each in lines.grouped(fleet) if "mps_slurm_node_name" in each]
    assert line.startswith("gpu-a: unknown: slurmctld knows no node")
    assert "perhaps n1" in line


def test_a_node_whose_record_is_garbled_is_unknown_and_not_drained() -> None:
    slurm = SlurmView("lab", NodeTable((), (Problem("n1", "State", "the record is not understood"),)))
    [host] = judge([reported("n1", finding())], slurm).hosts
    assert host.decision.action is Action.NONE
    assert [each.severity for each in host.notices] == ["critical", "unknown"]


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ("gpu:4", "gpu:4,mps:400", "warn"),
        ("", "gpu:4", "warn"),
        ("gpu:4", "gpu:4", "ok"),
        ("gpu:4,shard:8", "gpu:4", "ok"),
    ],
)
def test_a_node_that_lacks_mps_is_drift_where_the_others_have_it(own: str, others: str, expected: str) -> None:
    nodes = (known("n1", gres=gres.parse(own)), known("n2", gres=gres.parse(others)))
    fleet = judge([reported("n1"), reported("n2")], view(*nodes))
    assert fleet.hosts[0].verdict == expected
    assert fleet.hosts[0].notices


def test_a_clean_node_that_is_still_drained_by_us_is_told() -> None:
    fleet = judge([reported("n1")], view(known("n1", "IDLE+DRAIN", "mpsfleet: reset")))
    assert fleet.verdict == "ok"
    assert any("still drained by mpsfleet (mpsfleet: reset)" in each for each in lines.grouped(fleet))


def test_a_foreign_drain_stays() -> None:
    [host] = judge([reported("n1", finding())], view(known("n1", "IDLE+DRAIN", "Kill task failed"))).hosts
    assert host.decision.action is Action.NONE
    assert "another reason" in host.decision.why


def test_the_reason_is_the_first_by_the_table_and_the_lowest_gpu() -> None:
    found = [
        finding("gpu-lost", subject="gpu3"),
        finding("gpu-lost", subject="gpu1"),
        finding("gpu-error", subject="gpu0"),
    ]
    for order in (found, found[::-1]):
        [host] = judge([reported("n1", *order)], view(known("n1"))).hosts
        assert str(host.decision.reason) == "mpsfleet: gpu-lost gpu1"


@pytest.mark.parametrize(
    ("subject", "evidence", "reason"),
    [
        ("gpu2", (), "mpsfleet: gpu-lost gpu2"),
        ("GPU 2 of the node", (), "mpsfleet: gpu-lost gpu2"),
        ("GPU-8f2a", (("index", "5"),), "mpsfleet: gpu-lost gpu5"),
        ("GPU-8f2a", (), "mpsfleet: gpu-lost"),
        ("gpu99999", (), "mpsfleet: gpu-lost"),
        ("gpu2\nReason=x", (), "mpsfleet: gpu-lost gpu2"),
        ("x", (("gpu", "1; rm"),), "mpsfleet: gpu-lost"),
    ],
)
def test_a_reason_holds_fixed_words_and_an_index(
    subject: str, evidence: tuple[tuple[str, str], ...], reason: str
) -> None:
    [host] = judge([reported("n1", finding(subject=subject, evidence=evidence))], view(known("n1"))).hosts
    assert str(host.decision.reason) == reason


def test_equal_sentences_are_said_once_and_the_worst_first() -> None:
    names = [f"n{number}" for number in (1, 2, 3, 7)]
    hosts = [reported(each, finding("daemon-absent", message="no daemon runs")) for each in names]
    hosts += [reported("n4", finding("percentage-tampered", "warn", "user", message="it was changed"))]
    hosts += [HostReport("n5", "n5", None, "unreachable: timed out"), reported("n6")]
    fleet = judge(hosts, view(*[known(f"n{number}") for number in range(1, 8)]))
    told = lines.grouped(trigger.only_told(fleet, Action.DRAIN, "trigger_drain is off"))
    assert told == [
        "n[1-3,7]: critical: no daemon runs [daemon-absent]. " + codes.BY_NAME["daemon-absent"].remedy,
        "n5: unknown: The node could not be asked: unreachable: timed out. Audit the node again; look at how it is reached.",
        "n4: warn: it was changed [percentage-tampered]. " + codes.BY_NAME["percentage-tampered"].remedy,
        "n[1-3,7]: drain, not done: Would drain (trigger_drain is off).",
        "n6: ok",
        "7 hosts: 4 critical, 1 unknown, 1 warn, 1 ok; verdict critical.",
    ]


def test_a_remedy_is_said_once() -> None:
    hosts = [
        reported("n1", finding("gpu-lost", message="lost")),
        reported("n2", finding("gpu-missing", message="gone")),
    ]
    told = "\n".join(lines.grouped(judge(hosts, view(known("n1"), known("n2")))))
    assert told.count(codes.BY_NAME["gpu-lost"].remedy) == 1


HOSTILE = "\x1b[2J\n\u202en2: ok\r\ud800" + "x" * 500


def test_hostile_text_reaches_no_line_and_no_json() -> None:
    hostile = finding("no-such-code", message=HOSTILE, remedy=HOSTILE, subject=HOSTILE)
    hosts = [reported("n1", hostile), HostReport("n2", "n2", None, HOSTILE), reported("n3", node=HOSTILE)]
    hosts += [HostReport("n4", HOSTILE, None, None), HostReport(HOSTILE, "n5", None, None)]
    nodes = [known("n1", "IDLE+DRAIN", HOSTILE), known("n2"), known("n3")]
    fleet = judge(hosts, view(*nodes))
    assert [each for each in lines.grouped(fleet) if not each.isprintable()] == []
    assert [each for each in texts(lines.as_json(fleet, changed=False)) if not each.isprintable()] == []


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [each for inner in value.values() for each in texts(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in texts(inner)]
    return [value] if isinstance(value, str) else []


FINDINGS = st.builds(
    finding,
    st.sampled_from([*sorted(codes.BY_NAME), "never-heard-of"]),
    st.sampled_from(codes.SEVERITIES),
    st.sampled_from(["node", "user", "either"]),
)
HOSTS = st.lists(
    st.one_of(
        st.builds(
            lambda number, found: reported(f"n{number}", *found), st.integers(0, 6), st.lists(FINDINGS, max_size=3)
        ),
        st.builds(lambda number: HostReport(f"n{number}", f"n{number}", Garbage("x")), st.integers(0, 6)),
        st.builds(lambda number: HostReport(f"n{number}", f"n{number}", None, "unreachable"), st.integers(0, 6)),
    ),
    max_size=6,
)
SLURMS = st.builds(
    lambda made: view(*{each.name: each for each in made}.values()),
    st.lists(
        st.builds(
            known,
            st.sampled_from([f"n{number}" for number in range(6)]),
            st.sampled_from(["IDLE", "MIXED", "IDLE+DRAIN", "DOWN", "IDLE+MAINTENANCE", "IDLE+X"]),
            st.sampled_from([None, "mpsfleet: reset", "Kill task failed"]),
        ),
    ),
) | st.just(view(error="x"))


@given(HOSTS, SLURMS)
def test_only_proven_node_faults_on_drainable_nodes_are_drained(hosts: list[HostReport], slurm: SlurmView) -> None:
    fleet = judge(hosts, slurm)
    assert fleet == judge(hosts, slurm)
    for given_host, host in zip(hosts, fleet.hosts):
        if host.decision.action is Action.DRAIN:
            assert slurm.error is None
            assert isinstance(given_host.report, Report)
            assert any(
                each.severity == "critical" and each.origin == "node" and codes.BY_NAME[each.code].drain
                for each in given_host.report.findings
                if each.code in codes.BY_NAME
            )
            node = slurm.table.node(given_host.node or "")
            assert node is not None
            assert node.state.raw in ("IDLE", "MIXED")
        assert codes.SEVERITIES.index(fleet.verdict) >= codes.SEVERITIES.index(host.verdict)


def fleet_of(slurm: FakeSlurm, hosts: list[HostReport]) -> FleetVerdict:
    door = slurm.door()
    table = door.show_nodes()
    assert not isinstance(table, Unreadable)
    return judge(hosts, verdict.view_of(door.cluster_name(), table, "lab"))


def test_the_trigger_drains_what_was_decided_and_nothing_else(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2")
    slurm.add("n3", "IDLE+DRAIN", "Kill task failed")
    hosts = [reported("n1", finding()), reported("n2"), reported("n3", finding())]
    fleet = trigger.carry_out(fleet_of(slurm, hosts), slurm.door(), "root")
    assert [each.decision.done for each in fleet.hosts] == [True, False, False]
    assert slurm.node("n1") == ("IDLE+DRAIN", "mpsfleet: gpu-lost gpu2")
    assert slurm.node("n3")[1] == "Kill task failed"
    assert len(slurm.updates()) == 1
    assert "n1: drained: mpsfleet: gpu-lost gpu2" in lines.grouped(fleet)


def test_the_trigger_twice_drains_once(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    hosts = [reported("n1", finding())]
    trigger.carry_out(fleet_of(slurm, hosts), slurm.door(), "root")
    again = trigger.carry_out(fleet_of(slurm, hosts), slurm.door(), "root")
    assert (again.hosts[0].decision.action, trigger.done_count(again)) == (Action.NONE, 0)
    assert len(slurm.updates()) == 1


def test_a_node_that_somebody_drained_meanwhile_is_left(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    fleet = fleet_of(slurm, [reported("n1", finding())])
    slurm.add("n1", "IDLE+DRAIN", "mine")
    after = trigger.carry_out(fleet, slurm.door(), "root")
    assert (after.hosts[0].decision.action, slurm.updates()) == (Action.NONE, [])


def test_a_drain_without_effect_is_critical_and_said(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    fleet = fleet_of(slurm, [reported("n1", finding())])
    slurm.write(mode="without effect")
    after = trigger.carry_out(fleet, slurm.door(), "root")
    assert (after.verdict, after.hosts[0].decision.done) == ("critical", False)
    assert any("not in effect" in each for each in lines.grouped(after))


def test_once_slurm_is_silent_no_further_node_is_tried(slurm: FakeSlurm) -> None:
    for name in ("n1", "n2", "n3"):
        slurm.add(name)
    fleet = fleet_of(slurm, [reported(each, finding()) for each in ("n1", "n2", "n3")])
    before = len(slurm.calls())
    slurm.write(mode="refused")
    after = trigger.carry_out(fleet, slurm.door(), "root")
    assert len(slurm.calls()) - before == 1
    assert [each.decision.done for each in after.hosts] == [False, False, False]
    assert "Not tried" in after.hosts[2].decision.why
