"""Each fault of the lab: seen within five seconds, named in one sentence, and put right by a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fleet import Fleet

# fault, the code that names it, a part of its sentence, the verdict
BY_RESET = [
    (
        "directory-deleted",
        "daemon-unreachable",
        "is alive, but its files in /run/nvidia-mps/node were deleted",
        "critical",
    ),
    (
        "control-swapped",
        "socket-hijacked",
        "/run/nvidia-mps/node/control is served by a process of user 2001",
        "critical",
    ),
    ("mode-polluted", "directory-mode", "has mode 0777: others can write in it", "critical"),
    ("mode-closed", "daemon-unreachable-by-users", "an ordinary user is stopped at /run/nvidia-mps/node", "critical"),
    ("owner-polluted", "directory-owner", "belongs to user 2001, not to root", "critical"),
    ("parent-closed", "directory-parent", "/run/nvidia-mps, above the pipe directory", "critical"),
    ("name-planted", "directory-hijacked", "is a link, not a directory of root's", "critical"),
    ("daemon-stopped", "daemon-wedged", "is stopped (SIGSTOP) and did not answer within 2 s", "critical"),
    ("daemon-killed", "daemon-absent", "its files are still there, but a socket file is no sign of life", "critical"),
    ("percentage-tampered", "percentage-tampered", "is 10, not the configured 100: it was changed", "warn"),
    ("second-daemon", "daemon-duplicate", "a second control daemon", "warn"),
    ("foreign-daemon", "daemon-duplicate", "serves /tmp/nvidia-mps beside the configured", "warn"),
]
BEYOND_RESET = [
    ("gpu-lost", "gpu-lost", "is lost: the driver no longer reaches it", "critical"),
    ("gpu-needs-reset", "gpu-requires-reset", "requires a reset", "critical"),
    ("gpu-missing", "gpu-missing", "nvidia-smi shows 3 of 4 GPUs", "critical"),
    ("driver-mismatch", "driver-mismatch", "do not match the loaded kernel driver", "critical"),
    ("nvidia-smi-hanging", "nvidia-smi-slow", "nvidia-smi did not answer within 4 s", "unknown"),
]


def seen(fleet: Fleet, node: str, code: str, sentence: str, verdict: str) -> None:
    """Assert that an audit names the fault in time."""
    report, seconds = fleet.audit(node)

    messages = [each["message"] for each in report["findings"] if each["code"] == code]
    assert any(sentence in each for each in messages), report
    assert all("\n" not in each for each in messages)
    assert report["verdict"] == verdict
    assert seconds < 5


@pytest.mark.parametrize(("fault", "code", "sentence", "verdict"), BY_RESET, ids=[each[0] for each in BY_RESET])
def test_a_fault_is_named_in_time_and_a_reset_puts_it_right(
    fleet: Fleet, fault: str, code: str, sentence: str, verdict: str
) -> None:
    fleet.cluster.break_("n2", fault)
    seen(fleet, "n2", code, sentence, verdict)
    others = {node: fleet.main_pid(node) for node in ("n1", "n3", "n4")}

    play = fleet.play("reset_mps", limit="n2", mps_reset_others=True)

    assert play.rc == 0, play.out
    fleet.well("n2")
    assert fleet.reason("n2") == ""
    assert {node: fleet.main_pid(node) for node in others} == others


@pytest.mark.parametrize(("fault", "code", "sentence", "verdict"), BEYOND_RESET, ids=[each[0] for each in BEYOND_RESET])
def test_a_fault_of_the_gpus_is_named_in_time_and_no_reset_pretends_to_mend_it(
    fleet: Fleet, fault: str, code: str, sentence: str, verdict: str
) -> None:
    fleet.cluster.break_("n3", fault)
    seen(fleet, "n3", code, sentence, verdict)
    daemon = fleet.main_pid("n3")

    play = fleet.reset("n3")

    assert play.rc != 0
    assert "a reset of MPS does not help here" in play.out
    assert fleet.main_pid("n3") == daemon


def test_one_run_names_different_faults_of_different_nodes(fleet: Fleet) -> None:
    fleet.cluster.break_("n2", "daemon-stopped")
    fleet.cluster.break_("n3", "directory-deleted")
    fleet.cluster.break_("n4", "percentage-tampered")

    play = fleet.play("check_mps_health")

    assert play.rc != 0
    for part in ("is stopped (SIGSTOP)", "were deleted", "is 10, not the configured 100"):
        assert part in play.out
    assert fleet.reason("n2") == fleet.reason("n3") == fleet.reason("n4") == ""


@pytest.mark.smoke
def test_a_drain_follows_what_makes_jobs_fail_and_a_reset_brings_the_nodes_back(fleet: Fleet) -> None:
    fleet.cluster.break_("n2", "daemon-stopped")
    fleet.cluster.break_("n3", "directory-deleted")
    fleet.cluster.break_("n4", "percentage-tampered")

    audit = fleet.play("check_mps_health", trigger_drain="true", mps_drain_after=1)

    assert audit.rc != 0
    assert fleet.reason("n2").startswith("mpsfleet: daemon-wedged [root@")
    assert fleet.reason("n3").startswith("mpsfleet: daemon-unreachable [root@")
    assert fleet.reason("n4") == ""
    assert fleet.cluster.node_state("n1") == "IDLE"

    reset = fleet.play("reset_mps")

    assert reset.rc == 0, reset.out
    fleet.well("n1", "n2", "n3", "n4")


def test_over_the_budget_nothing_more_is_drained_and_the_way_back_is_open(fleet: Fleet) -> None:
    for node in ("n2", "n3", "n4"):
        fleet.cluster.break_(node, "directory-deleted")

    audit = fleet.play("check_mps_health", trigger_drain="true", mps_max_drained="2")
    again = fleet.play("check_mps_health", trigger_drain="true", mps_max_drained="2")

    for play in (audit, again):
        assert "n4: no drain: The budget is spent: of the cluster's GPU nodes, mpsfleet keeps at most 2 " in play.out
    assert [fleet.reason(each) != "" for each in ("n2", "n3", "n4")] == [True, True, False]

    reset = fleet.play("reset_mps")

    assert reset.rc == 0, reset.out
    fleet.well("n1", "n2", "n3", "n4")


def test_a_daemon_that_others_keep_busy_is_not_a_fault(fleet: Fleet) -> None:
    loop = "for i in $(seq 150); do echo get_server_list | CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/node nvidia-cuda-mps-control; done"
    loops = " ".join([f"({loop}) >/dev/null 2>&1 &"] * 3)
    fleet.cluster.must("n1", "sh", "-c", loops, user="alice")

    verdicts = {fleet.audit("n1")[0]["verdict"] for _ in range(10)}

    assert verdicts == {"ok"}
