"""Simulated GPUs of a node: the state file from which the node's simulated nvidia-smi answers."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from clusterlab.record import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE = "etc/lab/gpus.json"
NAMESPACE = uuid.UUID("8f0b6b1e-6d0a-4c53-9d6a-0d9f3f1b7a10")
# Bus numbers as on an eight-GPU A100 board; further ones count on.
BUSES = (0x07, 0x0B, 0x48, 0x4C, 0x88, 0x8B, 0xC8, 0xCB)


def fresh_state(node: str, gpus: int, driver_version: str) -> dict[str, Any]:
    """Return the state of a node whose GPUs are all well.

    `tool` is how nvidia-smi itself does (ok, hanging, mismatch); a GPU's `state` is ok, lost, reset or missing.
    UUIDs follow from the node's name, so they are the same at every start.
    """
    return {
        "schema": 1,
        "tool": "ok",
        "driver_version": driver_version,
        "gpus": [
            {
                "uuid": f"GPU-{uuid.uuid5(NAMESPACE, f'{node}/{index}')}",
                "bus_id": f"00000000:{BUSES[index] if index < len(BUSES) else 0xD0 + index:02X}:00.0",
                "name": "NVIDIA A100-SXM4-40GB",
                "memory_mib": 40960,
                "compute_mode": "Default",
                "persistence_mode": "Enabled",
                "state": "ok",
            }
            for index in range(gpus)
        ],
    }


def read_state(root: Path) -> dict[str, Any]:
    """Return the GPU state of the node whose root file system is `root`."""
    state: dict[str, Any] = json.loads((root / STATE_FILE).read_text(encoding="utf-8"))
    return state


def write_state(root: Path, state: dict[str, Any]) -> None:
    """Replace a node's GPU state. The file is root's: a node's users read it and cannot change it."""
    write_atomically(root / STATE_FILE, json.dumps(state, indent=1) + "\n", mode=0o644)
