"""The processes of a job on its node: one that sleeps, and an MPS client beside it where a pipe directory is there."""

from __future__ import annotations

import os

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import mps, processes
from mpsfleet.sim.place import Place, read_json, write_json
from mpsfleet.sim.target import configured_pipe_directory


def main(root: str, number: int, seconds: float, gpu: int, uid: int) -> None:
    """Sleep as long as the job lasts, or until the fleet is down. `gpu` is the one it shares, -1 where it has none."""
    place = Place(root)
    processes.register(place, "job")
    pipe_path = place.path(configured_pipe_directory(place))
    if gpu >= 0 and os.path.exists(f"{pipe_path}/control"):
        _be_client(place, number, pipe_path, uid, gpu)
    processes.sleep_while_up(place.fleet, seconds)


def client_note(place: Place, number: int) -> str:
    """Return where it is noted which client a job has."""
    return place.state(f"job-{number}.json")


def note_beside(place: Place, number: int, pid: int) -> None:
    """Make a process that runs already one of a job's, beside its client."""
    write_json(place.state(f"job-{number}-beside.json"), [pid, processes.start_of(pid) or 0])


def beside(place: Place, number: int) -> processes.Known | None:
    """Return the process of a job that is not its client's."""
    noted = read_json(place.state(f"job-{number}-beside.json"), None)
    return processes.Known(noted[0], noted[1], "client") if noted else None


def _be_client(place: Place, number: int, pipe_path: str, uid: int, gpu: int) -> None:
    """Start the CUDA program of the job; one that fails does not end the job, as a sleeping script would not."""
    try:
        pid = mps.start_client(place.root, pipe_path, 0 if uid == os.geteuid() else uid, gpu)
    except (MpsfleetError, OSError):
        return
    start = processes.start_of(pid)
    if start is not None:
        write_json(client_note(place, number), [pid, start])
