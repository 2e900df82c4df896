"""A node's reboot: its systemd shuts it down, and the machine boots again on the same root with an empty /run.

systemd-nspawn's own way ends with an error where /run lies on a disk file system, so the machine is started anew.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.access import init_process, run_in_node, running_record
from clusterlab.cluster import wait_until_booted
from clusterlab.commands import run
from clusterlab.errors import LabError
from clusterlab.locks import locked
from clusterlab.machine import boot, end
from clusterlab.naming import CONTROLLER
from clusterlab.network import links_of
from clusterlab.processes import wait_gone
from clusterlab.record import Machine, write_record
from clusterlab.suites import suite_called
from clusterlab.teardown import NSPAWN_TRACES, remove_nspawn_locks
from mpsfleet.sim.gpu.board import Board

if TYPE_CHECKING:
    from clusterlab.naming import Lab

SHUTDOWN_S = 30.0


def reboot_node(lab: Lab, node: str, *, timeout_s: float = 60.0) -> str:
    """Reboot a node and return a sentence once it answers ssh; its services may still be starting.

    LabError where it does not come back within timeout_s.
    """
    with locked(lab.lock, f"starting or stopping lab {lab.name}", wait_s=120):
        record = running_record(lab)
        init = init_process(lab, node)
        machine = record.machine(node)
        if machine is None:
            raise LabError(f"node {node} was never started")
        began = time.monotonic()
        run_in_node(lab, node, ("systemctl", "--no-block", "--no-wall", "poweroff"), timeout_s=10)
        end(wait_gone((init, machine.nspawn), timeout_s=SHUTDOWN_S), timeout_s=5)
        _remove_traces(lab, node)
        board = Board(()) if node == CONTROLLER else record.wanted.board(node)
        suite = suite_called(record.suite)
        nspawn = boot(lab, node, suite, board, is_on_one_cpu=record.wanted.has_private_tmp)
        record = record.with_machine(Machine(node, nspawn))
        write_record(lab, record)
        wait_until_booted(lab, record, deadline=time.monotonic() + timeout_s)
    return f"{node} has rebooted in {time.monotonic() - began:.1f} s"


def _remove_traces(lab: Lab, node: str) -> None:
    """Remove what systemd-nspawn leaves of one machine, which would keep it from starting another of that name."""
    remove_nspawn_locks(lab, node)
    for folder in NSPAWN_TRACES:
        shutil.rmtree(Path(folder) / lab.machine(node), ignore_errors=True)
    if lab.link(node) in links_of(lab):
        run(("ip", "link", "delete", lab.link(node)), timeout_s=10)
