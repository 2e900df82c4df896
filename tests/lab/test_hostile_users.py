"""A real user who plants names where root's daemon works gains nothing: at deploy, at start and at reset.

What is asserted is the defence: a tree of the user's choice outside stays as it was, and root's directories end up
root's own. The programs below only create names; they are not a way in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

BAIT = "/var/tmp/bait"
PIPE = "/tmp/nvidia-mps"
NODE = "n4"
# A loop of the user's: plant links at the directory and at every name in it, as fast as she can.
PLANT = f"""
import os, time
names = ("control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid", "control.log", "server.log")
end = time.time() + 25
while time.time() < end:
    for make in (
        lambda: os.symlink("{BAIT}", "{PIPE}"),
        lambda: os.mkdir("{PIPE}", 0o777),
        *(lambda name=name: os.symlink("{BAIT}/" + name, "{PIPE}/" + name) for name in names),
        lambda: os.rename("{PIPE}", "{PIPE}.mine"),
    ):
        try:
            make()
        except OSError:
            pass
"""


def bait(fleet: Fleet) -> str:
    """Return everything about the bait tree that root could have changed."""
    return fleet.cluster.must(
        NODE,
        "sh",
        "-c",
        f"find {BAIT} -printf '%p %y %m %U %G %s %T@\\n' | sort; find {BAIT} -type f -exec md5sum {{}} + | sort",
    )


@pytest.fixture
def planted(deployed: Fleet) -> Iterator[Fleet]:
    """Provide n4 with nothing of MPS, a bait tree of root's, and alice's loop running at the article's path."""
    fleet = deployed
    fleet.drain(NODE, "mpsfleet: reset")
    fleet.cluster.must(NODE, "mpsfleet", "node", "remove")
    fleet.undrain(NODE)
    names = "control control_privileged control_lock log nvidia-cuda-mps-control.pid control.log server.log secret"
    script = f"rm -rf {BAIT} {PIPE}*; mkdir -m 755 {BAIT}; cd {BAIT}; for n in {names}; do echo precious > $n; chmod 600 $n; done"
    fleet.cluster.must(NODE, "sh", "-c", script)
    fleet.cluster.must(NODE, "sh", "-c", "cat > /tmp/plant.py && (setsid python3 -IS /tmp/plant.py >/dev/null 2>&1 &)", user="alice",
                       stdin=PLANT)  # fmt: skip
    yield fleet
    fleet.cluster.exec(NODE, ("pkill", "-9", "-u", "alice", "-f", "/tmp/plant.py"))
    fleet.drain(NODE, "mpsfleet: reset")
    fleet.cluster.exec(NODE, ("mpsfleet", "node", "remove"))
    fleet.cluster.must(NODE, "sh", "-c", f"rm -rf {BAIT} {PIPE}*")
    fleet.undrain(NODE)
    back = fleet.play("deploy_mps", limit=NODE, mps_gpus_expected=4)
    assert back.rc == 0, back.out


@pytest.mark.parametrize("protected", [0, 1])
def test_a_user_who_plants_names_in_a_loop_gains_nothing(planted: Fleet, protected: int) -> None:
    fleet = planted
    sysctl(fleet, protected)
    try:
        before = bait(fleet)
        planted_by = fleet.cluster.must(NODE, "sh", "-c", f"sleep 0.5; ls -ld {PIPE}* | grep -c alice")
        assert int(planted_by) > 0

        deploy = fleet.play("deploy_mps", limit=NODE, mps_gpus_expected=4, mps_ipc_dir=PIPE)
        assert deploy.rc == 0, deploy.out
        for _ in range(3):
            fleet.cluster.must(NODE, "systemctl", "restart", "nvidia-mps.service")
        reset = fleet.play("reset_mps", limit=NODE, mps_gpus_expected=4, mps_ipc_dir=PIPE)
        assert reset.rc == 0, reset.out

        assert bait(fleet) == before
        fleet.cluster.must(NODE, "pgrep", "-u", "alice", "-f", "/tmp/plant.py")  # she is still at it
        owned = fleet.cluster.must(NODE, "stat", "-c", "%F %a %U", PIPE).strip()
        assert owned == "directory 755 root"
        alien = fleet.cluster.must(NODE, "find", PIPE, "-not", "-user", "root")
        assert alien == ""
        assert fleet.audit(NODE)[0]["verdict"] == "ok"
    finally:
        sysctl(fleet, 1)


