"""Servers and clients on simulated nodes: each kind of trouble is named in one sentence, and none of it drains.

The simulated daemons are those of drivers 550, which tells a server's status, and 535, which does not; what they say of
clients follows NVIDIA's manual. Who waits for whom the kernel tells by real users, which takes root.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from rehearsal import Rehearsal, wait_until

from mpsfleet.codes import BY_NAME
from mpsfleet.sim import mps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

ALICE = 2001
OURS = frozenset(each for each in BY_NAME if each.startswith(("server-", "client-"))) | {"job-bypasses-mps"}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="simulated users are the developer's own without root")


@pytest.fixture(scope="module", params=["550", "535"])
def servers(
    program: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Rehearsal]:
    """Start a node with MPS deployed."""
    rehearsal = Rehearsal(tmp_path_factory.mktemp("run"), program)
    try:
        rehearsal.sim("up", "1", "--version", request.param)
        rehearsal.apply("n1")
        yield rehearsal
    finally:
        rehearsal.sim("down", code=None)


@pytest.fixture
def well(servers: Rehearsal) -> Iterator[Rehearsal]:
    """Provide a node that is well, and put it right afterwards: with a daemon that has no past."""
    yield servers
    servers.mend("n1")
    servers.on("ctl", "scancel", "--user=alice", code=None)
    servers.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    servers.program_on("n1", "node", "reset", "--others", code=0)
    servers.program_on("ctl", "slurm", "undrain", "n1")
    assert servers.audit("n1") == ("ok", set())


def has_status(fleet: Rehearsal) -> bool:
    return bool(json.loads((fleet.root("n1") / "sim/mps.json").read_text())["version"] == "550")


def ours(fleet: Rehearsal) -> dict[str, dict[str, Any]]:
    """Audit n1 and return the findings about servers and clients by their code."""
    report = fleet.program_on("n1", "node", "audit")
    return {each["code"]: each for each in report["findings"] if each["code"] in OURS}


def drains(fleet: Rehearsal) -> bool:
    """Let the controller judge n1's report as it does every few minutes, and tell whether it drained the node."""
    hosts = [{"host": "n1", "node": "n1", "report": fleet.program_on("n1", "node", "audit"), "error": None}]
    words = ("slurm", "verdict", "--reports", "-", "--trigger-drain", "--cluster", "sim")
    fleet.program_on("ctl", *words, stdin=json.dumps({"schema": 1, "hosts": hosts}))
    return fleet.is_drained("n1")


def alive_client(fleet: Rehearsal) -> int:
    """Start a program of alice's that MPS serves."""
    root = str(fleet.root("n1"))
    pid = mps.start_client(root, f"{root}/run/nvidia-mps/node", ALICE)
    assert wait_until(lambda: mps.client_state(root, pid) == "running")
    return pid


def end(fleet: Rehearsal, *pids: int) -> None:
    for each in pids:
        mps.end(str(fleet.root("n1")), each)


def test_a_sound_server_with_two_clients_of_one_users_jobs_is_no_finding(well: Rehearsal) -> None:
    for _ in range(2):
        well.on("ctl", "sbatch", "--nodelist=n1", "--gres=mps:50", "--wrap=sleep 600")
    assert wait_until(lambda: len(mps.servers(str(well.root("n1")))) == 1)

    report = well.program_on("n1", "node", "audit")
    numbers = well.on("ctl", "squeue", "--noheader", "-o", "%i").split()
    well.on("ctl", "scancel", *numbers)

    assert report["findings"] == []


def test_a_fault_is_named_with_the_clients_it_waits_for_and_later_that_it_is_over(well: Rehearsal) -> None:
    well.break_node("n1", "server-fault")
    found = ours(well)
    is_drained = drains(well)
    well.mend("n1")
    later = wait_until(lambda: not has_status(well) or "server-recovered" in ours(well))

    assert not is_drained
    assert later
    if not has_status(well):
        assert "server-fault" not in found
        return
    assert found["server-fault"]["origin"] == "user"
    assert " is in FAULT and takes no new client until its client has ended" in found["server-fault"]["message"]
    assert found["server-fault"]["evidence"]["clients"] in found["client-without-job"]["evidence"]["clients"]
    assert "server-fault" not in ours(well)


