"""What a fault is brought about on: a node, its pipe directory as configured there, and its control daemons."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.errors import MpsfleetError
from mpsfleet.node.desired import CONFIG, Desired, parse
from mpsfleet.sim import interpreter, processes

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place
    from mpsfleet.sim.processes import Known

UNIT = "nvidia-mps.service"
CONTROL = "/usr/bin/nvidia-cuda-mps-control"
DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  # NVIDIA's, inside the node
LOG_DIRECTORY = "/var/log/nvidia-mps"
_START_S = 10.0


class Target(NamedTuple):
    """Where a fault is brought about."""

    place: Place
    pipe_directory: str  # inside the node
    gpu: int
    fault: str

    @property
    def pipe_path(self) -> str:
        """The pipe directory on this machine."""
        return self.place.path(self.pipe_directory)


def configured_pipe_directory(place: Place) -> str:
    """Return the pipe directory of the node's node.toml; the usual one where it has none."""
    try:
        with open(place.path(CONFIG), encoding="utf-8") as stream:
            desired, mistakes = parse(stream.read())
    except OSError:
        return Desired().pipe_directory
    return Desired().pipe_directory if mistakes else desired.pipe_directory


def control_daemons(place: Place, pipe_directory: str) -> list[Known]:
    """Return the living control daemons that were started for a pipe directory."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={place.path(pipe_directory)}".encode()
    return [each for each in processes.registered(place) if _is_control(place, each.pid, wanted)]


def _is_control(place: Place, pid: int, wanted: bytes) -> bool:
    if processes.program_of(pid) != interpreter.path(place.fleet, "nvidia-cuda-mps-control"):
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return wanted in stream.read(262_144).split(b"\0")
    except OSError:
        return False


def live_daemon(target: Target) -> Known:
    """Return the control daemon of the pipe directory. MpsfleetError where there is none, or more than one."""
    found = control_daemons(target.place, target.pipe_directory)
    if len(found) != 1:
        how_many = "no" if not found else str(len(found))
        where = f"control daemon on {target.pipe_directory}"
        raise MpsfleetError(f"{target.place.name} has {how_many} {where}: deploy MPS first, or reset the node")
    return found[0]


def start_by_hand(target: Target, pipe_directory: str, log_directory: str) -> Known:
    """Start a control daemon as an administrator at a prompt does, with -d, and return it."""
    place = target.place
    before = set(control_daemons(place, pipe_directory))
    done = subprocess.run(
        (place.path(CONTROL), "-d"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # which the daemon keeps
        stderr=subprocess.DEVNULL,
        env={
            "PATH": os.defpath,
            "CUDA_MPS_PIPE_DIRECTORY": place.path(pipe_directory),
            "CUDA_MPS_LOG_DIRECTORY": place.path(log_directory),
        },
        check=False,
        timeout=_START_S,
    )
    limit = time.monotonic() + _START_S
    while done.returncode == 0 and time.monotonic() < limit:
        found = set(control_daemons(place, pipe_directory)) - before
        if found and os.path.exists(place.path(f"{pipe_directory}/control")):
            return found.pop()
        time.sleep(0.01)
    raise MpsfleetError(f"no daemon could be started on {pipe_directory} of {place.name} (status {done.returncode})")


def tell(target: Target, commands: str, environment: dict[str, str]) -> str:
    """Send commands to the daemon of the pipe directory through NVIDIA's program; return what it printed."""
    done = subprocess.run(
        (target.place.path(CONTROL),),
        input=commands,
        capture_output=True,
        env={"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": target.pipe_path, **environment},
        check=False,
        timeout=_START_S,
        text=True,
    )
    return done.stdout + done.stderr
