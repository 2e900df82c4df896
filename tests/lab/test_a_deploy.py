"""Deploying: truthful in check mode, whole at the first run, and nothing left to do at the second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fleet import Fleet

LISTING = (
    "find",
    "/etc",
    "/usr/lib/mpsfleet",
    "/usr/sbin",
    "/run/nvidia-mps",
    "-newermt",
    "2000-01-01",
    "-printf",
    "%p %T@ %s %l\n",
)


def listing(fleet: Fleet, node: str) -> list[str]:
    """Return every file a deploy might touch, with its time, size and link."""
    return sorted(fleet.cluster.exec(node, LISTING).stdout.splitlines())


def take_off(fleet: Fleet, node: str) -> None:
    """Remove everything of ours from a node, if it is there."""
    if fleet.cluster.exec(node, ("test", "-e", "/usr/sbin/mpsfleet")).returncode == 0:
        fleet.drain(node, "mpsfleet: reset")
        done = fleet.cluster.exec(node, ("mpsfleet", "node", "remove"))
        assert done.returncode == 0, done.stdout + done.stderr
        fleet.undrain(node)


@pytest.fixture
def taken_off(deployed: Fleet) -> Fleet:
    """Provide the fleet with n4 as a node that was never deployed to."""
    take_off(deployed, "n4")
    return deployed


def test_check_mode_on_a_fresh_node_says_what_a_deploy_would_do_and_does_nothing(taken_off: Fleet) -> None:
    before = listing(taken_off, "n4")

    play = taken_off.play("deploy_mps", "--check", "--diff", limit="n4", mps_gpus_expected=4)

    assert play.rc == 0, play.out
    assert play.recap("n4")["changed"] == 1
    for part in ("nvidia-mps.service", "+KillMode=process", "+active_thread_percentage = 100", "/usr/sbin/mpsfleet"):
        assert part in play.out
    assert listing(taken_off, "n4") == before


def test_an_audit_of_a_node_never_deployed_to_says_that_no_daemon_runs(taken_off: Fleet) -> None:
    play = taken_off.play("check_mps_health", limit="n4", trigger_drain=True)

    assert play.rc != 0
    assert "no control daemon runs for /run/nvidia-mps/node; mpsfleet has not been deployed on this node" in play.out
    assert taken_off.reason("n4") == ""


@pytest.mark.smoke
def test_a_deploy_brings_the_daemon_and_a_second_one_changes_nothing(taken_off: Fleet) -> None:
    first = taken_off.play("deploy_mps", mps_gpus_expected=4)
    second = taken_off.play("deploy_mps", mps_gpus_expected=4)
    third = taken_off.play("deploy_mps", "--check", "--diff", mps_gpus_expected=4)

    assert (first.rc, first.recap("n4")["changed"], first.recap("n1")["changed"]) == (0, 1, 0), first.out
    for play in (second, third):
        assert play.rc == 0, play.out
        assert [play.recap(node)["changed"] for node in taken_off.cluster.nodes] == [0, 0, 0, 0]
    taken_off.well("n1", "n2", "n3", "n4")


def test_the_audit_of_a_well_fleet_is_ok(fleet: Fleet) -> None:
    play = fleet.play("check_mps_health")

    assert play.rc == 0, play.out
    assert "n[1-4]" in play.out


def test_what_is_deployed_is_roots_and_closed_to_others(fleet: Fleet) -> None:
    shown = fleet.cluster.must("n1", "stat", "-c", "%n %a %U", "/run/nvidia-mps/node", "/run/nvidia-mps/node/control_lock",
                               "/run/nvidia-mps/node/log", "/run/mpsfleet", "/etc/mpsfleet/node.toml")  # fmt: skip

    assert shown.splitlines() == [
        "/run/nvidia-mps/node 755 root",
        "/run/nvidia-mps/node/control_lock 600 root",
        "/run/nvidia-mps/node/log 622 root",
        "/run/mpsfleet 700 root",
        "/etc/mpsfleet/node.toml 644 root",
    ]


@pytest.mark.smoke
@pytest.mark.parametrize("words", [("audit",), ("apply", "--dry-run"), ("remove", "--dry-run"), ("reset", "--dry-run")])
def test_nothing_that_this_python_warns_of_is_used(fleet: Fleet, words: tuple[str, ...]) -> None:
    fleet.drain("n2", "mpsfleet: reset")
    strict = ("python3", "-W", "error", "-X", "dev", "-IS", "/usr/sbin/mpsfleet", "node")

    done = fleet.cluster.exec("n2", (*strict, *words))

    assert (done.returncode, done.stderr) == (0, "")


def test_a_change_of_share_is_live_without_a_restart(fleet: Fleet) -> None:
    before = fleet.main_pid("n2")

    changed = fleet.play("deploy_mps", limit="n2", mps_gpus_expected=4, mps_active_thread_percentage=50)

    assert changed.rc == 0, changed.out
    assert fleet.audit("n2")[0]["verdict"] == "ok"
    assert fleet.main_pid("n2") == before
    back = fleet.play("deploy_mps", limit="n2", mps_gpus_expected=4)
    assert (back.rc, fleet.main_pid("n2")) == (0, before), back.out


def test_a_reboot_brings_the_daemon_back(fleet: Fleet) -> None:
    """Stop everything as a shutdown would, then start what is wanted at boot: directories under /run are gone."""
    fleet.cluster.must("n3", "systemctl", "stop", "nvidia-mps.service")
    fleet.cluster.must("n3", "rm", "-rf", "/run/nvidia-mps", "/run/mpsfleet")

    fleet.cluster.must("n3", "systemctl", "start", "multi-user.target")

    fleet.well("n3")


@pytest.mark.smoke
def test_removal_leaves_nothing_but_logs(taken_off: Fleet) -> None:
    left = taken_off.cluster.must("n4", "find", "/etc", "/usr", "/run", "/var/log", "-xdev", "-name", "*mps*").split()

    ours = [each for each in left if "mpsfleet" in each or "nvidia-mps" in each]
    assert [
        each for each in ours if not each.startswith(("/run/mpsfleet", "/run/nvidia-mps", "/var/log/nvidia-mps"))
    ] == []
    assert not any(each.startswith("/run/nvidia-mps/node") for each in left)
    taken_off.play("deploy_mps", mps_gpus_expected=4)
