"""The product on a simulated node: deployed, broken, named by the audit, refused or reset, drained and given back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark import ParameterSet
    from rehearsal import Rehearsal

# fault, the codes of which one at least must be named, and whether a reset puts it right
BY_RESET = [
    ("directory-deleted", {"daemon-unreachable"}),
    ("control-swapped", {"socket-hijacked"}),
    ("mode-polluted", {"directory-mode"}),
    ("mode-closed", {"directory-mode"}),
    ("name-planted", {"directory-hijacked"}),
    ("daemon-stopped", {"daemon-wedged"}),
    ("second-daemon", {"daemon-duplicate"}),
    ("foreign-daemon", {"daemon-duplicate"}),
]
BY_MENDING = [
    ("parent-closed", {"directory-parent"}),
    ("gpu-lost", {"gpu-lost"}),
    ("gpu-needs-reset", {"gpu-requires-reset"}),
    ("gpu-missing", {"gpu-missing"}),
    ("driver-mismatch", {"driver-mismatch"}),
    ("nvidia-smi-hanging", {"nvidia-smi-slow"}),
]


@pytest.fixture
def well(fleet: Rehearsal) -> Iterator[Rehearsal]:
    """n1 deployed and well before; mended, reset and undrained after."""
    yield fleet
    fleet.mend("n1")
    if fleet.audit("n1") != ("ok", set()):
        fleet.program_on("ctl", "slurm", "drain", "n1", "--code", "reset")
        fleet.program_on("n1", "node", "reset", "--others")
    if fleet.is_drained("n1"):
        fleet.program_on("ctl", "slurm", "undrain", "n1")


def test_a_second_deploy_changes_nothing(fleet: Rehearsal) -> None:
    assert fleet.apply("n1")["changes"] == []


def test_a_file_of_another_mode_is_named_and_a_deploy_puts_it_right(well: Rehearsal) -> None:
    path = well.root("n1") / "etc/tmpfiles.d/mpsfleet.conf"
    path.chmod(0o666)
    assert well.audit("n1") == ("warn", {"deployment-differs"})
    assert [each["what"] for each in well.apply("n1")["changes"]] == ["/etc/tmpfiles.d/mpsfleet.conf"]
    assert path.stat().st_mode & 0o7777 == 0o644
    assert well.audit("n1") == ("ok", set())


def test_a_reset_is_refused_while_the_node_is_not_drained(fleet: Rehearsal) -> None:
    assert "not drained" in fleet.program_on("n1", "node", "reset", code=75)["refused"]


def rows(table: list[tuple[str, set[str]]]) -> list[ParameterSet]:
    """Give each fault as a case; those that add seconds and no new path are left to the slow tests."""
    marks = dict.fromkeys(("mode-closed", "second-daemon", "nvidia-smi-hanging"), (pytest.mark.slow,))
    return [pytest.param(fault, codes, id=fault, marks=marks.get(fault, ())) for fault, codes in table]


@pytest.mark.parametrize(("fault", "codes"), rows(BY_RESET))
def test_a_fault_is_named_and_a_reset_puts_it_right(well: Rehearsal, fault: str, codes: set[str]) -> None:
    well.break_node("n1", fault)
    verdict, named = well.audit("n1")
    assert verdict != "ok"
    assert codes & named, named
    well.mend("n1")
    well.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    well.program_on("n1", "node", "reset", "--others", code=0)
    assert well.audit("n1") == ("ok", set())


@pytest.mark.parametrize(("fault", "codes"), rows(BY_MENDING))
def test_a_fault_beyond_a_reset_is_named(well: Rehearsal, fault: str, codes: set[str]) -> None:
    well.break_node("n1", fault)
    verdict, named = well.audit("n1")
    assert verdict != "ok"
    assert codes & named, named
    well.mend("n1")
    assert well.audit("n1") == ("ok", set())


@pytest.mark.slow
def test_a_daemon_that_systemd_gave_up_is_absent_and_a_reset_brings_it_back(well: Rehearsal) -> None:
    well.break_node("n1", "daemon-killed")
    assert well.on("n1", "systemctl", "is-active", "nvidia-mps", code=3) == "failed\n"
    assert well.audit("n1") == ("critical", {"daemon-absent", "unit-start-limit"})
    well.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    well.program_on("n1", "node", "reset", code=0)
    assert well.audit("n1") == ("ok", set())


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "server-fault", "server-recovered", "clients-of-two-users", "client-waiting", "job-bypasses-mps", "crash-loop",
        "server-orphaned", "xid", "mig", "compute-mode-exclusive", "driver-not-loaded", "ecc", "unified-memory",
    ],
)  # fmt: skip
def test_what_only_a_simulated_node_can_have_comes_about_and_is_mended(well: Rehearsal, fault: str) -> None:
    assert well.break_node("n1", fault).startswith(f"n1: {fault}: ")
    well.mend("n1")
    assert well.mend("n1") == ["nothing to mend"]


def test_a_tampered_percentage_is_set_back_by_a_deploy_without_a_restart(well: Rehearsal) -> None:
    well.break_node("n1", "percentage-tampered")
    assert well.audit("n1") == ("warn", {"percentage-tampered"})
    assert [each["action"] for each in well.apply("n1")["changes"]] == ["set"]
    assert well.audit("n1") == ("ok", set())


def test_a_job_that_runs_keeps_its_node_from_a_reset(well: Rehearsal) -> None:
    well.on("ctl", "sbatch", "--nodelist=n1", "--gres=mps:50", "--wrap=sleep 600")
    well.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    refused = well.program_on("n1", "node", "reset", code=75)["refused"]
    number = well.on("ctl", "squeue", "--noheader", "-o", "%i").strip()
    well.on("ctl", "scancel", number)
    assert "a job is still on it" in refused
    well.program_on("n1", "node", "reset", code=0)


def test_a_verdict_drains_what_would_fail_jobs_and_nothing_else(well: Rehearsal) -> None:
    well.break_node("n1", "directory-deleted")
    hosts = [{"host": "n1", "node": "n1", "report": well.program_on("n1", "node", "audit"), "error": None}]
    reports = json.dumps({"schema": 1, "hosts": hosts})
    words = ("slurm", "verdict", "--reports", "-", "--trigger-drain", "--cluster", "sim")
    answer = well.program_on("ctl", *words, stdin=reports, code=2)
    assert answer["hosts"][0]["decision"]["done"] is True
    assert "mpsfleet: " in well.on("ctl", "sinfo", "-R")


def test_a_slurmctld_that_is_down_or_silent_is_said_to_be_unknown(fleet: Rehearsal) -> None:
    fleet.break_node("ctl", "slurmctld-stopped")
    done = fleet.on("ctl", "mpsfleet", "slurm", "nodes", code=3)
    fleet.mend("ctl")
    assert "Unable to contact slurm controller (connect failure)" in done
    assert "n1" in fleet.on("ctl", "mpsfleet", "slurm", "nodes")


def test_a_removal_takes_everything_away(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "1")
    nothing_up.apply("n1")
    nothing_up.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    nothing_up.program_on("n1", "node", "remove", code=0)
    root = nothing_up.root("n1")
    assert not (root / "usr/sbin/mpsfleet").exists()
    assert not (root / "etc/systemd/system/nvidia-mps.service").exists()
    assert not (root / "run/nvidia-mps/node").exists()