@AS_ROOT
@pytest.mark.parametrize("fault", ["client-waiting", "clients-of-two-users"])
def test_who_waits_behind_another_users_server_is_named_by_the_kernels_word(well: Rehearsal, fault: str) -> None:
    well.break_node("n1", fault)
    seen = wait_until(lambda: "client-waiting" in ours(well))
    found = ours(well)
    is_drained = drains(well)

    assert seen
    assert not is_drained
    assert found["client-waiting"]["origin"] == "user"
    sentence = "1 client of user 2002 waits behind the MPS server of user 2001 under /run/nvidia-mps/node"
    assert found["client-waiting"]["message"].startswith(sentence)


def test_a_job_that_asked_for_mps_and_computes_beside_it_is_named(well: Rehearsal) -> None:
    well.break_node("n1", "job-bypasses-mps")
    found = ours(well)

    assert not drains(well)
    assert set(found) == {"job-bypasses-mps"}
    assert " asked for a share of a GPU by MPS and computes on GPU 0 beside it" in found["job-bypasses-mps"]["message"]


def test_a_server_without_its_daemon_is_named_as_long_as_it_lives(well: Rehearsal) -> None:
    well.break_node("n1", "server-orphaned")
    found = ours(well)
    well.on("n1", "systemctl", "restart", "nvidia-mps.service", code=None)
    later = ours(well)

    assert found["server-orphaned"]["origin"] == "either"
    assert (
        "lives on without its control daemon and holds memory of GPU 0, 1, 2 and 3"
        in found["server-orphaned"]["message"]
    )
    assert set(later) == {"server-orphaned"}
    assert not drains(well)


def test_a_crash_loop_is_known_from_the_third_audit_on(well: Rehearsal) -> None:
    ours(well)
    well.break_node("n1", "crash-loop")
    root = str(well.root("n1"))

    def again() -> set[str]:
        before = (well.root("n1") / "var/log/nvidia-mps/control.log").read_text().count("exited with status")
        log = well.root("n1") / "var/log/nvidia-mps/control.log"
        assert wait_until(lambda: log.read_text().count("exited with status") > before + 1)
        return set(ours(well)) & {"server-crash-loop"}

    named = [again() for _ in range(4)]
    found = ours(well)
    is_drained = drains(well)

    assert named == [set(), set(), {"server-crash-loop"}, {"server-crash-loop"}]
    assert found["server-crash-loop"]["origin"] == "either"
    assert not is_drained
    well.mend("n1")
    client = alive_client(well)
    after = ours(well)
    end(well, client, *mps.servers(root))
    assert "server-crash-loop" not in after


def test_servers_that_give_way_to_another_users_are_no_crash_loop(well: Rehearsal) -> None:
    found: set[str] = set()
    for uid in (ALICE, ALICE + 1) * 2:
        root = str(well.root("n1"))
        pid = mps.start_client(root, f"{root}/run/nvidia-mps/node", uid)
        assert wait_until(lambda root=root, pid=pid: mps.client_state(root, pid) == "running")
        found |= set(ours(well))
        end(well, pid)

    assert found == {"client-without-job"}


def test_a_stopped_server_is_named(well: Rehearsal) -> None:
    alive_client(well)
    (server,) = mps.servers(str(well.root("n1")))
    os.kill(server, signal.SIGSTOP)
    found = ours(well)
    os.kill(server, signal.SIGCONT)

    assert "is stopped (SIGSTOP), so its clients wait" in found["server-not-ready"]["message"]


def test_forged_log_lines_change_no_verdict(well: Rehearsal) -> None:
    lines = "".join(
        f"[2026-12-01 03:00:0{each}.000 Control  2530] Server {each} exited with status 1\n"
        f"[2026-12-01 03:00:0{each}.000 Server  {each}] Fatal GPU fault; waiting for the clients to exit\n"
        for each in range(6)
    )
    for name in ("control.log", "server.log"):
        with (well.root("n1") / "var/log/nvidia-mps" / name).open("a") as stream:
            stream.write(lines)

    assert [well.audit("n1") for _ in range(4)] == [("ok", set())] * 4


def test_a_user_who_starts_a_process_by_that_name_forges_no_server(well: Rehearsal) -> None:
    root = well.root("n1")
    fake = root / "tmp/nvidia-cuda-mps-server"
    fake.write_text("#!/bin/sh\nsleep 30\n")
    fake.chmod(0o755)
    pid = os.posix_spawn(str(fake), [str(fake)], {"PATH": os.defpath})
    try:
        (root / f"proc/{pid}").symlink_to(f"/proc/{pid}")
        assert well.audit("n1") == ("ok", set())
    finally:
        (root / f"proc/{pid}").unlink()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
