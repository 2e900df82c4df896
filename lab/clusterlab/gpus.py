"""Simulated GPUs of a node: the state from which its nvidia-smi answers, and the driver's files in its /proc."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clusterlab.record import write_atomically
from mpsfleet.sim.gpu import driver_files

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE = "etc/lab/gpus.json"
DRIVER_FOLDER = "etc/lab/driver"
DRIVER_UNIT = "lab-gpus.service"
# It is no driver: a folder of the node's root is mounted where the driver's files would be, before any other service.
DRIVER_UNIT_TEXT = f"""\
[Unit]
Description=Files of the lab's simulated GPUs under /proc/driver
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mount --bind /{DRIVER_FOLDER} /proc/driver
"""


def read_state(root: Path) -> dict[str, Any]:
    """Return the GPU state of the node whose root file system is `root`."""
    state: dict[str, Any] = json.loads((root / STATE_FILE).read_text(encoding="utf-8"))
    return state


def write_state(root: Path, state: dict[str, Any]) -> None:
    """Replace a node's GPU state. The files are root's: a node's users read them and cannot change them."""
    write_atomically(root / STATE_FILE, json.dumps(state, indent=1) + "\n", mode=0o644)
    driver_files.write(str(root / DRIVER_FOLDER), state)
