"""The slurm verbs as a shell meets them: words in; text, JSON and an exit status out; never a traceback."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mpsfleet.slurm import cli
from mpsfleet.slurm.commands import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import FakeSlurm

OUTCOME_KEYS = {"schema", "node", "changed", "action", "why", "before", "after", "refused", "failed", "dry_run"}
VERDICT_KEYS = {"schema", "verdict", "changed", "slurm", "troubles", "hosts", "lines"}
HOST_KEYS = {"host", "node", "verdict", "message", "state", "reason", "decision"}


class Shell:
    """Runs a verb against the fake Slurm and keeps what it printed."""

    def __init__(self, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm, self.capsys, self.monkeypatch = slurm, capsys, monkeypatch
        self.out = self.err = ""
        self.caller = Caller(0, 0, {})

    def run(self, *words: str, stdin: str = "") -> int:
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.main(list(words), self.slurm.door(timeout_s=2, caller=self.caller))
        self.out, self.err = self.capsys.readouterr()
        assert "Traceback" not in self.err
        return status

    def json(self) -> dict[str, Any]:
        assert self.out.count("\n") == 1
        return dict(json.loads(self.out))


@pytest.fixture
def shell(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(slurm, capsys, monkeypatch)


def reports(*hosts: tuple[str, str | None]) -> str:
    """Give reports of hosts, each with the code of its one critical finding of origin node, or None for a clean one."""
    made = []
    for name, code in hosts:
        finding = {"code": code, "severity": "critical", "subject": "gpu1", "message": "it is broken", "origin": "node"}
        findings: list[dict[str, Any]] = [] if code is None else [{**finding, "evidence": {}, "remedy": "Mend it."}]
        verdict = "ok" if code is None else "critical"
        body = {"schema": 1, "verdict": verdict, "node": name, "program": "0.1.0", "findings": findings}
        made.append({"host": name, "node": name, "report": body, "error": None})
    return json.dumps({"schema": 1, "hosts": made})


def test_nodes_are_listed(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2", "IDLE+DRAIN", "mpsfleet: reset")
    assert shell.run("nodes") == 0
    assert shell.out.splitlines() == [
        "n1  IDLE  gpu:a100:4,mps:a100:400",
        "n2  IDLE+DRAIN  gpu:a100:4,mps:a100:400  mpsfleet: reset [root] (ours)",
    ]


def test_a_node_that_slurm_does_not_know_is_named(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert shell.run("nodes", "n1", "n9", "--json") == 3
    assert [each["node"] for each in shell.json()["nodes"]] == ["n1"]
    assert "n9" in shell.err


def test_a_drain_prints_the_contracts_object(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert shell.run("drain", "n1", "--code", "gpu-lost", "--gpu", "3", "--json") == 0
    printed = shell.json()
    assert set(printed) == OUTCOME_KEYS
    assert (printed["changed"], printed["action"], printed["refused"], printed["failed"]) == (True, "drain", None, None)
    assert printed["after"] == {"state": "IDLE+DRAIN", "reason": "mpsfleet: gpu-lost gpu3", "reason_user": "root"}


def test_a_planned_reset_drains_and_waits(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1", "MIXED")
    assert shell.run("drain", "n1", "--code", "reset", "--wait", "0.1", "--json") == 75
    printed = shell.json()
    assert (printed["changed"], printed["action"]) == (True, "drain")
    assert "not free after 0.1 s" in printed["refused"]
    assert slurm.node("n1") == ("MIXED+DRAIN", "mpsfleet: reset")


def test_a_refused_drain_is_one_sentence_and_75(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "Kill task failed")
    assert shell.run("drain", "n1", "--code", "gpu-lost") == 75
    assert (shell.out, shell.err.count("\n")) == ("", 1)
    assert shell.err.startswith("mpsfleet: n1: The node is already drained by root for another reason")


def test_a_refusal_in_json_changes_nothing(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1", "DOWN")
    assert shell.run("drain", "n1", "--code", "gpu-lost", "--json") == 75
    printed = shell.json()
    assert (printed["changed"], printed["action"], printed["failed"]) == (False, "none", None)
    assert "DOWN" in printed["refused"]


def test_a_drain_without_effect_is_2(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.write(mode="without effect")
    assert shell.run("drain", "n1", "--code", "gpu-lost", "--json") == 2
    assert "not in effect" in shell.json()["failed"]


def test_a_slurm_out_of_reach_is_3(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.write(mode="refused")
    for words in (("nodes",), ("drain", "n1", "--code", "gpu-lost"), ("undrain", "n1")):
        assert shell.run(*words, "--json") == 3
        assert shell.json()["schema"] == 1
        assert shell.err.count("\n") == 1


def test_an_undrain_of_our_drain(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset")
    assert shell.run("undrain", "n1", "--cluster", "lab", "--json") == 0
    assert set(shell.json()) == OUTCOME_KEYS
    assert shell.json()["action"] == "undrain"


def test_our_drain_is_given_back_by_the_user_who_set_it_alone(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1", "IDLE+DRAIN", "mpsfleet: reset", user="slurm")
    assert shell.run("undrain", "n1") == 75
    assert "set by slurm" in shell.err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), "verdict"),
        (("drian", "n1"), "did you mean drain?"),
        (("drain", "n1", "--cod", "gpu-lost"), "did you mean --code?"),
        (("drain", "n1", "--code", "gpu-lots"), "did you mean gpu-lost?"),
        (("drain", "n1", "--code", "directory-mode"), "never drains"),
        (("drain", "n1"), "--code"),
        (("drain", "n1", "n2", "--code", "reset"), "n2"),
        (("drain", "n1", "--code", "reset", "--gpu", "-1"), "--gpu"),
        (("drain", "n1", "--code", "reset", "--gpu", "x"), "index"),
        (("drain", "n1", "--code", "reset", "--wait", "nan"), "seconds"),
        (("drain", "n1", "--code", "reset", "--wait", "-5"), "--wait"),
        (("undrain", "n1", "--wait", "5"), "no option --wait"),
        (("verdict",), "--reports"),
        (("verdict", "--report", "-"), "did you mean --reports?"),
        (("nodes", "--json=yes"), "--json"),
    ],
)
def test_wrong_usage_is_64_and_names_the_right_word(shell: Shell, words: tuple[str, ...], names: str) -> None:
    assert shell.run(*words) == 64
    assert names in shell.err
    assert (shell.out, shell.err.count("\n"), shell.slurm.calls()) == ("", 1, [])


def test_help_is_printed_and_ok(shell: Shell) -> None:
    assert shell.run("--help") == 0
    assert shell.run("drain", "--help") == 0
    assert "--code" in shell.out


def test_the_word_slurm_may_stand_in_front(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert shell.run("slurm", "nodes") == 0


def test_a_healthy_fleet_is_ok(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2")
    assert (
        shell.run("verdict", "--reports", "-", "--trigger-drain", "--json", stdin=reports(("n1", None), ("n2", None)))
        == 0
    )
    printed = shell.json()
    assert set(printed) == VERDICT_KEYS
    assert (printed["verdict"], printed["changed"]) == ("ok", False)
    assert printed["slurm"] == {"asked": True, "cluster": "lab", "error": None}
    assert [set(each) for each in printed["hosts"]] == [HOST_KEYS, HOST_KEYS]
    assert slurm.updates() == []


def test_without_the_trigger_a_drain_is_only_told(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert shell.run("verdict", "--reports", "-", "--json", stdin=reports(("n1", "gpu-lost"))) == 2
    printed = shell.json()
    assert printed["changed"] is False
    assert printed["hosts"][0]["decision"] == {
        "action": "drain",
        "reason": "mpsfleet: gpu-lost gpu1",
        "why": "Would drain (trigger_drain is off).",
        "done": False,
    }
    assert slurm.updates() == []


def test_with_the_trigger_it_is_done(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2")
    words = ("verdict", "--reports", "-", "--trigger-drain", "--cluster", "lab", "--json")
    assert shell.run(*words, stdin=reports(("n1", "gpu-lost"), ("n2", None))) == 2
    printed = shell.json()
    assert (printed["changed"], printed["hosts"][0]["decision"]["done"]) == (True, True)
    assert printed["hosts"][0]["state"] == "IDLE+DRAIN"
    assert printed["hosts"][0]["reason"] == "mpsfleet: gpu-lost gpu1"
    assert slurm.updates() == [["update", "NodeName=n1", "State=DRAIN", "Reason=mpsfleet: gpu-lost gpu1"]]


def test_a_dry_run_with_the_trigger_foretells_the_change(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    words = ("verdict", "--reports", "-", "--trigger-drain", "--dry-run", "--json")
    assert shell.run(*words, stdin=reports(("n1", "gpu-lost"))) == 2
    assert (shell.json()["changed"], slurm.updates()) == (True, [])


def test_over_the_budget_the_node_stays_and_it_is_said(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2")
    words = ("verdict", "--reports", "-", "--trigger-drain", "--max-drained", "1", "--max-drained-partition", "100%")
    assert shell.run(*words, stdin=reports(("n1", "gpu-lost"), ("n2", "gpu-lost"))) == 2
    assert "n2: no drain: The budget is spent: of the cluster's GPU nodes, mpsfleet keeps at most 1 " in shell.out
    assert [words[1] for words in slurm.updates()] == ["NodeName=n1"]


def test_a_budget_that_is_none_is_wrong_usage(shell: Shell) -> None:
    assert shell.run("verdict", "--reports", "-", "--max-drained", "many") == 64
    assert "many is neither a number of nodes nor a percentage such as 25%" in shell.err


def test_on_another_cluster_nothing_is_drained(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    words = ("verdict", "--reports", "-", "--trigger-drain", "--cluster", "prod", "--json")
    assert shell.run(*words, stdin=reports(("n1", "gpu-lost"))) == 2
    printed = shell.json()
    assert (printed["slurm"]["asked"], printed["slurm"]["cluster"], slurm.updates()) == (False, "lab", [])


def test_a_silent_slurm_costs_one_time_limit(shell: Shell, slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.write(mode="silent")
    assert shell.run("verdict", "--reports", "-", "--trigger-drain", stdin=reports(("n1", None))) == 3
    assert len(slurm.calls()) == 1
    assert shell.out.splitlines()[0].startswith("slurm: unknown: ")


def test_reports_are_read_from_a_file(shell: Shell, slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.add("n1")
    path = tmp_path / "reports.json"
    path.write_text(reports(("n1", None)), encoding="utf-8")
    assert shell.run("verdict", "--reports", str(path)) == 0


def test_root_under_sudo_reads_no_file_of_the_users_choice(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "reports.json"
    path.write_text("root:$6$secret", encoding="utf-8")
    shell.caller = Caller(0, 0, {"SUDO_UID": "1000"})
    assert shell.run("verdict", "--reports", str(path)) == 64
    assert "standard input" in shell.err


@pytest.mark.parametrize("name", ["missing", "folder", "fifo", "secret"])
def test_what_is_no_reports_file_is_one_sentence(shell: Shell, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_text("root:$6$verysecret", encoding="utf-8")
    os.mkfifo(tmp_path / "fifo")
    assert shell.run("verdict", "--reports", str(tmp_path / name)) == 3
    assert shell.err.count("\n") == 1
    assert "verysecret" not in shell.err
