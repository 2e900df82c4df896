"""Slurm's health check on real nodes: slurmd runs it, Slurm keeps what it found, and no job is harmed by what it does."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from mpsfleet.node import health_state, hook_files
from mpsfleet.node.files import HEAL
from mpsfleet.slurm import publication

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

    from mpsfleet.slurm.publication import Publication

NODE = "n2"
SLURM_CONF = f"HealthCheckProgram={hook_files.HEALTH_CHECK}\nHealthCheckInterval=5\nHealthCheckNodeState=ANY\n"
RESET = "own_reset = true\n"


def wait(is_so: Any, what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"{what} was not so within {seconds} s"
        time.sleep(0.3)


@pytest.fixture
def fleet(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with nothing known of earlier health checks on n2, and n2 as it was afterwards."""
    cluster = deployed.cluster
    config = cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml")
    forget(deployed)
    yield deployed
    cluster.mend(cluster.controller)
    cluster.mend(NODE)
    for user in ("alice", "bob"):
        cluster.must("ctl", "scancel", f"--user={user}")
    deployed.wait_for("no jobs")
    cluster.exec(NODE, ("rm", "-rf", "/run/mpsfleet/jobs"))
    apply(deployed, config)
    if deployed.codes(NODE) - deployed.unsupported:
        deployed.drain(NODE, "mpsfleet: reset")
        cluster.must(NODE, "mpsfleet", "node", "reset", "--others")
    if "DRAIN" in cluster.node_state(NODE):
        deployed.undrain(NODE)
    forget(deployed)


def forget(fleet: Fleet) -> None:
    fleet.cluster.must(NODE, "rm", "-f", health_state.STATE, health_state.REPORT)
    tell(fleet, "Extra", "")
    tell(fleet, "Comment", "")


def tell(fleet: Fleet, field: str, text: str) -> None:
    """Write a node's text as an administrator; Slurm 20.11 has no Extra."""
    fleet.cluster.exec("ctl", ("scontrol", "update", f"NodeName={NODE}", f"{field}={text}"))


def apply(fleet: Fleet, config: str) -> None:
    done = fleet.cluster.exec(NODE, ("mpsfleet", "node", "apply", "--config", "-"), stdin=config)
    assert done.returncode == 0, done.stdout + done.stderr


def ask_for(fleet: Fleet, line: str) -> None:
    """Add a line to the table [slurm] of n2's node.toml."""
    config = fleet.cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml")
    apply(fleet, config.replace("[slurm]\n", f"[slurm]\n{line}"))


def check(fleet: Fleet, *more: str) -> float:
    """Run the health check as slurmd does, without a PATH; return the seconds it took."""
    begin = time.monotonic()
    command = ("/usr/bin/env", "-i", f"SLURMD_NODENAME={NODE}", *more, hook_files.HEALTH_CHECK)
    done = fleet.cluster.exec(NODE, command)
    assert done.returncode == 0
    assert done.stdout == ""
    return time.monotonic() - begin


def stop(fleet: Fleet) -> None:
    """Let the node be without its daemon."""
    fleet.cluster.must(NODE, "systemctl", "stop", "nvidia-mps.service")


def shown(fleet: Fleet) -> str:
    """Return n2's Extra as scontrol prints it, or its Comment where Slurm has no Extra."""
    text = fleet.cluster.must("ctl", "scontrol", "show", "node", NODE)
    rows = [each.strip() for each in text.splitlines()]
    texts = [each.partition("=")[2] for each in rows if each.startswith(("Extra=", "Comment="))]
    return next((each for each in texts if each != "(null)"), "")


def published(fleet: Fleet) -> Publication:
    found = publication.parse(shown(fleet))
    assert found is not None, shown(fleet)
    return found


def codes(found: Publication) -> set[str]:
    return {each.code for each in found.entries}


def test_slurmd_runs_it_and_slurm_shows_what_it_found(fleet: Fleet) -> None:
    cluster = fleet.cluster
    machines = ("ctl", *cluster.nodes)
    for each in machines:
        cluster.must(each, "sh", "-c", "cat >> /etc/slurm/slurm.conf", stdin=SLURM_CONF)
    try:
        cluster.must("ctl", "scontrol", "reconfigure")
        wait(lambda: publication.parse(shown(fleet)) is not None, "something published", 60)
        wait(lambda: published(fleet).seen == 3, "a third publication", 60)
        found = published(fleet)
    finally:
        for each in machines:
            cluster.must(each, "sed", "-i", "/^HealthCheck/d", "/etc/slurm/slurm.conf")
        cluster.must("ctl", "scontrol", "reconfigure")
        time.sleep(8)  # a check that is under way
        for each in cluster.nodes:
            for field in ("Extra", "Comment"):
                cluster.exec("ctl", ("scontrol", "update", f"NodeName={each}", f"{field}="))

    assert codes(found) <= fleet.unsupported
    assert cluster.node_state(NODE) == "IDLE"