def sysctl(fleet: Fleet, value: int) -> None:
    """Set the kernel's own protections, which a site may have off; all nodes share one kernel."""
    names = ("protected_symlinks", "protected_hardlinks", "protected_fifos", "protected_regular")
    script = "; ".join(f"echo {value} > /proc/sys/fs/{name}" for name in names)
    done = fleet.cluster.exec(NODE, ("sh", "-c", script))
    if done.returncode != 0:  # a node has /proc/sys read-only: the host's own is the same kernel's
        import subprocess

        subprocess.run(("sh", "-c", script), check=True)


PLANTABLE = [
    *(f"/run/nvidia-mps/node/{name}" for name in ("control", "control_privileged", "control_lock", "log")),
    "/run/nvidia-mps/node/nvidia-cuda-mps-control.pid",
    "/var/log/nvidia-mps/control.log",
    "/var/log/nvidia-mps/server.log",
]


@pytest.mark.parametrize("by", ["reset", "start", "deploy"])
@pytest.mark.parametrize("path", PLANTABLE)
def test_a_link_in_a_directory_that_was_open_for_a_while_is_not_followed(fleet: Fleet, path: str, by: str) -> None:
    """The directory was 0777, as a polluting script leaves it, and a user used that while."""
    node, directory = "n2", path.rpartition("/")[0]
    fleet.cluster.must(node, "sh", "-c", f"rm -rf {BAIT}; mkdir {BAIT}; echo precious > {BAIT}/x; chmod 600 {BAIT}/x")
    before = fleet.cluster.must(node, "stat", "-c", "%a %U %s %Y %Z", f"{BAIT}/x")
    fleet.cluster.must(node, "chmod", "0777", directory)
    fleet.cluster.must(node, "sh", "-c", f"rm -f {path}; ln -s {BAIT}/x {path}", user="alice")

    if by == "reset":
        fleet.drain(node, "mpsfleet: reset")
        done = fleet.cluster.exec(node, ("mpsfleet", "node", "reset"))
        assert done.returncode == 0, done.stdout + done.stderr
        fleet.undrain(node)
    elif by == "start":
        fleet.cluster.must(node, "systemctl", "restart", "nvidia-mps.service")
    else:
        fleet.cluster.must(node, "systemctl", "stop", "nvidia-mps.service")
        fleet.cluster.must(node, "mpsfleet", "node", "apply")

    assert fleet.cluster.must(node, "stat", "-c", "%a %U %s %Y %Z", f"{BAIT}/x") == before
    assert fleet.cluster.exec(node, ("test", "-L", path)).returncode != 0
    assert fleet.cluster.must(node, "stat", "-c", "%a %U", directory).strip() == "755 root"
    assert fleet.audit(node)[0]["verdict"] == "ok"


def test_a_users_process_under_mps_own_name_is_not_taken_for_the_daemon_and_survives(fleet: Fleet) -> None:
    script = "cp $(command -v sleep) /tmp/nvidia-cuda-mps-control && (setsid /tmp/nvidia-cuda-mps-control 60 >/dev/null 2>&1 &)"
    fleet.cluster.must("n2", "sh", "-c", script, user="alice")
    time.sleep(0.3)
    pid = fleet.cluster.must("n2", "pgrep", "-u", "alice", "-f", "/tmp/nvidia-cuda-mps-control").split()[0]

    assert fleet.audit("n2")[0]["verdict"] == "ok"
    assert fleet.reset("n2").rc == 0

    assert fleet.cluster.exec("n2", ("kill", "-0", pid)).returncode == 0
    fleet.cluster.must("n2", "kill", pid)
    fleet.cluster.must("n2", "rm", "/tmp/nvidia-cuda-mps-control")


