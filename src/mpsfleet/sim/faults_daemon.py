"""Faults of the control daemon: stopped, dead, tampered with, doubled."""

from __future__ import annotations

import os
import shutil
import signal
import time

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import mending, mps, processes
from mpsfleet.sim.systemd import state
from mpsfleet.sim.target import (
    DEFAULT_PIPE_DIRECTORY,
    LOG_DIRECTORY,
    UNIT,
    Target,
    control_daemons,
    live_daemon,
    start_by_hand,
    tell,
)

KILL_LIMIT_S = 90.0
QUIET_S = 3.0
TAMPERED = "10"
ALICE = 2001
FOREIGN_LOG_DIRECTORY = "/tmp/nvidia-log"  # noqa: S108  # a folder inside a node


def stop(target: Target) -> str:
    """Stop the daemon: it accepts connections and never answers."""
    daemon = live_daemon(target)
    processes.send(daemon, signal.SIGSTOP)
    _noted(target)
    return f"the daemon of {target.pipe_directory} is stopped (pid {daemon.pid})"


def kill(target: Target) -> str:
    """Kill the daemon as often as it comes back, until its unit has failed or it stays away for 3 s."""
    live_daemon(target)
    kills = 0
    began = seen = time.monotonic()
    while True:
        daemons = control_daemons(target.place, target.pipe_directory)
        now = time.monotonic()
        if daemons:
            seen = now
            kills += sum(processes.send(each, signal.SIGKILL) for each in daemons)
            for each in daemons:
                processes.wait_gone(each, 5.0)
        else:
            unit = state.look(target.place, UNIT).active
            if unit == "failed" or (unit not in ("activating", "active") and now - seen >= QUIET_S):
                _noted(target)
                return f"the daemon of {target.pipe_directory} is dead after {kills} kills (unit: {unit})"
        if now - began > KILL_LIMIT_S:
            raise MpsfleetError(f"the daemon on {target.place.name} still comes back after {kills} kills")
        time.sleep(0.05)


def tamper_percentage(target: Target) -> str:
    """Set the default thread percentage as a user (refused since driver 550)."""
    live_daemon(target)
    commands = f"set_default_active_thread_percentage {TAMPERED}\nget_default_active_thread_percentage\n"
    said = tell(target, commands, mps.as_user(ALICE))
    if said.split()[-1:] != [f"{TAMPERED}.0"]:
        words = (said.strip() or "nothing").splitlines()[0]
        raise MpsfleetError(f"the daemon on {target.place.name} took no percentage of a user's: it said {words}")
    _noted(target)
    return f"alice set the default thread percentage of {target.pipe_directory} to {TAMPERED}"


def start_second(target: Target) -> str:
    """Delete the files under the live daemon and start another one by hand in the same directory."""
    first = live_daemon(target)
    for name in os.listdir(target.pipe_path):
        path = f"{target.pipe_path}/{name}"
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    second = start_by_hand(target, target.pipe_directory, LOG_DIRECTORY)
    mending.note_process(target.place, target.fault, second, f"the second daemon, pid {second.pid}")
    return f"pid {first.pid} lives unreachable, pid {second.pid} serves {target.pipe_directory}"


def start_foreign(target: Target) -> str:
    """Start a daemon as root on NVIDIA's default directory, which every CUDA program on the node then meets."""
    if target.pipe_directory == DEFAULT_PIPE_DIRECTORY:
        raise MpsfleetError(f"{DEFAULT_PIPE_DIRECTORY} is {target.place.name}'s own: nothing is foreign there")
    for folder in (DEFAULT_PIPE_DIRECTORY, FOREIGN_LOG_DIRECTORY):
        os.makedirs(target.place.path(folder), 0o755, exist_ok=True)
    foreign = start_by_hand(target, DEFAULT_PIPE_DIRECTORY, FOREIGN_LOG_DIRECTORY)
    mending.note_process(target.place, target.fault, foreign, f"the foreign daemon, pid {foreign.pid}")
    return f"root's daemon, pid {foreign.pid}, serves {DEFAULT_PIPE_DIRECTORY}"


def _noted(target: Target) -> None:
    mending.note(target.place, mending.Undo(target.fault, "none"))
