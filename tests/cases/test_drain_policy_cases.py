"""Public cases about who drains, who gives back, and what is read again before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import yaml  # type: ignore[import-untyped]

from mpsfleet import codes
from mpsfleet.node import free
from mpsfleet.node import steps as node_steps
from mpsfleet.node.host.children import Answer
from mpsfleet.slurm import budget, drains, gres, reasons, render, states, steps, verdict
from mpsfleet.slurm.budget import Budget, Limit
from mpsfleet.slurm.commands import Done, NoSuchNode, Unreadable
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.nodes import Node, NodeTable, Reason
from mpsfleet.slurm.reports import Finding, HostReport, Report
from mpsfleet.slurm.steps import Clock, Terms

if TYPE_CHECKING:
    from tests.cases.conftest import Row

    from mpsfleet.slurm.commands import NodeAnswer

WHEN = "2026-01-01T00:00:00"
GRES = gres.parse("gpu:4,mps:400")
RESET = Path(__file__).resolve().parents[2] / "ansible_collections/mpsfleet/mps/roles/mps/tasks/reset.yml"
LOST = Finding("gpu-lost", "critical", "gpu1", "it is lost", "node", (), "")


def node(state: str, reason: str | None, user: str = "root", name: str = "n1") -> Node:
    told = None if reason is None else Reason(reason, user, WHEN)
    return Node(name, states.parse(state), reason=told, gres=GRES)


class Door:
    """slurmctld as a case has it: the node before the update and after it, and what scontrol says of the update."""

    def __init__(self, row: Row) -> None:
        self.row, self.asked, self.updates = row, 0, 0

    def cluster_name(self) -> str:
        return "lab"

    def show_node(self, name: str) -> NodeAnswer:
        self.asked += 1
        if not self.row:
            return NoSuchNode(name)
        if not self.updates:
            return node(self.row["before"], self.row.get("held"))
        return node(self.row["after"], self.row.get("reason")) if self.row["after"] else Unreadable("no answer.")

    def drain(self, name: str, reason: str) -> Done | Unreadable:
        assert (name, reason) == ("n1", "mpsfleet: gpu-lost")
        return self.update()

    def undrain(self, name: str) -> Done | Unreadable:
        assert name == "n1"
        return self.update()

    def update(self) -> Done | Unreadable:
        self.updates += 1
        if self.row.get("hangs"):
            return Unreadable("scontrol update did not end within 10 s.")
        return Done(1, self.row["fails"]) if "fails" in self.row else Done(0, "")


def take(door: Door, verb: str, name: str = "n1") -> steps.Outcome:
    if verb == "drain":
        return steps.drain(door, name, reasons.build("gpu-lost"), Terms("root"))
    return steps.undrain(door, name, Terms("root"), Clock(lambda: 0.0, lambda _: None))


def test_a_step_is_what_slurm_shows_after_it(verify: Row) -> None:
    door = Door(verify)
    outcome = take(door, verify["verb"])
    assert (outcome.exit_code, outcome.changed) == (verify["exit"], verify.get("changed", False))
    assert verify.get("says", "") in str(outcome.error or "")
    assert (door.updates, door.asked) == (1, 2)


def test_a_drain_under_a_codes_old_name_stays_ours(renamed: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    found = node("IDLE+DRAIN", renamed["reason"])
    is_of_old_name = renamed["old"] in renamed["reason"]
    assert (drains.our_reason(found) is None) is (is_of_old_name or "now" not in renamed)
    monkeypatch.setitem(reasons.ALIASES, renamed["old"], renamed["new"])
    is_ours = "now" in renamed

    assert str(drains.our_reason(found)) == renamed.get("now", "None")
    assert drains.decide_undrain(found, "root").action is (Action.UNDRAIN if is_ours else Action.REFUSE)
    assert drains.decide_drain(found, "gpu-lost", None, "root").action is (Action.NONE if is_ours else Action.REFUSE)

    sick = HostReport("n2", "n2", Report("n2", "critical", "0.1.0", (LOST,)))
    slurm = verdict.SlurmView("lab", NodeTable((found, node("IDLE", None, name="n2")), ()))
    fleet = budget.within(verdict.judge((sick,), slurm, "root"), Budget(Limit(1), Limit(1)))
    assert (fleet.hosts[0].decision.action is Action.NONE) is is_ours  # what is drained by us leaves no room


def test_an_old_name_is_no_code_of_today_and_stands_for_one() -> None:
    assert not set(reasons.ALIASES) & set(codes.BY_NAME)
    assert set(reasons.ALIASES.values()) <= set(codes.BY_NAME)


def test_what_a_job_left_on_the_node_keeps_it_from_being_worked_on(left_over: Row) -> None:
    listed = node_steps.understand(Answer(left_over.get("rc", 0), left_over["pids"], ""))
    assert left_over["says"] in str(free._by_processes(listed))


def reset_tasks() -> list[Row]:
    tasks = yaml.safe_load(RESET.read_text(encoding="utf-8"))
    (block,) = [each["block"] for each in tasks if "block" in each]
    return list(block)


def test_a_reset_node_is_given_back_after_an_audit_that_finds_it_well(given_back: Row) -> None:
    tasks = reset_tasks()
    acts = [next(key for key in each if key.startswith("mpsfleet.")) for each in tasks]
    (last,) = [each for each in tasks if each.get("mpsfleet.mps.slurm_node", {}).get("state") == "undrained"]
    audit = max(place for place, act in enumerate(acts) if act == "mpsfleet.mps.mps_audit")
    work = [place for place, each in enumerate(tasks) if acts[place] == "mpsfleet.mps.mps_reset"]

    assert last is tasks[-1]
    assert max(work) < audit < len(tasks) - 1
    assert tasks[audit]["register"] == "mps_reset_after"
    assert (
        is_true(last["when"][0], mps_reset_after={"report": {"verdict": given_back["verdict"]}})
        is (given_back["is_given_back"])
    )
    assert not is_true(last["when"][0], mps_reset_after={"msg": "unreachable"})


def is_true(condition: str, **variables: Any) -> bool:
    """Evaluate a condition of a task."""
    return bool(jinja2.Environment().compile_expression(condition)(**variables))  # noqa: S701  no page is made


def test_a_verdict_gives_no_node_back(still_drained: Row) -> None:
    slurm = verdict.SlurmView("lab", NodeTable((node(still_drained["state"], still_drained["reason"]),), ()))
    (host,) = verdict.judge((HostReport("n1", "n1", Report("n1", "ok", "0.1.0", ())),), slurm, "root").hosts
    assert host.decision.action is Action.NONE
    assert still_drained["says"] in " ".join(each.sentence for each in host.notices)


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_a_step_takes_the_literal_name_of_one_node(one_node: str, verb: str) -> None:
    door = Door({})
    outcome = take(door, verb, one_node)
    assert outcome.exit_code == 75
    assert "is not the literal name of one node" in str(outcome.error)
    assert (door.asked, door.updates) == (0, 0)


def test_a_node_is_shown_with_its_reason_and_who_set_it(shown: Row) -> None:
    assert render.node_line(node(shown["state"], shown.get("reason"), shown.get("user", "root"))) == shown["line"]
