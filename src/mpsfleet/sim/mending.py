"""Undoing what a reset does not undo: each fault notes how when it is brought about, and `mend` does it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node import jobs as records
from mpsfleet.node.host import Host
from mpsfleet.sim import gpu, mps, processes
from mpsfleet.sim.place import CONTROLLER, locked, read_json, write_json
from mpsfleet.sim.slurm import jobs
from mpsfleet.sim.slurm.cluster import changing

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place
    from mpsfleet.sim.processes import Known

_FILE = "mend.json"


class Undo(NamedTuple):
    """One thing to undo.

    `kind`: "end" a process, set a "mode" back, "gpus" are well, "slurmctld" answers,
    a GPU's "compute-mode" is set back, "servers" are well, a "job" is cancelled,
    its "record" is removed; "none" where a reset undoes it.
    """

    fault: str
    kind: str
    subject: str = ""
    pid: int = 0
    start: int = 0


def note(place: Place, undo: Undo) -> None:
    """Keep an undo for `mend`."""
    with locked(place):
        write_json(place.state(_FILE), [*read_json(place.state(_FILE), []), list(undo)])


def note_process(place: Place, fault: str, known: Known, subject: str) -> None:
    """Keep that a process is to be ended."""
    note(place, Undo(fault, "end", subject, known.pid, known.start))


def broken(place: Place) -> list[str]:
    """Return the names of the faults that were brought about on a node since it was mended, in order."""
    return list(dict.fromkeys(each[0] for each in read_json(place.state(_FILE), [])))


def mend(place: Place) -> list[str]:
    """Undo what is noted, last first; return a line for each thing done. A reset does the rest."""
    with locked(place):
        noted = [Undo(*each) for each in read_json(place.state(_FILE), [])]
        said = [_undo(place, each) for each in reversed(noted)]
        write_json(place.state(_FILE), [])
    return [each for each in said if each] or ["nothing to mend"]


def _undo(place: Place, undo: Undo) -> str:
    if undo.kind == "end":
        known = processes.Known(undo.pid, undo.start, "")
        if not processes.send(known, signal.SIGKILL):
            return ""
        processes.wait_gone(known, 3.0)
        processes.forget(place, undo.pid)
        return f"ended {undo.subject}"
    if undo.kind == "mode":
        mode, _, path = undo.subject.partition(" ")
        os.chmod(place.path(path), int(mode, 8))
        return f"set the mode of {path} back to {mode}"
    if undo.kind == "gpus":
        gpu.heal(place.root)
        return "all simulated GPUs are well again"
    if undo.kind == "compute-mode":
        index, _, mode = undo.subject.partition(" ")
        gpu.set_compute_mode(place.root, int(index), mode)
        return f"set the compute mode of GPU {index} back to {mode}"
    if undo.kind == "servers":
        mps.set_servers(place.root, "well")
        return "servers start well again"
    return _undo_in_slurm(place, undo)


def _undo_in_slurm(place: Place, undo: Undo) -> str:
    if undo.kind == "job":
        with changing(place.controller) as cluster:
            job = cluster.jobs.get(undo.subject)
            if job is not None and not job.ended:
                jobs.cancel(place.controller, cluster, job)
        return f"cancelled job {undo.subject}"
    if undo.kind == "record":
        records.forget(Host.at(place.root), int(undo.subject))
        return f"removed the record of job {undo.subject}"
    if undo.kind == "slurmctld" and place.name == CONTROLLER:
        with changing(place) as cluster:
            cluster.slurmctld = "up"
        return "slurmctld answers again"
    return ""
