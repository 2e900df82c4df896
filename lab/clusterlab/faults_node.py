"""Faults of a node around MPS: its GPUs, nvidia-smi, sshd, and the controller's slurmctld."""

from __future__ import annotations

import signal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from clusterlab.access import init_process, must_in_node
from clusterlab.errors import LabError
from clusterlab.gpus import STATE_FILE, read_state, write_state
from clusterlab.mending import Undo, note
from clusterlab.processes import executable, find_inside, identify, in_namespace_of, send

if TYPE_CHECKING:
    from clusterlab.daemons import Target

SSH_UNIT = "ssh.service"
SLURMCTLD_UNIT = "slurmctld.service"
SSHD = "sshd"
"""How the names of sshd's programs begin: newer versions serve a connection by a program of its own."""


def lose_gpu(target: Target) -> str:
    """Let one GPU fall off the bus: it is still listed and answers no question."""
    return _set_gpu(target, "lost", "is lost")


def need_gpu_reset(target: Target) -> str:
    """Let one GPU ask for a reset."""
    return _set_gpu(target, "reset", "requires a reset")


def miss_gpu(target: Target) -> str:
    """Let one GPU be absent: the others close ranks, so their indices change."""
    return _set_gpu(target, "missing", "is missing")


def mismatch(target: Target) -> str:
    """Let the library be newer than the loaded driver, as after an unattended upgrade."""
    return _set_tool(target, "mismatch", "nvidia-smi reports a driver and library mismatch")


def hang_nvidia_smi(target: Target) -> str:
    """Let nvidia-smi wait for ever."""
    return _set_tool(target, "hanging", "nvidia-smi never answers")


def no_driver(target: Target) -> str:
    """Let the driver not be loaded, as after an upgrade of the kernel without its module."""
    return _set_tool(target, "no-driver", "nvidia-smi cannot reach the driver")


def enable_mig(target: Target) -> str:
    """Put one GPU into MIG mode, with two instances."""
    known = _known(target)
    if known["gpus"][target.gpu]["mig"] == "[N/A]":
        name = known["gpus"][target.gpu]["name"]
        raise LabError(f"GPU {target.gpu} of {target.node} is a {name}, which knows no MIG mode")
    write_state(target.lab.root(target.node), _changed(known, target.gpu, mig="Enabled"))
    return f"GPU {target.gpu} is in MIG mode"


def stop_ssh(target: Target) -> str:
    """Stop sshd and cut its connections, kept ones too: for Ansible and clush the node is gone."""
    must_in_node(target.lab, target.node, ("systemctl", "stop", SSH_UNIT), "stopping sshd")
    note(target.lab, target.node, Undo("start", SSH_UNIT))
    init = init_process(target.lab, target.node)
    for pid in in_namespace_of(init.pid):
        process = identify(pid)
        if process is not None and PurePosixPath(executable(pid)).name.startswith(SSHD):
            send(process, signal.SIGKILL)
    return "sshd is down and its connections are cut"


def stop_slurmctld(target: Target) -> str:
    """Stop the controller's daemon."""
    must_in_node(target.lab, target.node, ("systemctl", "stop", SLURMCTLD_UNIT), "stopping slurmctld")
    note(target.lab, target.node, Undo("start", SLURMCTLD_UNIT))
    return "slurmctld is not running"


def hang_slurmctld(target: Target) -> str:
    """Stop slurmctld with a signal: connections are accepted and never answered."""
    answer = must_in_node(
        target.lab,
        target.node,
        ("systemctl", "show", "--property=MainPID", "--value", SLURMCTLD_UNIT),
        "asking systemd",
    )
    inside = int(answer)
    process = find_inside(init_process(target.lab, target.node).pid, inside) if inside else None
    if process is None or not send(process, signal.SIGSTOP):
        raise LabError(f"slurmctld does not run on {target.node}")
    note(target.lab, target.node, Undo("continue", "slurmctld", process))
    return f"slurmctld is stopped by a signal (pid {inside})"


def _set_gpu(target: Target, state: str, words: str) -> str:
    known = _known(target)
    write_state(target.lab.root(target.node), _changed(known, target.gpu, state=state))
    return f"GPU {target.gpu} ({known['gpus'][target.gpu]['uuid']}) {words}"


def _set_tool(target: Target, state: str, words: str) -> str:
    write_state(target.lab.root(target.node), {**_state(target), "tool": state})
    return words


def _state(target: Target) -> dict[str, Any]:
    root = target.lab.root(target.node)
    if not (root / STATE_FILE).is_file():
        raise LabError(f"{target.node} has no GPU")
    return read_state(root)


def _known(target: Target) -> dict[str, Any]:
    """Return the state of a node that has the GPU the fault is aimed at."""
    known = _state(target)
    if not 0 <= target.gpu < len(known["gpus"]):
        raise LabError(f"{target.node} has no GPU {target.gpu}: it was started with {len(known['gpus'])}")
    return known


def _changed(known: dict[str, Any], index: int, **values: str) -> dict[str, Any]:
    gpus = [{**gpu, **values} if place == index else gpu for place, gpu in enumerate(known["gpus"])]
    return {**known, "gpus": gpus}
