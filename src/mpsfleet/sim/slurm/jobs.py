"""The simulated scheduler and slurmd: jobs are placed, run as sleeping processes on their node, end, are cancelled.

Slurm gives gres/mps one GPU per node at a time (measured on 22.05 and 24.11), so a node serves one GPU's worth of
shares. A job does not run its command: it sleeps as long as the command's `sleep N` says, and is an MPS client while it
does.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from mpsfleet.sim import interpreter, processes
from mpsfleet.sim.place import Place, read_json
from mpsfleet.sim.slurm import step
from mpsfleet.sim.slurm.cluster import CPUS, SHARES_PER_GPU

if TYPE_CHECKING:
    from mpsfleet.sim.slurm.cluster import Cluster, Job, Node

DEFAULT_S = 60.0
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?|infinity)")
_ENDLESS_S = 86400.0 * 365
_KEPT_S = 300.0  # slurmctld forgets a finished job after MinJobAge


def seconds_of(command: str) -> float:
    """Return how long a job with this command sleeps."""
    found = _SLEEP.search(command)
    if found is None:
        return DEFAULT_S
    return _ENDLESS_S if found[1] == "infinity" else float(found[1])


def bring_forward(controller: Place, cluster: Cluster) -> None:
    """Notice jobs that have ended, forget old ones, and start those that can run. slurmctld must be up."""
    now = time.time()
    for job in tuple(cluster.jobs.values()):
        if job.state == "RUNNING" and processes.start_of(job.pid) != job.start:
            job.state, job.ended = "COMPLETED", now
            _end_client(_place(controller, job), job)
            cluster.nodes[job.node].busy = now
        if job.ended and now - job.ended > _KEPT_S:
            del cluster.jobs[str(job.number)]
    for job in sorted(cluster.jobs.values(), key=lambda each: each.number):
        if job.state == "PENDING":
            _try(controller, cluster, job)


def _try(controller: Place, cluster: Cluster, job: Job) -> None:
    if job.shares() > SHARES_PER_GPU:
        job.why = "Resources"
        return
    wanted = [each for each in cluster.nodes.values() if job.wanted_node in ("", each.name)]
    usable = [each for each in wanted if is_usable(each)]
    if wanted and not usable:
        job.why = f"ReqNodeNotAvail, UnavailableNodes:{','.join(each.name for each in wanted)}"
        return
    for node in usable:
        given = _given(cluster, node, job)
        if given is not None:
            job.indices = given
            _start(controller, job, node)
            return
    job.why = "Resources"


def is_usable(node: Node) -> bool:
    """Return whether Slurm places jobs on the node."""
    return not node.is_drain and not node.is_down and time.time() >= node.silent_until


def _given(cluster: Cluster, node: Node, job: Job) -> list[int] | None:
    """Return the GPUs that the job gets on the node, None where it does not fit."""
    running = cluster.on_node(node.name)
    if len(running) >= CPUS:
        return None
    taken = {index for each in running for index in each.indices}
    mine = [index for index, kind in enumerate(node.types) if job.type() in ("", kind)]
    free = [index for index in mine if index not in taken]
    if not job.shares():
        return free[: job.gpus()] if len(free) >= job.gpus() else None
    sharing = [each for each in running if each.shares()]
    if sum(each.shares() for each in sharing) + job.shares() > SHARES_PER_GPU:
        return None
    usable = [index for index in mine if index in sharing[0].indices] if sharing else free
    return usable[:1] or None


def _start(controller: Place, job: Job, node: Node) -> None:
    """Start the job's process on the node, in a session of its own."""
    job.node = node.name
    place = _place(controller, job)
    shared_gpu = job.indices[0] if job.shares() else -1
    code = (
        f"import sys; sys.path.insert(0, {interpreter.package_parent()!r}); "
        f"from mpsfleet.sim.slurm.step import main; "
        f"main({place.root!r}, {job.number}, {job.seconds}, {shared_gpu}, {job.uid})"
    )
    child = subprocess.Popen(
        (interpreter.path(place.fleet, "slurmstepd"), interpreter.OPTIONS, "-c", code),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
    job.pid, job.start = child.pid, processes.start_of(child.pid) or 0
    processes.register(place, "job", child.pid)
    child.returncode = 0  # whoever asked goes away, and the job stays
    job.state, job.started, job.why = "RUNNING", time.time(), "None"
    node.busy = job.started


def cancel(controller: Place, cluster: Cluster, job: Job) -> None:
    """End a job."""
    if job.state == "RUNNING":
        known = processes.Known(job.pid, job.start, "job")
        processes.send(known, signal.SIGKILL)
        processes.wait_gone(known, 2.0)
        _end_client(_place(controller, job), job)
        cluster.nodes[job.node].busy = time.time()
    job.state, job.ended = "CANCELLED", time.time()


def processes_on(place: Place, cluster: Cluster) -> list[tuple[int, Job]]:
    """Return the living processes of the jobs on a node, as the node's own slurmstepd's know them."""
    found = []
    for job in cluster.on_node(place.name):
        known = (client_of(place, job), step.beside(place, job.number), processes.Known(job.pid, job.start, "job"))
        found += [(each.pid, job) for each in known if each and processes.start_of(each.pid) == each.start]
    return found


def client_of(place: Place, job: Job) -> processes.Known | None:
    """Return the MPS client that a job started; None where it has none."""
    noted = read_json(step.client_note(place, job.number), None)
    return processes.Known(noted[0], noted[1], "client") if noted else None


def _end_client(place: Place, job: Job) -> None:
    client = client_of(place, job)
    if client is not None and processes.send(client, signal.SIGKILL):
        processes.wait_gone(client, 2.0)


def _place(controller: Place, job: Job) -> Place:
    return Place(f"{controller.fleet}/{job.node}")
