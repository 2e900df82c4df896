"""The Ansible inventory of a simulated fleet: local connections, no privileges, and each host's root."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mpsfleet.sim.place import CONTROLLER

if TYPE_CHECKING:
    from mpsfleet.sim.fleet import Fleet

FILE = "inventory.ini"


def path(folder: str) -> str:
    """Return where a fleet's inventory lies."""
    return f"{folder}/{FILE}"


def text(fleet: Fleet) -> str:
    """Return the inventory; the roles and playbooks are the same as for real nodes."""
    folder = fleet.folder
    hosts = "".join(
        f"{name} mps_root={folder}/{name} mps_gpus_expected={len(board.kinds)}\n"
        for name, board in zip(fleet.nodes, fleet.boards)
    )
    return f"""\
# A simulated fleet (`mpsfleet sim up`): everything runs on this machine, under {folder}, as whoever runs Ansible.
[gpu_nodes]
{hosts}
[slurm_master]
{CONTROLLER} mps_root={folder}/{CONTROLLER}

[all:vars]
ansible_connection=local
ansible_become=false
ansible_python_interpreter={sys.executable}
mps_slurm_cluster=sim
"""


def write(fleet: Fleet) -> None:
    """Write the inventory into the fleet's directory."""
    with open(path(fleet.folder), "w", encoding="utf-8") as stream:
        stream.write(text(fleet))
