"""What the simulated slurmctld knows: nodes and jobs, in one JSON file of the controller, under one lock."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from mpsfleet.sim import mps
from mpsfleet.sim.place import CONTROLLER, Place, locked, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.sim.gpu.board import Board

FILE = "slurm.json"
SHARES_PER_GPU = 100
CPUS = 64
REGISTERS_S = 0.3  # after an UNDRAIN, until the node has registered anew: under 0.5 s on 22.05.8


@dataclass
class Node:
    """One node as slurmctld has it."""

    name: str
    types: list[str]  # Slurm's type of each GPU, in nvidia-smi's order
    started: float
    is_drain: bool = False
    is_down: bool = False
    reason: str = ""
    reason_user: str = ""
    reason_time: float = 0.0
    silent_until: float = 0.0  # NOT_RESPONDING until then
    busy: float = 0.0  # when something last ran there
    comment: str = ""
    extra: str = ""

    @property
    def gres(self) -> str:
        """The node's Gres= of slurm.conf."""
        counts = [(each, self.types.count(each)) for each in dict.fromkeys(self.types)]
        whole = [f"gpu:{each}:{count}" for each, count in counts]
        return ",".join([*whole, *(f"mps:{each}:{count * SHARES_PER_GPU}" for each, count in counts)]) or "(null)"


@dataclass
class Job:
    """One job. `state` is PENDING, RUNNING, COMPLETED, CANCELLED or TIMEOUT."""

    number: int
    name: str
    user: str
    uid: int
    gres: str  # as asked for: "mps:50", "gpu:1", "gpu:t4:1", or ""
    wanted_node: str
    folder: str
    seconds: float  # how long it sleeps
    submitted: float
    state: str = "PENDING"
    node: str = ""
    started: float = 0.0
    ended: float = 0.0
    why: str = "None"
    pid: int = 0
    start: int = 0  # proc(5), field 22, of that process
    is_batch: bool = True
    indices: list[int] = field(default_factory=list)  # the GPUs it was given

    def shares(self) -> int:
        """Shares of one GPU asked for."""
        return _count(self.gres, "mps")

    def gpus(self) -> int:
        """Whole GPUs asked for."""
        return _count(self.gres, "gpu")

    def type(self) -> str:
        """Slurm's type of the GPU asked for, "" where any will do."""
        words = self.gres.split(",")[0].split(":")
        return words[1] if len(words) > 1 and not words[1].isdigit() else ""


def _count(gres: str, kind: str) -> int:
    for each in gres.split(","):
        words = each.split(":")
        if words[0] == kind:
            return int(words[-1]) if words[-1].isdigit() else 1
    return 0


@dataclass
class Cluster:
    """The whole state. `slurmctld` is "up", "stopped" or "hung"."""

    name: str = "sim"
    version: str = "22.05.8"
    partition: str = "gpu"
    slurmctld: str = "up"
    refusal_s: float = 1.0  # how long a client tries to reach a stopped slurmctld; the real one takes 9 s
    started: float = 0.0
    next_job: int = 1
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)

    def on_node(self, name: str) -> list[Job]:
        """Return the jobs that run on a node."""
        return [each for each in self.jobs.values() if each.state == "RUNNING" and each.node == name]


def create(place: Place, boards: dict[str, Board], name: str = "sim") -> None:
    """Write the state of a cluster whose nodes are all idle. `place` is the controller."""
    now = time.time()
    known = {each: Node(each, [kind.type for kind in board.kinds], now, busy=now) for each, board in boards.items()}
    write_json(place.state(FILE), asdict(Cluster(name=name, started=now, nodes=known)))


def controller_of(root: str) -> Place:
    """Return the controller of the fleet in which `root` lies."""
    return Place(root) if os.path.basename(root) == CONTROLLER else Place(root).controller


def read(controller: Place) -> Cluster:
    """Return the state as it was last written."""
    values = read_json(controller.state(FILE), {})
    nodes = {name: Node(**each) for name, each in values.pop("nodes", {}).items()}
    jobs = {number: Job(**each) for number, each in values.pop("jobs", {}).items()}
    return Cluster(**values, nodes=nodes, jobs=jobs)


@contextlib.contextmanager
def changing(controller: Place) -> Iterator[Cluster]:
    """Hold the cluster's lock, and write what has become of the state; nothing is written where an error is raised."""
    with locked(controller, "slurm.lock"):
        cluster = read(controller)
        before = asdict(cluster)
        yield cluster
        if asdict(cluster) != before:
            write_json(controller.state(FILE), asdict(cluster))


def declared_uid() -> int:
    """Return as whom this process acts: the fleet's owner is its root, unless the environment declares another user."""
    declared = os.environ.get(mps.USER_VARIABLE, "")
    return int(declared) if declared.isdigit() else 0


def name_of(controller: Place, uid: int) -> str:
    """Return the user name that Slurm prints for a uid: the controller's own, else this machine's."""
    with contextlib.suppress(OSError), open(controller.path("/etc/passwd"), encoding="utf-8") as stream:
        for line in stream:
            words = line.split(":")
            if words[2:3] == [str(uid)]:
                return words[0]
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "nobody"