def test_a_fault_is_published_with_its_code_and_the_report_kept(fleet: Fleet) -> None:
    check(fleet)
    assert codes(published(fleet)) <= fleet.unsupported
    stop(fleet)

    check(fleet)

    found = published(fleet)
    assert (found.verdict, found.seen, found.entries[0].code) == ("critical", 1, "daemon-absent")
    report = json.loads(fleet.cluster.must(NODE, "cat", health_state.REPORT))
    assert (report["verdict"], report["node"]) == ("critical", NODE)
    assert fleet.cluster.exec(NODE, ("cat", health_state.REPORT), user="alice").returncode != 0
    assert fleet.cluster.node_state(NODE) == "IDLE"


def test_a_node_that_stays_well_asks_slurmctld_nothing(fleet: Fleet) -> None:
    for _ in range(3):
        check(fleet)
    before = published(fleet)
    fleet.cluster.break_("ctl", "slurmctld-hung")

    took = [check(fleet) for _ in range(3)]

    fleet.cluster.mend("ctl")
    assert max(took) < 5
    assert published(fleet) == before


def test_a_slurmctld_that_hangs_delays_the_publication_and_the_check_ends_in_time(fleet: Fleet) -> None:
    check(fleet)
    stop(fleet)
    fleet.cluster.break_("ctl", "slurmctld-hung")

    took = check(fleet)
    fleet.cluster.mend("ctl")
    late = published(fleet)
    check(fleet)

    assert took < 30
    assert late.verdict != "critical"
    assert "daemon-absent" in codes(published(fleet))


def test_a_text_of_somebody_elses_is_left_alone(fleet: Fleet) -> None:
    for field in ("Extra", "Comment"):
        tell(fleet, field, "rack 7")

    for _ in range(4):
        check(fleet)

    assert shown(fleet) == "rack 7"
    said = fleet.cluster.must(NODE, "journalctl", "--no-pager", "-t", "mpsfleet")
    assert "is somebody else's text, which stays" in said


def healed(fleet: Fleet) -> str:
    """Wait until the unit has ended; return what it said last."""
    ended = ("inactive", "failed")
    state = ("systemctl", "show", "-p", "ActiveState", "--value", HEAL)
    wait(lambda: fleet.cluster.must(NODE, *state).strip() in ended, "the end of the unit", 60)
    return fleet.cluster.must(NODE, "journalctl", "--no-pager", "-o", "cat", "-n", "20", "-u", HEAL)


def test_a_daemon_that_has_ended_is_started_by_the_unit_without_a_drain(fleet: Fleet) -> None:
    ask_for(fleet, RESET)
    stop(fleet)

    check(fleet)
    said = healed(fleet)

    assert fleet.codes(NODE) <= fleet.unsupported, said
    assert fleet.cluster.node_state(NODE) == "IDLE"


def test_beside_a_job_no_daemon_is_started(fleet: Fleet) -> None:
    ask_for(fleet, RESET)
    fleet.cluster.submit("srun sleep 600", "--gres=gpu:1", f"--nodelist={NODE}")
    fleet.wait_for("a job")
    wait(lambda: " 0 " in fleet.cluster.exec(NODE, ("scontrol", "listpids")).stdout, "its step")
    stop(fleet)

    check(fleet)
    said = healed(fleet)

    assert "of job" in said
    assert "wait for its end" in said
    assert "daemon-absent" in fleet.codes(NODE)
    assert fleet.cluster.exec(NODE, ("systemctl", "is-failed", "--quiet", HEAL)).returncode != 0


def test_an_ill_daemon_is_reset_on_a_node_that_we_drained_and_left_alone_on_any_other(fleet: Fleet) -> None:
    ask_for(fleet, RESET)
    fleet.cluster.break_(NODE, "daemon-stopped")
    before = fleet.main_pid(NODE)

    check(fleet)
    refused = healed(fleet)
    untouched = fleet.main_pid(NODE)
    fleet.drain(NODE, "mpsfleet: daemon-wedged")
    fleet.cluster.must(NODE, "rm", health_state.STATE)  # and with it the ten minutes
    check(fleet)
    said = healed(fleet)

    assert "not drained" in refused
    assert untouched == before
    assert fleet.main_pid(NODE) != before, said
    assert fleet.codes(NODE) <= fleet.unsupported
    assert fleet.reason(NODE).startswith("mpsfleet: daemon-wedged")


def test_a_node_drains_itself_at_the_third_check_where_it_is_asked_for(fleet: Fleet) -> None:
    ask_for(fleet, "own_drain = true\n")
    stop(fleet)

    states = []
    for _ in range(3):
        check(fleet)
        states.append(fleet.cluster.node_state(NODE))

    assert states == ["IDLE", "IDLE", "IDLE+DRAIN"]
    assert fleet.reason(NODE).startswith("mpsfleet: daemon-absent [root@")


def test_the_kill_switch_leaves_all_as_it_is(fleet: Fleet) -> None:
    fleet.cluster.must(NODE, "touch", "/etc/mpsfleet/off")
    try:
        check(fleet)
    finally:
        fleet.cluster.must(NODE, "rm", "/etc/mpsfleet/off")

    assert shown(fleet) == ""
