"""What nodes publish in Slurm, as the reports of a run that asks no node."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.slurm.test_slurm_cli import Shell
from tests.slurm.test_slurm_verdict import known, view

from mpsfleet.slurm import gres, policy, publication, published, verdict
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.ledger import Ledger
from mpsfleet.slurm.nodes import NodeTable, Problem
from mpsfleet.slurm.publication import Entry, Publication

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.verdict import HostVerdict

T = 1_796_000_000
LOST = Entry("gpu-lost", "critical", "node", 2)


def node(name: str, *entries: Entry, seen: int = 1, at: int = T, state: str = "IDLE", field: str = "extra") -> Node:
    text = publication.text(Publication(entries[0].severity if entries else "ok", seen, at, entries))
    changes: dict[str, Any] = {field: text}
    return dataclasses.replace(known(name, state), **changes)


def judged(*nodes: Node, now: float = T + 60, kept: Ledger | None = None) -> tuple[dict[str, HostVerdict], Ledger]:
    seen = view(*nodes)
    fleet = verdict.judge(published.reports(seen.table, now), seen, "root")
    fleet, kept = policy.weigh(fleet, kept or Ledger("lab"), policy.Policy(), "root", now)
    return {each.host: each for each in fleet.hosts}, kept


@pytest.mark.parametrize("field", ["extra", "comment"])
def test_what_a_node_publishes_is_judged_like_its_report(field: str) -> None:
    hosts, _ = judged(node("n1", LOST, field=field), node("n2", field=field))

    assert {name: each.verdict for name, each in hosts.items()} == {"n1": "critical", "n2": "ok"}
    assert str(hosts["n1"].decision.reason) == "mpsfleet: gpu-lost gpu2"
    assert hosts["n1"].message.startswith("GPU 2: ")


@pytest.mark.parametrize("origin", ["user", "either"])
def test_a_users_doing_drains_nothing_here_either(origin: str) -> None:
    hosts, _ = judged(node("n1", LOST._replace(origin=origin)))
    assert hosts["n1"].decision.action is Action.NONE


def test_how_often_in_a_row_the_node_itself_saw_it_counts() -> None:
    wedged = Entry("daemon-wedged", "critical", "node")
    first, kept = judged(node("n1", wedged, seen=1))
    again, kept = judged(node("n1", wedged, seen=1), kept=kept)
    second, _ = judged(node("n1", wedged, seen=2, at=T + 30), kept=kept)

    actions = [each["n1"].decision.action for each in (first, again, second)]
    assert actions == [Action.NONE, Action.NONE, Action.DRAIN]


UNKNOWN = {
    "nothing": (known("n1"), "it has published nothing"),
    "somebody else's Extra": (dataclasses.replace(known("n1"), extra='{"rack": 4}', comment="do not touch"), "nothing"),
    "an old one": (node("n1", LOST, at=T - 10 * 3600), "is 10 hours old"),
    "one from the future": (node("n1", LOST, at=T + 7200), "119 minutes from now: one of the two clocks is wrong"),
}


@pytest.mark.parametrize(("given", "words"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_published_or_not_of_now_is_unknown(given: Node, words: str) -> None:
    hosts, _ = judged(given)
    assert (hosts["n1"].verdict, hosts["n1"].decision.action) == ("unknown", Action.NONE)
    assert words in hosts["n1"].message


def test_nodes_without_gpus_and_nodes_that_are_off_by_plan_are_not_asked_for() -> None:
    off = [known("n1", "IDLE+POWERED_DOWN"), known("n2", "IDLE+POWERING_UP"), known("n3", "FUTURE")]
    assert published.reports(NodeTable((known("c1", gres=()), *off), ()), T) == ()
    assert [each.host for each in published.reports(NodeTable((known("n1", gres=gres.parse("shard:4")),), ()), T)] == [
        "n1"
    ]


def test_a_node_whose_record_is_not_understood_is_unknown() -> None:
    table = NodeTable((), (Problem("n1", "State", "it has no State"), Problem(None, None, "a stray line")))
    [host] = published.reports(table, T)
    assert (host.host, host.report, host.error) == ("n1", None, "slurmctld's answer about it is not understood")


def test_a_finding_of_a_later_version_is_told_and_drains_nothing() -> None:
    hosts, _ = judged(node("n1", Entry("gpu-exploded", "critical", "node")))
    assert (hosts["n1"].verdict, hosts["n1"].decision.action) == ("critical", Action.NONE)


def test_the_verb_takes_reports_or_what_is_published_and_not_both(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(slurm, capsys, monkeypatch)
    slurm.add("n1")
    assert shell.run("verdict", "--published") == 3
    assert "it has published nothing" in shell.out
    assert shell.run("verdict") == 64
    assert shell.run("verdict", "--published", "--reports", "-") == 64
