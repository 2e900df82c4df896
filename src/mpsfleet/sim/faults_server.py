"""Faults of servers and clients: in FAULT, recovered, orphaned, crashing, of two users, waiting, bypassed."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError
from mpsfleet.node import jobs as records
from mpsfleet.node.host import Host
from mpsfleet.sim import mending, mps, processes
from mpsfleet.sim.slurm import jobs, step
from mpsfleet.sim.slurm.cluster import read
from mpsfleet.sim.target import live_daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpsfleet.sim.slurm.cluster import Job
    from mpsfleet.sim.target import Target

ALICE, BOB = 2001, 2002
_LIMIT_S = 5.0


def fault(target: Target) -> str:
    """Let a GPU fault of alice's program put her server into FAULT; the program has not ended yet."""
    client, server = _client_and_server(target)
    mps.fault_server(target.place.root, server)
    return f"server {server} is in FAULT while client {client} lives on"


def recover(target: Target) -> str:
    """Let the server fault and its clients end, after which it serves again."""
    client, server = _client_and_server(target)
    mps.fault_server(target.place.root, server)
    mps.end(target.place.root, client)
    if not _wait(lambda: mps.server_state(target.place.root, server) != "FAULT"):
        raise MpsfleetError(f"server {server} of {target.place.name} is still in FAULT: it has other clients")
    return f"server {server} was in FAULT and is {mps.server_state(target.place.root, server) or 'ended'}"


def two_users(target: Target) -> str:
    """Let Slurm place jobs of two users on the GPU, as it does: MPS serves one user at a time."""
    live_daemon(target)
    numbers = [str(_run_job(target, uid).number) for uid in (ALICE, BOB)]
    return f"jobs {' and '.join(numbers)} of alice and bob share a GPU of {target.place.name}"


def _run_job(target: Target, uid: int) -> Job:
    """Let Slurm run a user's job with half of a GPU on the node."""
    place = target.place
    words = ("--parsable", f"--nodelist={place.name}", "--gres=mps:50", "--wrap=sleep 3600")
    done = subprocess.run(
        (place.path("/usr/bin/sbatch"), *words),
        capture_output=True,
        text=True,
        cwd="/",
        env=mps.as_user(uid),
        check=False,
    )
    if done.returncode != 0:
        raise MpsfleetError(f"the job of uid {uid} was not taken: {done.stderr.strip()}")
    number = done.stdout.strip()
    mending.note(place, mending.Undo(target.fault, "job", number))
    job = read(place.controller).jobs[number]
    if job.state != "RUNNING":
        raise MpsfleetError(f"Slurm does not run job {number}: {place.name} has no room left, or takes no jobs")
    return job


def waiting(target: Target) -> str:
    """Let a program of alice keep her server, so that one of bob waits."""
    first, server = _client_and_server(target)
    second = _client(target, BOB)
    return f"client {second} of bob waits behind server {server}, which serves client {first} of alice"


def bypass(target: Target) -> str:
    """Let a program of alice use the GPU beside MPS, as one does that cannot see the pipe directory.

    It is a process of a job with shares of the GPU, recorded as the Prolog does, where the node takes jobs.
    """
    place = target.place
    if not jobs.is_usable(read(place.controller).nodes[place.name]):
        pid = mps.start_bypassing(place.root, ALICE, target.gpu)
        _note(target, pid, "the program that bypasses MPS")
        return f"process {pid} of alice uses GPU {target.gpu} without MPS; it is no job's, for the node takes none"
    job = _run_job(target, ALICE)
    pid = mps.start_bypassing(place.root, ALICE, job.indices[0])
    _note(target, pid, "the program that bypasses MPS")
    step.note_beside(place, job.number, pid)
    host = Host.at(place.root)
    records.write(host, records.Job(job.number, ALICE, "mps", (), tuple(job.indices), int(time.time())))
    mending.note(place, mending.Undo(target.fault, "record", str(job.number)))
    return f"process {pid} of job {job.number} of alice uses GPU {job.indices[0]} without MPS"


def orphan(target: Target) -> str:
    """Kill the control daemon alone; its server and client live on."""
    client, server = _client_and_server(target)
    daemon = live_daemon(target)
    processes.send(daemon, signal.SIGKILL)
    processes.wait_gone(daemon, _LIMIT_S)
    _note(target, server, "the orphaned server")
    return f"daemon {daemon.pid} is dead, server {server} and client {client} live on"


def crash_loop(target: Target) -> str:
    """Let every server end at once, while a client asks for one again and again."""
    mps.set_servers(target.place.root, "crash")
    mending.note(target.place, mending.Undo(target.fault, "servers"))
    for each in mps.servers(target.place.root):
        mps.end(target.place.root, each)
    client = _client(target, ALICE, keeps_trying=True)
    return f"each server ends at its start, and client {client} asks for one again and again"


def _client_and_server(target: Target) -> tuple[int, int]:
    """Return a new client of alice and the server that serves it."""
    daemon = live_daemon(target)
    client = _client(target, ALICE)
    _wait(lambda: mps.client_state(target.place.root, client) != "waiting")
    servers = [each for each in mps.servers(target.place.root) if processes.parent_of(each) == daemon.pid]
    if not servers:
        state = mps.client_state(target.place.root, client) or "ended"
        raise MpsfleetError(f"{target.place.name} started no server (the client is {state})")
    return client, servers[-1]


def _client(target: Target, uid: int, *, keeps_trying: bool = False) -> int:
    pid = mps.start_client(target.place.root, target.pipe_path, uid, target.gpu, keeps_trying=keeps_trying)
    _note(target, pid, f"client {pid}")
    return pid


def _wait(is_so: Callable[[], bool]) -> bool:
    limit = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def _note(target: Target, pid: int, subject: str) -> None:
    mending.note_process(target.place, target.fault, processes.Known(pid, processes.start_of(pid) or 0, ""), subject)
