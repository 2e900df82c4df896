"""Control daemons of a node: NVIDIA's own processes, found by program and namespace, never by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from clusterlab.access import init_process, must_in_node, run_in_node
from clusterlab.errors import LabError
from clusterlab.mps_package import CONTROL_BINARY
from clusterlab.processes import ProcessId, command_line, environment, executable, identify, in_namespace_of

if TYPE_CHECKING:
    from clusterlab.naming import Lab

UNIT = "nvidia-mps.service"
DEFAULT_PIPE_DIRECTORY = "/run/nvidia-mps/node"
NVIDIAS_DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 - the name every CUDA program asks first
NODE_CONFIGURATION = "/etc/mpsfleet/node.toml"


class Target(NamedTuple):
    """What a fault is aimed at: a node, the pipe directory meant, and the GPU meant."""

    lab: Lab
    node: str
    pipe_directory: str
    gpu: int


def configured_pipe_directory(lab: Lab, node: str) -> str:
    """Return `[mps] pipe_directory` of the node's configuration, its default if there is none.

    Nodes may have a Python without tomllib; the one line is found by its form.
    """
    done = run_in_node(lab, node, ("cat", NODE_CONFIGURATION))
    section = ""
    for line in done.stdout.splitlines():
        header = re.fullmatch(r"\s*\[\s*([^\]]+?)\s*\]\s*(#.*)?", line)
        value = re.fullmatch(r"""\s*pipe_directory\s*=\s*(["'])(.*?)\1\s*(#.*)?""", line)
        if header:
            section = header[1]
        elif value and section == "mps":
            return value[2]
    return DEFAULT_PIPE_DIRECTORY


def control_daemons(lab: Lab, node: str, pipe_directory: str) -> tuple[ProcessId, ...]:
    """Return the control daemons in a node that were started for that pipe directory, oldest first.

    A query runs the same program without -d or -f. The environment says which directory a daemon was started for, also
    when its files are gone.
    """
    init = init_process(lab, node)
    found = []
    for pid in in_namespace_of(init.pid):
        if executable(pid).removesuffix(" (deleted)") != f"/{CONTROL_BINARY}":
            continue
        words = command_line(pid)
        if "-d" not in words and "-f" not in words:
            continue
        directory = environment(pid).get("CUDA_MPS_PIPE_DIRECTORY", NVIDIAS_DEFAULT_PIPE_DIRECTORY)
        process = identify(pid)
        if process is not None and directory.rstrip("/") == pipe_directory.rstrip("/"):
            found.append(process)
    return tuple(sorted(found, key=lambda process: process.start))


def live_daemon(target: Target) -> ProcessId:
    """Return the newest control daemon of the target's directory; LabError if none runs."""
    daemons = control_daemons(target.lab, target.node, target.pipe_directory)
    if not daemons:
        raise LabError(
            f"no control daemon runs on {target.node} for {target.pipe_directory}: "
            "deploy MPS first, or name another --pipe-directory"
        )
    return daemons[-1]


def start_by_hand(target: Target, pipe_directory: str, log_directory: str) -> ProcessId:
    """Start a second real control daemon as root on a node, as a person would, and return its process."""
    before = control_daemons(target.lab, target.node, pipe_directory)
    must_in_node(
        target.lab,
        target.node,
        (
            "env",
            f"CUDA_MPS_PIPE_DIRECTORY={pipe_directory}",
            f"CUDA_MPS_LOG_DIRECTORY={log_directory}",
            f"/{CONTROL_BINARY}",
            "-d",
        ),
        f"starting a control daemon in {pipe_directory}",
        timeout_s=10,
    )
    new = [found for found in control_daemons(target.lab, target.node, pipe_directory) if found not in before]
    if not new:
        raise LabError(f"a control daemon was started in {pipe_directory} on {target.node}, but it does not run")
    return new[-1]
