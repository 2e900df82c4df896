"""No running job is harmed: what is done elsewhere does not reach it, and what would is refused."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

PIPE = "/run/nvidia-mps/node"
SERVER = "/usr/sbin/nvidia-cuda-mps-server"
# Invented: a stand-in for NVIDIA's server, which cannot run without a GPU. It ends only by force.
STAND_IN = """\
#!/bin/sh
trap '' TERM INT HUP
while :; do sleep 1; done
"""
BEAT = "for i in $(seq 600); do date +%s > /tmp/beat; sleep 0.2; done"


def result(fleet: Fleet, node: str, *words: str) -> dict[str, object]:
    """Run an acting verb on a node and return its JSON."""
    done = fleet.cluster.exec(node, ("mpsfleet", "node", *words, "--json"))
    outcome: dict[str, object] = json.loads(done.stdout)
    outcome["rc"] = done.returncode
    return outcome


def test_a_job_on_n1_lives_through_whatever_is_done_to_the_others(fleet: Fleet) -> None:
    job = fleet.cluster.submit(BEAT, "--gres=mps:50", "--nodelist=n1")
    fleet.wait_for("a job")
    daemon = fleet.main_pid("n1")
    fleet.cluster.break_("n2", "daemon-stopped")
    fleet.cluster.break_("n3", "control-swapped")
    fleet.cluster.break_("n4", "directory-deleted")

    fleet.play("check_mps_health", trigger_drain=True)
    reset = fleet.play("reset_mps", limit="n2,n3,n4")

    assert reset.rc == 0, reset.out
    shown = fleet.cluster.must("ctl", "scontrol", "show", "job", str(job))
    assert "JobState=RUNNING" in shown
    assert "Restarts=0" in shown
    assert fleet.main_pid("n1") == daemon
    fleet.cluster.must("ctl", "scancel", str(job))
    fleet.wait_for("no jobs")
    fleet.well("n1", "n2", "n3", "n4")


@pytest.mark.smoke
def test_a_job_with_mps_runs_before_and_after_a_reset(fleet: Fleet) -> None:
    def run() -> str:
        return fleet.cluster.must(
            "ctl", "srun", "--gres=mps:50", "--nodelist=n2", "sh", "-c",
            "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; echo get_server_list |"
            " CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/node nvidia-cuda-mps-control && echo reached",
            user="alice",
        ).strip()  # fmt: skip

    before = run()
    assert fleet.reset("n2").rc == 0
    after = run()

    assert before == after == "50\nreached"


def test_a_reset_waits_for_the_job_and_then_goes_on(fleet: Fleet) -> None:
    fleet.cluster.submit("sleep 6", "--gres=mps:50", "--nodelist=n2")
    fleet.wait_for("a job")

    play = fleet.play("reset_mps", limit="n2", mps_drain_wait_s=60)

    assert play.rc == 0, play.out
    fleet.well("n2")


def test_a_job_that_does_not_end_stops_the_reset_and_nothing_is_changed(fleet: Fleet) -> None:
    job = fleet.cluster.submit(BEAT, "--gres=mps:50", "--nodelist=n2")
    fleet.wait_for("a job")
    daemon = fleet.main_pid("n2")

    play = fleet.play("reset_mps", limit="n2", mps_drain_wait_s=3)

    assert play.rc != 0
    assert fleet.main_pid("n2") == daemon
    assert "JobState=RUNNING" in fleet.cluster.must("ctl", "scontrol", "show", "job", str(job))


def test_a_node_in_service_is_refused(fleet: Fleet) -> None:
    daemon = fleet.main_pid("n2")

    outcome = result(fleet, "n2", "reset")

    assert outcome["rc"] == 75
    assert "node n2 is IDLE, not drained" in str(outcome["refused"])
    assert fleet.main_pid("n2") == daemon


def test_a_drain_of_somebody_elses_is_refused_unless_accepted(fleet: Fleet) -> None:
    fleet.drain("n2", "replacing a PSU")

    refused = result(fleet, "n2", "reset")
    accepted = result(fleet, "n2", "reset", "--any-drain")

    assert refused["rc"] == 75
    assert "replacing a PSU" in str(refused["refused"])
    assert accepted["rc"] == 0
    assert fleet.reason("n2").startswith("replacing a PSU")


def test_the_playbook_leaves_a_node_alone_that_somebody_else_drained(fleet: Fleet) -> None:
    fleet.drain("n2", "replacing a PSU")
    daemon = fleet.main_pid("n2")

    play = fleet.reset("n2")

    assert play.rc != 0
    assert fleet.main_pid("n2") == daemon
    assert fleet.reason("n2").startswith("replacing a PSU")


def test_a_drained_node_with_a_job_on_it_is_refused(fleet: Fleet) -> None:
    fleet.cluster.submit(BEAT, "--gres=mps:50", "--nodelist=n2")
    fleet.wait_for("a job")
    fleet.drain("n2", "mpsfleet: reset")
    daemon = fleet.main_pid("n2")

    outcome = result(fleet, "n2", "reset")

    assert outcome["rc"] == 75
    assert "a job is still on it" in str(outcome["refused"])
    assert fleet.main_pid("n2") == daemon


def test_could_not_ask_slurm_means_not_free(fleet: Fleet) -> None:
    fleet.drain("n2", "mpsfleet: reset")
    fleet.cluster.break_("ctl", "slurmctld-stopped")
    daemon = fleet.main_pid("n2")

    outcome = result(fleet, "n2", "reset")

    assert outcome["rc"] == 75
    assert "Slurm cannot be asked about node n2" in str(outcome["refused"])
    assert fleet.main_pid("n2") == daemon


def test_a_dry_run_says_what_would_be_done_and_does_nothing(fleet: Fleet) -> None:
    fleet.drain("n2", "mpsfleet: reset")
    daemon = fleet.main_pid("n2")

    outcome = result(fleet, "n2", "reset", "--dry-run")

    assert outcome["rc"] == 0
    assert f"control daemon {daemon} of /run/nvidia-mps/node" in json.dumps(outcome["changes"])
    assert fleet.main_pid("n2") == daemon


def test_the_kill_switch_stops_every_act_and_no_audit(fleet: Fleet) -> None:
    fleet.drain("n2", "mpsfleet: reset")
    fleet.cluster.must("n2", "touch", "/etc/mpsfleet/off")
    try:
        outcomes = [result(fleet, "n2", verb) for verb in ("reset", "apply", "remove")]
        verdict = fleet.audit("n2")[0]["verdict"]
    finally:
        fleet.cluster.must("n2", "rm", "/etc/mpsfleet/off")

    assert [each["rc"] for each in outcomes] == [75, 75, 75]
    assert verdict == "ok"


def test_a_reset_killed_in_the_middle_converges_at_the_next_run(fleet: Fleet) -> None:
    fleet.drain("n2", "mpsfleet: reset")
    for delay in (0.15, 0.3, 0.45):
        fleet.cluster.must(
            "n2", "sh", "-c", f"mpsfleet node reset >/dev/null 2>&1 & p=$!; sleep {delay}; kill -9 $p; wait $p || true"
        )
        time.sleep(0.2)

    outcome = result(fleet, "n2", "reset")

    assert outcome["rc"] == 0, outcome


@pytest.fixture
def with_servers(fleet: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with a stand-in server running under n2's daemon."""
    fleet.cluster.must(
        "n2", "sh", "-c", f"mv {SERVER} {SERVER}.hidden; cat > {SERVER}; chmod 755 {SERVER}", stdin=STAND_IN
    )
    try:
        start = f"echo start_server -uid 0 | CUDA_MPS_PIPE_DIRECTORY={PIPE} timeout 5 nvidia-cuda-mps-control"
        fleet.cluster.must("n2", "sh", "-c", start)
        assert servers(fleet)
        yield fleet
    finally:
        for pid in servers(fleet):
            fleet.cluster.exec("n2", ("kill", "-9", pid))
        fleet.cluster.must("n2", "mv", f"{SERVER}.hidden", SERVER)


