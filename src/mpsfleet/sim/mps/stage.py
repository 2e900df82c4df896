"""Bringing servers and clients into the states that a fault needs; each function stands in `mpsfleet.sim.mps`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import processes
from mpsfleet.sim.mps import notes
from mpsfleet.sim.mps.program import argv_of
from mpsfleet.sim.place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.sim.processes import Known

_BEGIN_S = 10.0
_END_S = 5.0


def start_client(root: str, pipe_directory: str, uid: int, gpu: int, *, keeps_trying: bool) -> int:
    """Start a client of MPS and return its pid once it runs, waits or has been refused."""
    return _start(root, "trying" if keeps_trying else "client", pipe_directory, uid, gpu)


def start_bypassing(root: str, uid: int, gpu: int) -> int:
    """Start a program that uses a GPU beside MPS."""
    return _start(root, "bypassing", "/nonexistent", uid, gpu)


def hold_connection(root: str, pipe_directory: str) -> int:
    """Start a process that holds the daemon's connection."""
    return _start(root, "holding", pipe_directory, 0, 0)


def _start(root: str, manner: str, pipe_directory: str, uid: int, gpu: int) -> int:
    place = Place(root)
    path, argv = argv_of(root, "python3", "mpsfleet.sim.mps.client", root, manner, pipe_directory, str(uid), str(gpu))
    child = subprocess.Popen(
        argv,
        executable=path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": pipe_directory},
        start_new_session=True,
    )
    limit = time.monotonic() + _BEGIN_S
    while not notes.read_state(place, child.pid):
        if child.poll() is not None or time.monotonic() > limit:
            raise MpsfleetError(
                f"a simulated CUDA program did not start on {place.name} (exit status {child.returncode})"
            )
        time.sleep(0.01)
    child.returncode = child.returncode or 0  # it lives on by itself, and nobody here waits for it
    return child.pid


def client_state(root: str, pid: int) -> str:
    """Return what a client said last; of one that has ended only an error."""
    said = notes.read_state(Place(root), pid)
    return said if said.startswith("error") or processes.start_of(pid) is not None else ""


def servers(root: str) -> tuple[int, ...]:
    """Return the living servers of a node."""
    return tuple(each.pid for each in processes.registered(Place(root)) if each.kind == "server")


def server_state(root: str, pid: int) -> str:
    """Return the state of a living server."""
    return notes.read_state(Place(root), pid) if pid in servers(root) else ""


def fault_server(root: str, pid: int) -> None:
    """Put a server into FAULT. MpsfleetError where it has no client, or is none."""
    place = Place(root)
    processes.send(_known(place, pid), signal.SIGUSR1)
    limit = time.monotonic() + _END_S
    while notes.read_state(place, pid) != "FAULT":
        if time.monotonic() > limit:
            raise MpsfleetError(f"server {pid} on {place.name} did not fall into FAULT: it needs a client for that")
        time.sleep(0.01)


def end(root: str, pid: int) -> None:
    """End a process of the node; one that has ended already is none any more."""
    place = Place(root)
    try:
        known = _known(place, pid)
    except MpsfleetError:
        return
    processes.send(known, signal.SIGKILL)
    processes.wait_gone(known, _END_S)
    processes.forget(place, pid)
    notes.remove_notes(place, pid)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _known(place: Place, pid: int) -> Known:
    for each in processes.registered(place):
        if each.pid == pid:
            return each
    raise MpsfleetError(f"{place.name} has no process {pid}")