def test_a_user_who_holds_the_daemons_connection_is_named_as_a_user_and_drains_nothing(fleet: Fleet) -> None:
    hold = (
        "import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        " s.connect('/run/nvidia-mps/node/control'); time.sleep(30)"
    )
    fleet.cluster.must("n2", "sh", "-c", f'(setsid python3 -IS -c "{hold}" >/dev/null 2>&1 &)', user="alice")
    time.sleep(0.5)

    report, seconds = fleet.audit("n2")
    play = fleet.play("check_mps_health", limit="n2", trigger_drain=True)

    assert [(each["code"], each["origin"]) for each in report["findings"]] == [("daemon-wedged", "user")]
    assert seconds < 5
    assert play.rc != 0
    assert fleet.reason("n2") == ""
    fleet.cluster.exec("n2", ("pkill", "-u", "alice", "-f", "nvidia-mps/node/control"))


def test_terminal_escapes_of_a_user_do_not_reach_the_terminal(fleet: Fleet) -> None:
    fleet.cluster.must("n2", "chmod", "0777", "/run/nvidia-mps/node")
    fleet.cluster.must("n2", "python3", "-c", "open('/run/nvidia-mps/node/\\x1b[31mred\\n', 'w')", user="alice")

    shown = fleet.cluster.exec("n2", ("mpsfleet", "node", "audit")).stdout
    fleet.drain("n2", "mpsfleet: reset")
    reset = fleet.cluster.exec("n2", ("mpsfleet", "node", "reset")).stdout
    fleet.cluster.must("n2", "sh", "-c", "rm -f /run/nvidia-mps/node/*red*")

    assert "\x1b" not in shown + reset
    assert r"\x1b[31mred\n" in reset


DEFAULT = "/tmp/nvidia-mps"


@pytest.fixture
def unguarded(fleet: Fleet) -> Iterator[Fleet]:
    """Provide n2 with NVIDIA's default directory gone, as after a boot with a /tmp in memory."""
    fleet.cluster.must("n2", "rm", "-rf", DEFAULT)
    yield fleet
    fleet.cluster.must("n2", "sh", "-c", f"rm -rf {DEFAULT}*")
    fleet.cluster.must("n2", "mpsfleet", "node", "prepare")


def test_a_user_who_owns_nvidias_default_directory_drains_nothing_and_loses_it(unguarded: Fleet) -> None:
    cluster = unguarded.cluster
    cluster.must("n2", "mkdir", "-m", "700", DEFAULT, user="alice")

    report, _ = unguarded.audit("n2")
    play = unguarded.play("check_mps_health", limit="n2", trigger_drain=True)
    done = cluster.exec("n2", ("mpsfleet", "node", "apply"))

    assert [(each["code"], each["origin"]) for each in report["findings"]] == [("default-directory-squatted", "user")]
    assert (play.rc != 0, unguarded.reason("n2")) == (True, "")
    assert done.returncode == 0, done.stdout
    assert cluster.must("n2", "stat", "-c", "%a %U", DEFAULT) == "755 root\n"
    assert cluster.exec("n2", ("mkdir", f"{DEFAULT}/mine"), user="alice").returncode != 0
    assert unguarded.audit("n2")[0]["verdict"] == "ok"


def test_a_users_own_daemon_in_the_default_directory_is_told_and_left_alone(unguarded: Fleet) -> None:
    cluster = unguarded.cluster
    cluster.must("n2", "sh", "-c", "nvidia-cuda-mps-control -d", user="alice")
    ask = ("sh", "-c", "echo get_server_list | nvidia-cuda-mps-control")

    told = cluster.exec("n2", ("mpsfleet", "node", "apply"))
    lives = cluster.exec("n2", ask, user="alice").returncode
    cluster.must("n2", "sh", "-c", "echo quit | nvidia-cuda-mps-control", user="alice")

    assert "a control daemon of user" in told.stdout
    assert lives == 0