def servers(fleet: Fleet) -> list[str]:
    return fleet.cluster.exec("n2", ("pgrep", "-f", f"^/bin/sh .*{SERVER.rpartition('/')[2]}")).stdout.split()


@pytest.mark.parametrize("fault", [None, "daemon-stopped"])
def test_a_reset_of_a_free_node_ends_the_daemons_own_server_with_it(with_servers: Fleet, fault: str | None) -> None:
    fleet = with_servers
    if fault is not None:
        fleet.cluster.break_("n2", fault)

    play = fleet.reset("n2")

    assert play.rc == 0, play.out
    assert servers(fleet) == []
    fleet.well("n2")


def test_the_death_of_the_control_daemon_does_not_take_the_server_and_its_clients_along(with_servers: Fleet) -> None:
    fleet = with_servers
    before = servers(fleet)

    fleet.cluster.must("n2", "kill", "-9", str(fleet.main_pid("n2")))
    time.sleep(7)  # the unit starts another after five seconds

    assert servers(fleet) == before
    assert fleet.main_pid("n2") > 0
    assert fleet.codes("n2") == {"server-orphaned"}


@pytest.mark.parametrize("fault", [None, "daemon-stopped"])
def test_where_slurm_is_not_used_the_servers_must_say_that_they_have_no_client(
    with_servers: Fleet, fault: str | None
) -> None:
    fleet = with_servers
    text = fleet.cluster.must("n2", "cat", "/etc/mpsfleet/node.toml")
    alone = text.replace("enabled = true", "enabled = false")
    assert alone != text
    fleet.cluster.must("n2", "mpsfleet", "node", "apply", "--config", "-", stdin=alone)
    if fault is not None:
        fleet.cluster.break_("n2", fault)

    outcome = result(fleet, "n2", "reset")

    fleet.cluster.exec("n2", ("mpsfleet", "node", "apply", "--config", "-"), stdin=text)
    if fault is None:
        assert outcome["rc"] == 0, outcome
    else:
        assert outcome["rc"] == 75
        assert "whether it has clients cannot be asked" in str(outcome["refused"])
