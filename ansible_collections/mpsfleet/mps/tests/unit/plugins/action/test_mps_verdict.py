# SPDX-License-Identifier: Apache-2.0

"""What mps_verdict gathers, and where it refuses to judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.mpsfleet.mps.plugins.action import mps_verdict

REPORT = {"schema": 1, "verdict": "ok", "node": "n1", "program": "0.1.0", "findings": []}


class HostVars(dict):
    """Variables of each host; reading one through the host's own mapping templates it, as Ansible does."""

    def raw_get(self, host: str) -> dict[str, Any]:
        return self.get(host, {})

    def __getitem__(self, host: str) -> dict[str, Any]:
        return {name: f"templated {name} of {host}" for name in self.get(host, {})}


def entries(**hosts: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str], list[str]]:
    variables = {"hostvars": HostVars(hosts), "ansible_play_hosts_all": list(hosts)}
    return mps_verdict._entries(variables, "mps_audit_result")


def action(strategy: str = "linear", serial: tuple[Any, ...] = (), **task: Any) -> mps_verdict.ActionModule:
    """An action of a task in a block of a play."""
    block = SimpleNamespace(_play=SimpleNamespace(strategy=strategy, serial=list(serial)))
    made = SimpleNamespace(
        **{"run_once": True, "delegate_to": "ctl", "_parent": SimpleNamespace(_parent=block), **task}
    )
    return mps_verdict.ActionModule(made, None, None, None, None)


def test_every_host_of_the_play_has_an_entry_also_one_that_was_dropped() -> None:
    found, _problems, _held_back = entries(
        n1={"mps_audit_result": {"report": REPORT}}, n2={}, n3={"mps_audit_result": {"unreachable": True, "msg": "x"}}
    )

    assert [(each["host"], each["error"]) for each in found] == [
        ("n1", None),
        ("n2", "it was not audited in this run"),
        ("n3", "unreachable: x"),
    ]


def test_a_hosts_name_in_slurm_is_its_inventory_name_up_to_the_first_dot() -> None:
    found, _problems, _held_back = entries(**{"n1.example.org": {}})

    assert found[0]["node"] == "n1"


def test_a_hosts_name_in_slurm_can_be_set_and_may_be_a_template() -> None:
    found, _problems, _held_back = entries(
        h1={"mps_slurm_node_name": "gpu1"}, h2={"mps_slurm_node_name": "{{ ansible_hostname }}"}
    )

    assert [each["node"] for each in found] == ["gpu1", "templated mps_slurm_node_name of h2"]


def test_a_host_is_of_the_cluster_that_the_inventory_gives_it() -> None:
    found, _problems, _held_back = entries(n1={"mps_slurm_cluster": "lab"}, n2={"mps_slurm_cluster": ""}, n3={})

    assert [each["cluster"] for each in found] == ["lab", None, None]


@pytest.mark.parametrize("value", [False, "false", "no", "0", 0])
def test_a_host_with_the_kill_switch_is_named(value: Any) -> None:
    assert entries(n1={"mps_enabled": value}, n2={"mps_enabled": True}, n3={})[2] == ["n1"]


def test_what_was_not_done_on_a_host_is_kept() -> None:
    registered = {"report": REPORT, "problem": "it was not reset"}

    assert entries(n1={"mps_audit_result": registered})[1] == {"n1": "it was not reset"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategy": "free"}, "strategy free"),
        ({"strategy": "ansible.builtin.host_pinned"}, "strategy host_pinned"),
        ({"strategy": "mitogen_free"}, "strategy mitogen_free"),
        ({"serial": (1, "100%")}, "take serial out"),
        ({"run_once": False}, "give its task run_once: true"),
    ],
)
def test_it_refuses_where_it_cannot_judge_all_hosts_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(AnsibleActionFail, match=words):
        action(**given)._refuse_what_cannot_judge_all()


@pytest.mark.parametrize("strategy", ["linear", "ansible.builtin.linear", "debug"])
def test_it_accepts_strategies_that_run_a_task_for_all_hosts(strategy: str) -> None:
    action(strategy)._refuse_what_cannot_judge_all()


def answer(made: mps_verdict.ActionModule, *controllers: str) -> dict[str, Any]:
    arguments = {**dict.fromkeys(mps_verdict.ARGUMENTS), "timeout": 1, "max_drained": "10", "trigger_drain": True}
    return made._answer([], arguments, {"groups": {"slurm_master": list(controllers)}})


def test_without_a_controller_in_the_inventory_slurm_is_unknown() -> None:
    assert answer(action())["slurm"]["error"] == "the inventory has no host in the group slurm_master"


def test_it_refuses_to_run_elsewhere_than_on_the_controller() -> None:
    with pytest.raises(AnsibleActionFail, match="must be delegated to a host of the group slurm_master"):
        answer(action(delegate_to=None), "ctl")


def test_a_controller_out_of_reach_leaves_slurm_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_arguments: Any, **_options: Any) -> dict[str, Any]:
        message = "no route"
        raise AnsibleConnectionFailure(message)

    monkeypatch.setattr(mps_verdict, "run_module", unreachable)

    assert "the controller ctl cannot be reached: no route" in answer(action(), "ctl")["slurm"]["error"]


def test_a_controller_that_gives_no_answer_leaves_slurm_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_verdict, "run_module", lambda *_a, **_o: {"failed": True, "msg": "boom"})

    assert answer(action(), "ctl")["slurm"] == {"asked": False, "cluster": None, "error": "on ctl: boom"}


def test_the_controllers_answer_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_verdict, "run_module", lambda *_a, **_o: {"answer": {"verdict": "ok"}})

    assert answer(action(), "ctl") == {"verdict": "ok"}
