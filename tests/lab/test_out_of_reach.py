"""What cannot be asked is unknown: it is said, it drains nothing, and it holds up nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fleet import Fleet


def test_a_node_that_ssh_cannot_reach_is_unknown_and_the_others_are_reported(fleet: Fleet) -> None:
    fleet.cluster.break_("n4", "ssh-down")

    play = fleet.play("check_mps_health", trigger_drain=True)

    assert play.rc != 0
    assert "n[1-3]" in play.out
    assert any("n4" in line and "unknown" in line.lower() for line in play.out.splitlines()), play.out
    assert {fleet.reason(node) for node in fleet.cluster.nodes} == {""}


@pytest.mark.parametrize("fault", ["slurmctld-stopped", "slurmctld-hung"])
def test_without_slurm_the_local_results_come_and_slurm_is_unknown(fleet: Fleet, fault: str) -> None:
    fleet.cluster.break_("n2", "directory-deleted")
    fleet.cluster.break_("ctl", fault)

    play = fleet.play("check_mps_health", trigger_drain=True)
    fleet.cluster.mend("ctl")

    assert play.rc != 0
    assert "were deleted" in play.out
    assert any("lurm" in line and "unknown" in line.lower() for line in play.out.splitlines()), play.out
    assert play.seconds < 40
    assert fleet.reason("n2") == ""


def test_a_wedged_daemon_and_a_hanging_nvidia_smi_hold_up_nobody(fleet: Fleet) -> None:
    sound = fleet.play("check_mps_health")
    fleet.cluster.break_("n2", "daemon-stopped")
    fleet.cluster.break_("n3", "nvidia-smi-hanging")

    play = fleet.play("check_mps_health")

    assert play.rc != 0
    assert play.seconds < sound.seconds + 6


def test_a_limited_run_judges_the_limited_nodes_alone(fleet: Fleet) -> None:
    fleet.cluster.break_("n3", "daemon-stopped")

    play = fleet.play("check_mps_health", limit="n1,n2")

    assert play.rc == 0, play.out
    assert not re.search(r"\bn3\b", play.out)


def test_check_mode_drains_nothing(fleet: Fleet) -> None:
    fleet.cluster.break_("n2", "daemon-stopped")

    play = fleet.play("check_mps_health", "--check", trigger_drain=True)

    assert "is stopped (SIGSTOP)" in play.out
    assert fleet.reason("n2") == ""


@pytest.mark.parametrize("value", ["maybe", "2"])
def test_a_trigger_drain_that_is_neither_is_a_clear_error(fleet: Fleet, value: str) -> None:
    play = fleet.play("check_mps_health", trigger_drain=value)

    assert play.rc != 0
    assert "trigger_drain" in play.out
