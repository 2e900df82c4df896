"""Servers under NVIDIA's own control daemon: found among its children, judged by what lasts, and never a drain.

Without a GPU NVIDIA's server ends at once, which is a crash loop as it is; a living one is a stand-in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

NODE = "n3"
PIPE = "/run/nvidia-mps/node"
SERVER = "/usr/sbin/nvidia-cuda-mps-server"
# Invented: it lives until it is killed, and tells its daemon nothing.
STAND_IN = """\
#!/bin/sh
while :; do sleep 1; done
"""
START = "echo start_server -uid {uid} | CUDA_MPS_PIPE_DIRECTORY=" + PIPE + " timeout 5 nvidia-cuda-mps-control"


def sh(fleet: Fleet, script: str, user: str | None = None) -> str:
    """Run a script of the shell on the node."""
    return fleet.cluster.must(NODE, "sh", "-c", script, user=user)


def found(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Return the findings of an audit by their codes."""
    return {each["code"]: each for each in fleet.audit(NODE)[0]["findings"]}


def is_left_in_service(fleet: Fleet) -> bool:
    """Have the controller judge the node as it does every few minutes, and tell whether it left it in service."""
    fleet.play("check_mps_health", limit=NODE, trigger_drain=True)
    return fleet.reason(NODE) == ""


def stand_ins(fleet: Fleet) -> list[str]:
    pattern = f"^/bin/sh .*{SERVER.rpartition('/')[2]}"
    return fleet.cluster.exec(NODE, ("pgrep", "-f", pattern)).stdout.split()


@pytest.fixture
def server(fleet: Fleet) -> Iterator[str]:
    """Provide the pid of a stand-in server of root's under the node's daemon."""
    fleet.cluster.must(
        NODE, "sh", "-c", f"mv {SERVER} {SERVER}.hidden; cat > {SERVER}; chmod 755 {SERVER}", stdin=STAND_IN
    )
    try:
        sh(fleet, START.format(uid=0))
        (pid,) = stand_ins(fleet)
        yield pid
    finally:
        for each in stand_ins(fleet):
            fleet.cluster.exec(NODE, ("kill", "-9", each))
        fleet.cluster.must(NODE, "mv", f"{SERVER}.hidden", SERVER)


def test_a_server_that_was_started_a_moment_ago_is_no_finding(fleet: Fleet, server: str) -> None:
    assert found(fleet) == {}
    assert stand_ins(fleet) == [server]


def test_a_stopped_server_is_named(fleet: Fleet, server: str) -> None:
    sh(fleet, f"kill -STOP {server}")
    findings = found(fleet)
    sh(fleet, f"kill -CONT {server}")

    assert set(findings) == {"server-not-ready"}, findings
    assert "is stopped (SIGSTOP), so its clients wait" in findings["server-not-ready"]["message"]
    assert found(fleet) == {}


def test_a_server_that_outlived_its_daemon_is_named_and_left_alone(fleet: Fleet, server: str) -> None:
    sh(fleet, f"kill -9 {fleet.main_pid(NODE)}; sleep 7")  # the unit starts another after five seconds
    findings = found(fleet)

    assert set(findings) == {"server-orphaned"}
    assert "an MPS server of user 0 lives on without its control daemon" in findings["server-orphaned"]["message"]
    assert findings["server-orphaned"]["evidence"]["server"] == server
    assert is_left_in_service(fleet)
    assert stand_ins(fleet) == [server]


def test_servers_that_end_at_their_start_are_a_crash_loop_from_the_third_audit_on(fleet: Fleet) -> None:
    assert found(fleet) == {}

    def again() -> set[str]:
        sh(fleet, f"{START.format(uid=2001)}; sleep 1")
        return set(found(fleet))

    named = [again() for _ in range(4)]

    assert named == [set(), set(), {"server-crash-loop"}, {"server-crash-loop"}]
    finding = found(fleet)["server-crash-loop"]
    assert (finding["severity"], finding["origin"]) == ("critical", "either")
    assert is_left_in_service(fleet)


def test_a_users_process_by_the_name_of_a_server_is_none(fleet: Fleet) -> None:
    sh(fleet, "cp /bin/sleep /tmp/nvidia-cuda-mps-server; (setsid /tmp/nvidia-cuda-mps-server 30 >/dev/null 2>&1 &)",
       user="alice")  # fmt: skip
    time.sleep(0.3)
    findings = found(fleet)
    sh(fleet, "pkill -f '^/tmp/nvidia-cuda-mps-[s]erver'; rm /tmp/nvidia-cuda-mps-server", user="alice")

    assert findings == {}
