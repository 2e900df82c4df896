"""A whole run against the fake Slurm: what it may change, what it writes down, and what keeps it from acting."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.slurm.test_slurm_cli import Shell, reports

from mpsfleet.slurm import ledger_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import FakeSlurm

ACTS = ("verdict", "--reports", "-", "--json", "--trigger-drain", "--trigger-undrain")


@pytest.fixture
def shell(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for number in range(1, 4):
        slurm.add(f"n{number}")
    return Shell(slurm, capsys, monkeypatch)


@pytest.fixture
def folder(slurm: FakeSlurm) -> Path:
    return slurm.directory / ledger_file.FOLDER


def history(shell: Shell, *words: str) -> dict[str, Any]:
    assert shell.run("history", "--json", *words) == 0
    return {each["node"]: each for each in shell.json()["nodes"]}


def test_what_is_drained_is_written_down_beside_slurmctlds_state(shell: Shell, folder: Path) -> None:
    assert shell.run(*ACTS, stdin=reports(("n1", "gpu-lost"), ("n2", None))) == 2
    assert (folder / ledger_file.NAME).stat().st_mode & 0o777 == 0o600

    known = history(shell)
    assert list(known) == ["n1"]
    [event] = known["n1"]["events"]
    assert (event["what"], event["reason"], event["words"], event["by"]) == (
        "drained",
        "mpsfleet: gpu-lost gpu1",
        "it is broken",
        "verdict",
    )


def test_a_node_comes_back_after_two_runs_that_find_it_well(shell: Shell, slurm: FakeSlurm) -> None:
    shell.run(*ACTS, stdin=reports(("n1", "gpu-lost")))
    assert shell.run(*ACTS, stdin=reports(("n1", None))) == 0
    assert slurm.node("n1")[0] == "IDLE+DRAIN"
    assert shell.run(*ACTS, stdin=reports(("n1", None))) == 0

    assert slurm.node("n1")[0] == "IDLE"
    assert shell.json()["changed"] is True
    assert "n1: given back: mpsfleet: gpu-lost gpu1" in shell.json()["lines"]
    assert [each["what"] for each in history(shell)["n1"]["events"]] == ["drained", "undrained"]


def test_a_healthy_fleet_leaves_nothing_behind(shell: Shell, slurm: FakeSlurm, folder: Path) -> None:
    assert shell.run(*ACTS, stdin=reports(("n1", None), ("n2", None))) == 0
    assert slurm.updates() == []
    assert not (folder / ledger_file.NAME).exists()
    assert history(shell) == {}


@pytest.mark.parametrize("words", [(), ("--trigger-drain", "--trigger-undrain", "--dry-run")])
def test_a_run_that_only_tells_writes_nothing(
    shell: Shell, slurm: FakeSlurm, folder: Path, words: tuple[str, ...]
) -> None:
    slurm.add("n2", "IDLE+DRAIN", "mpsfleet: gpu-lost")
    shell.run("verdict", "--reports", "-", "--json", *words, stdin=reports(("n1", "gpu-lost"), ("n2", None)))

    told = {each["host"]: each["decision"] for each in shell.json()["hosts"]}
    assert (told["n1"]["action"], told["n2"]["action"]) == ("drain", "undrain")
    assert not any(each["done"] for each in told.values())
    why = {each["why"] for each in told.values()}
    assert why == ({"Would drain (dry run).", "Would undrain (dry run)."} if words else
                   {"Would drain (trigger_drain is off).", "Would undrain (trigger_undrain is off)."})  # fmt: skip
    assert slurm.updates() == []
    assert not folder.exists()


@pytest.mark.parametrize(("trigger", "changed"), [("--trigger-drain", "n1"), ("--trigger-undrain", "n2")])
def test_each_trigger_allows_its_own_step_alone(shell: Shell, slurm: FakeSlurm, trigger: str, changed: str) -> None:
    slurm.add("n2", "IDLE+DRAIN", "mpsfleet: gpu-lost")
    words = ("verdict", "--reports", "-", "--undrain-after", "1", trigger)
    shell.run(*words, stdin=reports(("n1", "gpu-lost"), ("n2", None)))
    assert [each[1] for each in slurm.updates()] == [f"NodeName={changed}"]


def test_what_a_person_does_by_command_is_written_down_too(shell: Shell) -> None:
    assert shell.run("drain", "n1", "--code", "gpu-lost", "--gpu", "3") == 0
    assert shell.run("undrain", "n1") == 0
    events = history(shell)["n1"]["events"]
    assert [(each["what"], each["by"], each["reason"]) for each in events] == [
        ("drained", "command", "mpsfleet: gpu-lost gpu3"),
        ("undrained", "command", "mpsfleet: gpu-lost gpu3"),
    ]


def test_a_drain_by_command_stands_where_the_ledger_cannot_be_written(
    shell: Shell, slurm: FakeSlurm, folder: Path
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert shell.run("drain", "n1", "--code", "gpu-lost") == 0
    assert slurm.node("n1") == ("IDLE+DRAIN", "mpsfleet: gpu-lost")
    assert "n1 was drained, and the ledger does not say so: The ledger's directory" in shell.err


def test_a_drain_by_command_elsewhere_than_on_the_controller_leaves_no_ledger_there(
    shell: Shell, slurm: FakeSlurm
) -> None:
    slurm.write(state="/no/such/slurmctld")
    assert shell.run("drain", "n1", "--code", "gpu-lost") == 0
    assert shell.err == ""
    slurm.write(state=None)
    assert history(shell) == {}
    shell.run(*ACTS, stdin=reports(("n1", None)))
    assert [each["what"] for each in history(shell)["n1"]["events"]] == ["found"]


def test_without_a_ledger_nothing_is_done_and_that_is_said(shell: Shell, slurm: FakeSlurm, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert shell.run(*ACTS, stdin=reports(("n1", "gpu-lost"), ("n2", None))) == 2

    assert slurm.updates() == []
    answer = shell.json()
    [trouble] = answer["troubles"]
    assert "must belong to the user who runs this" in trouble
    assert f"ledger: unknown: {trouble}" in answer["lines"]
    assert answer["hosts"][0]["decision"]["why"] == "Would drain (the ledger cannot be used)."


def test_a_well_fleet_without_a_ledger_is_unknown(shell: Shell, folder: Path) -> None:
    folder.write_text("a file where the directory should be")
    other = folder.with_name("elsewhere")
    assert shell.run(*ACTS, "--ledger", str(other / "deep"), stdin=reports(("n1", None))) == 3
    assert shell.run(*ACTS, "--ledger", str(other), stdin=reports(("n1", None))) == 0


def test_another_clusters_ledger_is_not_written_over(shell: Shell, slurm: FakeSlurm, folder: Path) -> None:
    shell.run(*ACTS, stdin=reports(("n1", "gpu-lost")))
    before = (folder / ledger_file.NAME).read_bytes()
    slurm.write(name="other")
    shell.run(*ACTS, stdin=reports(("n1", "gpu-lost"), ("n2", "gpu-lost")))

    assert "is of cluster lab and not other" in shell.json()["troubles"][0]
    assert (folder / ledger_file.NAME).read_bytes() == before
    assert len(slurm.updates()) == 1


def test_one_that_cannot_be_read_is_kept_aside_and_begun_anew_from_slurms_reasons(shell: Shell, folder: Path) -> None:
    shell.run(*ACTS, stdin=reports(("n1", "gpu-lost")))
    (folder / ledger_file.NAME).write_text("{broken")
    assert shell.run(*ACTS, stdin=reports(("n1", None))) == 3
    assert "ledger.json is not used: it is not JSON" in shell.json()["troubles"][0]

    assert (folder / "ledger.json.unread").read_text() == "{broken"
    assert [each["what"] for each in history(shell)["n1"]["events"]] == ["found"]
    assert shell.run(*ACTS, stdin=reports(("n1", None))) == 0


def test_on_another_cluster_than_the_wanted_one_nothing_is_made_or_done(
    shell: Shell, slurm: FakeSlurm, folder: Path
) -> None:
    assert shell.run(*ACTS, "--cluster", "other", stdin=reports(("n1", "gpu-lost"))) == 2
    assert slurm.updates() == []
    assert not folder.exists()


def test_hosts_of_another_cluster_are_not_mixed_up_with_nodes_of_the_same_name(shell: Shell, slurm: FakeSlurm) -> None:
    frame = json.loads(reports(("n1", "gpu-lost"), ("n2", "gpu-lost"), ("n1", "gpu-lost")))
    for host, name, cluster in zip(frame["hosts"], ("a1", "a2", "b1"), ("lab", "lab", "other")):
        host.update(host=name, cluster=cluster)
    shell.run(*ACTS, stdin=json.dumps(frame))

    assert [each[1] for each in slurm.updates()] == ["NodeName=n1", "NodeName=n2"]
    told = {each["host"]: each for each in shell.json()["hosts"]}
    assert told["b1"]["verdict"] == "unknown"
    assert told["b1"]["message"] == "The inventory has this host in cluster other, and slurmctld is lab's."

    frame["hosts"] = frame["hosts"][2:]
    slurm.add("n1")
    shell.run(*ACTS, stdin=json.dumps(frame))
    assert slurm.node("n1")[0] == "IDLE"


def test_a_slurm_that_falls_silent_is_not_tried_again_and_the_ledger_says_what_was_done(
    shell: Shell, slurm: FakeSlurm
) -> None:
    slurm.write(mode="silent at updates")
    assert shell.run(*ACTS, stdin=reports(("n1", "gpu-lost"), ("n2", "gpu-lost"))) == 2
    slurm.write(mode="")
    assert history(shell).get("n1", {"events": []})["events"] == []
    assert len(slurm.updates()) == 1
    shell.run(*ACTS, stdin=reports(("n1", "gpu-lost"), ("n2", "gpu-lost")))
    assert slurm.node("n1")[0] == slurm.node("n2")[0] == "IDLE+DRAIN"


@pytest.mark.parametrize(
    "words",
    [
        ("--drain-after", "0"),
        ("--undrain-after", "x"),
        ("--strikes", "-1"),
        ("--max-drained-hour", "a lot"),
        ("--ledger", ""),
    ],
)
def test_a_setting_that_is_none_is_named(shell: Shell, words: tuple[str, str]) -> None:
    assert shell.run(*ACTS, *words, stdin=reports()) == 64
    assert words[0] in shell.err
