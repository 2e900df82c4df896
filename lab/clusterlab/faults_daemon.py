"""Faults of the control daemon: stopped, dead, tampered with, doubled."""

from __future__ import annotations

import signal
import time

from clusterlab.access import must_in_node, run_in_node
from clusterlab.daemons import (
    NVIDIAS_DEFAULT_PIPE_DIRECTORY,
    UNIT,
    Target,
    control_daemons,
    live_daemon,
    start_by_hand,
)
from clusterlab.errors import LabError
from clusterlab.mending import Undo, note
from clusterlab.mps_package import CONTROL_BINARY
from clusterlab.processes import namespace_pids, send, wait_gone

KILL_LIMIT_S = 90.0
QUIET_S = 3.0
FAILED_S = 1.0
TAMPERED = "10"
USER = "alice"
LOG_DIRECTORY = "/var/log/nvidia-mps"
FOREIGN_LOG_DIRECTORY = "/tmp/nvidia-log"  # noqa: S108 - a folder inside a node


def stop(target: Target) -> str:
    """Stop the daemon: it accepts connections and never answers."""
    daemon = live_daemon(target)
    inside = namespace_pids(daemon.pid)[-1]
    send(daemon, signal.SIGSTOP)
    return f"the daemon of {target.pipe_directory} is stopped (pid {inside})"


def kill(target: Target) -> str:
    """Kill the daemon as often as it comes back, until its unit has failed or it stays away for 3 s."""
    live_daemon(target)
    kills = 0
    began = seen = time.monotonic()
    while True:
        daemons = control_daemons(target.lab, target.node, target.pipe_directory)
        now = time.monotonic()
        if daemons:
            seen = now
            kills += sum(send(daemon, signal.SIGKILL) for daemon in daemons)
            wait_gone(daemons, timeout_s=5)
        else:
            # While systemd waits before the next restart the unit is "activating", however long RestartSec is.
            # On its way there it passes through "failed" (247), so that has to last.
            unit = _unit_state(target)
            quiet_s = now - seen
            if (unit == "failed" and quiet_s >= FAILED_S) or (unit != "activating" and quiet_s >= QUIET_S):
                return f"the daemon of {target.pipe_directory} is dead after {kills} kills (unit: {unit})"
        if now - began > KILL_LIMIT_S:
            raise LabError(f"the daemon on {target.node} still comes back after {kills} kills in {KILL_LIMIT_S:g} s")
        time.sleep(0.1)


def tamper_percentage(target: Target) -> str:
    """Set the default thread percentage through NVIDIA's own command: as a user, or as root where users may not.

    Measured: 470 and 535 let any user; 550 and later answer `Insufficient privileges`, and root alone can.
    """
    live_daemon(target)
    said = ""
    for user in (USER, "root"):
        said = _set_percentage(target, user)
        if said.split()[-1:] == [f"{TAMPERED}.0"]:
            return f"{user} set the default thread percentage of {target.pipe_directory} to {TAMPERED}"
        if "privilege" not in said:
            break
    raise LabError(f"the daemon on {target.node} did not take a thread percentage: it answered {said or 'nothing'}")


def _set_percentage(target: Target, user: str) -> str:
    """Set and read back the percentage; returns all that was said."""
    environment = ("env", f"CUDA_MPS_PIPE_DIRECTORY={target.pipe_directory}", f"/{CONTROL_BINARY}")
    commands = f"set_default_active_thread_percentage {TAMPERED}\nget_default_active_thread_percentage\n"
    done = run_in_node(target.lab, target.node, environment, user=user, stdin=commands, timeout_s=10)
    return " ".join(f"{done.stderr} {done.stdout}".split())


def start_second(target: Target) -> str:
    """Delete the files under the live daemon and start another one by hand in the same directory."""
    first = live_daemon(target)
    must_in_node(
        target.lab,
        target.node,
        ("find", target.pipe_directory, "-mindepth", "1", "-maxdepth", "1", "-delete"),
        "deleting the daemon's files",
    )
    second = start_by_hand(target, target.pipe_directory, LOG_DIRECTORY)
    inside = (namespace_pids(first.pid)[-1], namespace_pids(second.pid)[-1])
    note(target.lab, target.node, Undo("end", f"the second daemon, pid {inside[1]}", second))
    return f"pid {inside[0]} lives unreachable, pid {inside[1]} serves {target.pipe_directory}"


def start_foreign(target: Target) -> str:
    """Start a daemon as root on NVIDIA's default directory, which every CUDA program on the node then meets."""
    if target.pipe_directory == NVIDIAS_DEFAULT_PIPE_DIRECTORY:
        raise LabError(
            f"{NVIDIAS_DEFAULT_PIPE_DIRECTORY} is {target.node}'s own pipe directory: no daemon is foreign there"
        )
    for folder in (NVIDIAS_DEFAULT_PIPE_DIRECTORY, FOREIGN_LOG_DIRECTORY):
        must_in_node(target.lab, target.node, ("mkdir", "-p", "-m", "0755", folder), "making a directory")
    foreign = start_by_hand(target, NVIDIAS_DEFAULT_PIPE_DIRECTORY, FOREIGN_LOG_DIRECTORY)
    inside = namespace_pids(foreign.pid)[-1]
    note(target.lab, target.node, Undo("end", f"the foreign daemon, pid {inside}", foreign))
    return f"root's daemon, pid {inside}, serves {NVIDIAS_DEFAULT_PIPE_DIRECTORY}"


def _unit_state(target: Target) -> str:
    return run_in_node(target.lab, target.node, ("systemctl", "is-active", UNIT), timeout_s=10).stdout.strip()
