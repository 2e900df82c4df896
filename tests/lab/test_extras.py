"""What a site may ask for beside the daemons: an audit by timer or by NHC, and a profile for logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mpsfleet.node import extras
from mpsfleet.node.host_facts import TIMER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

NODE = "n3"
ASKED = "[audit]\ntimer_minutes = 5\nnhc = true\n[jobs]\nprofile = true\n"
# What NHC gives a check: a function `die` that takes a status and a sentence, and its files as one script.
NHC = f'die() {{ shift; echo "die: $*"; }}; . {extras.NHC_PATH}; check_mpsfleet; echo "status $?"'


@pytest.fixture(scope="module")
def asked(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with all extras on n3, and n3 as it was afterwards."""
    before = deployed.cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml")
    apply(deployed, before + ASKED)
    yield deployed
    apply(deployed, before)


def apply(fleet: Fleet, config: str) -> str:
    done = fleet.cluster.exec(NODE, ("mpsfleet", "node", "apply", "--config", "-"), stdin=config)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_timer_audits_and_a_node_that_is_not_well_stands_among_the_failed_units(asked: Fleet) -> None:
    cluster = asked.cluster
    assert TIMER in cluster.must(NODE, "systemctl", "list-timers", "--no-pager")
    cluster.must(NODE, "systemctl", "start", "mpsfleet-audit.service")

    asked.cluster.break_(NODE, "mode-closed")
    failed = cluster.exec(NODE, ("systemctl", "start", "mpsfleet-audit.service"))
    listed = cluster.exec(NODE, ("systemctl", "--failed", "--no-pager"))
    told = cluster.must(NODE, "journalctl", "--no-pager", "-u", "mpsfleet-audit.service")
    apply(asked, cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml"))
    cluster.must(NODE, "systemctl", "start", "mpsfleet-audit.service")

    assert failed.returncode != 0
    assert "mpsfleet-audit.service" in listed.stdout
    assert "directory-mode" in told


def test_nhc_gets_a_check_that_names_the_fault_in_one_line(asked: Fleet) -> None:
    well = asked.cluster.must(NODE, "bash", "-c", NHC)
    asked.cluster.break_(NODE, "mode-closed")
    ill = asked.cluster.must(NODE, "bash", "-c", NHC).splitlines()
    apply(asked, asked.cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml"))

    assert well == "status 0\n"
    assert ill[-1] == "status 1"
    assert ill[0].startswith("die: check_mpsfleet:  critical: ")
    assert len(ill) == 2


def test_a_login_finds_the_daemon_by_the_profile(asked: Fleet) -> None:
    ask = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"

    assert asked.cluster.must(NODE, "bash", "-lc", ask, user="alice") == "100.0\n"


def test_what_is_asked_for_no_more_is_taken_away(asked: Fleet) -> None:
    before = asked.cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml")
    apply(asked, before.replace(ASKED, ""))

    left = asked.cluster.exec(NODE, ("ls", *extras.every_path()[1:]))
    timers = asked.cluster.must(NODE, "systemctl", "list-timers", "--no-pager", "--all")
    again = apply(asked, before.replace(ASKED, ""))
    apply(asked, before)

    assert left.stdout == ""
    assert TIMER not in timers
    assert "nothing to apply" in again
