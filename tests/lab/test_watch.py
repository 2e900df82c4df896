"""The controller's own timer: what nodes publish in Slurm is judged there, and no node is asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node import health_state, hook_files
from mpsfleet.slurm import publication
from mpsfleet.slurm.publication import Entry, Publication

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

ABSENT = Entry("daemon-absent", "critical", "node")
SERVICE, TIMER = "mpsfleet-watch.service", "mpsfleet-watch.timer"


def publish(fleet: Fleet, node: str, *entries: Entry, seen: int = 1, at: float | None = None) -> None:
    """Publish for a node what its health check would."""
    verdict = entries[0].severity if entries else "ok"
    text = publication.text(Publication(verdict, seen, int(at or time.time()), entries))
    fleet.cluster.must("ctl", "scontrol", "update", f"NodeName={node}", f"{field(fleet)}={text}")


def field(fleet: Fleet) -> str:
    """Give the field that this Slurm has for it: 20.11 knows no Extra."""
    return "Comment" if "20.11." in fleet.cluster.must("ctl", "scontrol", "--version") else "Extra"


def judge(fleet: Fleet) -> str:
    """Run the watch once and give its lines."""
    begin = fleet.cluster.must("ctl", "date", "+%s.%N").strip()
    fleet.cluster.exec("ctl", ("systemctl", "start", SERVICE), timeout=60)
    words = ("-u", SERVICE, "-o", "cat", f"--since=@{begin}")
    return fleet.cluster.must("ctl", "journalctl", *words)


@pytest.fixture(scope="module")
def watch(deployed: Fleet) -> Iterator[None]:
    """Put the watch on the controller, and take it away again."""
    play = deployed.play("watch_mps", trigger_drain="true", trigger_undrain="true", mps_max_drained_hour="50%")
    assert play.rc == 0, play.out
    yield
    play = deployed.play("watch_mps", mps_slurm_watch_minutes=0)
    assert play.rc == 0, play.out
    assert deployed.cluster.exec("ctl", ("systemctl", "cat", TIMER)).returncode != 0


@pytest.fixture
def watched(watch: None, fleet: Fleet) -> Iterator[Fleet]:  # noqa: ARG001  it is there
    """Provide the fleet with the watch on its controller, and nothing published afterwards."""
    yield fleet
    for node in fleet.cluster.nodes:
        fleet.cluster.must("ctl", "scontrol", "update", f"NodeName={node}", f"{field(fleet)}=")
        fleet.cluster.must(node, "rm", "-f", health_state.STATE, health_state.REPORT)


def test_a_timer_drains_what_fails_and_gives_back_what_is_well_again(watched: Fleet) -> None:
    for node in ("n1", "n3", "n4"):
        publish(watched, node)
    publish(watched, "n2", ABSENT)
    watched.cluster.must("ctl", "systemctl", "restart", TIMER)
    end = time.monotonic() + 40
    while not watched.reason("n2") and time.monotonic() < end:  # the timer's own first run
        time.sleep(0.5)
    assert watched.reason("n2").startswith("mpsfleet: daemon-absent [root@")
    assert watched.cluster.must("ctl", "systemctl", "is-enabled", TIMER).strip() == "enabled"

    time.sleep(1.1)  # what it published must be later than its drain
    publish(watched, "n2")
    judge(watched)
    judge(watched)
    assert watched.reason("n2") != ""  # one publication counts once
    time.sleep(1.1)
    publish(watched, "n2", seen=2)
    assert "n2: given back: mpsfleet: daemon-absent" in judge(watched)
    assert watched.reason("n2") == ""
    assert [watched.reason(each) for each in ("n1", "n3", "n4")] == ["", "", ""]


def test_what_the_nodes_health_checks_publish_drains_and_brings_back(watched: Fleet) -> None:
    cluster = watched.cluster

    def check(*nodes: str) -> None:
        for node in nodes:
            cluster.must(node, "env", "-i", f"SLURMD_NODENAME={node}", hook_files.HEALTH_CHECK)

    cluster.must("n2", "systemctl", "stop", "nvidia-mps.service")
    check(*cluster.nodes)
    assert "n2: drained: mpsfleet: daemon-absent" in judge(watched)
    assert [watched.reason(each) != "" for each in ("n1", "n2", "n3", "n4")] == [False, True, False, False]

    cluster.must("n2", "systemctl", "start", "nvidia-mps.service")
    time.sleep(1.1)
    check("n2")
    assert "n2: not given back: Found well once" in judge(watched)
    check("n2")
    assert "n2: given back: mpsfleet: daemon-absent" in judge(watched)
    end = time.monotonic() + 20
    while cluster.node_state("n2") != "IDLE" and time.monotonic() < end:
        time.sleep(0.3)  # until it has registered anew
    watched.well("n2")


def test_what_is_old_or_of_a_wrong_clock_or_missing_drains_nothing_and_is_told(watched: Fleet) -> None:
    publish(watched, "n1", ABSENT, at=time.time() - 10 * 3600)
    publish(watched, "n2", ABSENT, at=time.time() + 7200)
    publish(watched, "n3")
    told = judge(watched)

    assert "what it published is 10 hours old" in told
    assert "one of the two clocks is wrong" in told
    assert "it has published nothing" in told
    assert {watched.reason(each) for each in watched.cluster.nodes} == {""}


def test_the_playbook_twice_changes_nothing(watched: Fleet) -> None:
    again = watched.play("watch_mps", trigger_drain="true", trigger_undrain="true", mps_max_drained_hour="50%")
    assert again.recap("ctl")["changed"] == 0, again.out
    unit = watched.cluster.must("ctl", "systemctl", "cat", SERVICE)
    assert '"--max-drained-hour=50%%"' in unit
