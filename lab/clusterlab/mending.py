"""Mending: what a fault leaves that no reset of MPS can undo is noted when it comes about, and undone from the note."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterlab.access import init_process, must_in_node, run_in_node
from clusterlab.errors import LabError
from clusterlab.gpus import STATE_FILE, read_state, write_state
from clusterlab.naming import CONTROLLER
from clusterlab.processes import ProcessId, command_line, send, wait_gone
from clusterlab.record import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from clusterlab.naming import Lab


class Undo(NamedTuple):
    """One thing to undo: `end` or `continue` a process, `start` a unit, set the `mode` of a path."""

    kind: str
    subject: str
    process: ProcessId = ProcessId(0, 0)


def note(lab: Lab, node: str, undo: Undo) -> None:
    """Keep what `mend` has to undo on that node."""
    path = _path(lab, node)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps([*_noted(lab, node), undo]) + "\n")


def mend_node(lab: Lab, node: str) -> list[str]:
    """Undo what faults left on a node, newest first, and return a line for each thing that was done.

    Users' processes and daemons started by hand are ended by their recorded identity; a unit is started, a stopped
    process goes on, a folder gets its mode back, the simulated GPUs are well again. The MPS daemon and its directory
    stay as they are: they are what a reset is for.
    """
    init_process(lab, node)
    said = [_undo(lab, node, undo) for undo in reversed(_noted(lab, node))]
    said += _heal_gpus(lab.root(node))
    _path(lab, node).unlink(missing_ok=True)
    return [f"{node}: {line}" for line in said if line] or [f"{node}: nothing to mend"]


def _undo(lab: Lab, node: str, undo: Undo) -> str:
    if undo.kind == "end":
        name = " ".join(command_line(undo.process.pid))
        if not send(undo.process, signal.SIGKILL):
            return ""
        wait_gone((undo.process,), timeout_s=5)
        return f"ended {undo.subject} ({name})"
    if undo.kind == "continue":
        return f"continued {undo.subject}" if send(undo.process, signal.SIGCONT) else ""
    if undo.kind == "start":
        must_in_node(lab, node, ("systemctl", "start", undo.subject), f"starting {undo.subject}", timeout_s=60)
        if node == CONTROLLER:
            _wait_registered(lab, timeout_s=30)
        return f"started {undo.subject}"
    mode, _, path = undo.subject.partition(" ")
    must_in_node(lab, node, ("chmod", mode, "--", path), f"setting the mode of {path}")
    return f"set the mode of {path} back to {mode}"


def _wait_registered(lab: Lab, *, timeout_s: float) -> None:
    """Wait until a controller that was started again knows the state of its nodes."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        done = run_in_node(lab, CONTROLLER, ("sinfo", "--noheader", "--format=%T"), timeout_s=timeout_s)
        if done.returncode == 0 and "unk" not in done.stdout:
            return
        time.sleep(0.2)
    raise LabError(f"slurmctld was started, but does not know its nodes after {timeout_s:g} s")


def _heal_gpus(root: Path) -> list[str]:
    if not (root / STATE_FILE).is_file():
        return []
    state = read_state(root)
    gpus = [{**gpu, "state": "ok", "mig": gpu["mig"].replace("Enabled", "Disabled")} for gpu in state["gpus"]]
    well: dict[str, Any] = {**state, "tool": "ok", "gpus": gpus}
    if state == well:
        return []
    write_state(root, well)
    return ["all simulated GPUs are well again"]


def _path(lab: Lab, node: str) -> Path:
    return lab.state / "mend" / f"{node}.json"


def _noted(lab: Lab, node: str) -> list[Undo]:
    path = _path(lab, node)
    if not path.is_file():
        return []
    noted = json.loads(path.read_text(encoding="utf-8"))
    return [Undo(kind, subject, ProcessId(*process)) for kind, subject, process in noted]
