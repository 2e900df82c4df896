"""The cluster's end: what `up` started goes, found by the record and by the lab's name, after any kind of start."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.control_groups import hierarchies, pids_of, remove_groups
from clusterlab.errors import LabError
from clusterlab.host_settings import restore_settings
from clusterlab.locks import locked
from clusterlab.machine import end, init_of, mounts_below, unmount_below
from clusterlab.network import links_of, remove_links
from clusterlab.processes import identify, wait_gone
from clusterlab.record import read_record
from clusterlab.terminal import say

if TYPE_CHECKING:
    from clusterlab.naming import Lab

# systemd-nspawn removes its own traces when its machine ends; these are for one that was killed itself.
NSPAWN_LOCKS = Path("/run/systemd/nspawn/locks")
NSPAWN_TRACES = ("/run/systemd/nspawn/propagate", "/run/systemd/nspawn/unix-export")


def down(lab: Lab) -> None:
    """End the lab, also a half-started one; nothing to do is said and no error."""
    with locked(lab.lock, f"starting or stopping lab {lab.name}", wait_s=120):
        if not is_anything_left(lab):
            say(f"lab {lab.name} is not up: nothing to take down")
            return
        began = time.monotonic()
        take_down(lab)
        say(f"lab {lab.name} is down after {time.monotonic() - began:.1f} s")


def is_anything_left(lab: Lab) -> bool:
    """Whether the host has anything of this lab: state, mounts, links or control groups."""
    return bool(
        lab.state.exists()
        or mounts_below(lab.state)
        or links_of(lab)
        or any((hierarchy / lab.cgroup).exists() for hierarchy in hierarchies())
    )


def take_down(lab: Lab) -> None:
    """End the processes, then unmount, then remove links, control groups and state. The caller holds the lab's lock.

    The nodes' files go with them, so nothing is shut down in order: a node's init is killed, and the kernel ends every
    process of its namespace with it. A process that is left in one of the lab's control groups was started by the lab.
    Raises LabError naming what could not be removed; the next `down` tries again.
    """
    record = read_record(lab)
    if record is not None:
        inits = [machine.init or init_of(machine.nspawn) for machine in record.machines]
        end([init for init in inits if init is not None], timeout_s=5)
        nspawns = [machine.nspawn for machine in record.machines]
        end(wait_gone(nspawns, timeout_s=3), timeout_s=3)
    _end_all_in_groups(lab, timeout_s=10)
    remove_nspawn_locks(lab)
    unmount_below(lab.state)
    remove_links(lab)
    for group in remove_groups(lab, timeout_s=5):
        raise LabError(f"the control group {group} cannot be removed: processes {sorted(pids_of(lab))}")
    for folder in NSPAWN_TRACES:
        for trace in Path(folder).glob(f"{lab.machine('')}*"):
            shutil.rmtree(trace, ignore_errors=True)
    restore_settings(lab)
    if lab.state.exists():
        shutil.rmtree(lab.state)


def remove_nspawn_locks(lab: Lab, node: str = "*") -> None:
    """Delete the locks that systemd-nspawn names after a root folder's device and inode, and leaves when killed."""
    for folder in (lab.state / "nodes").glob(f"{node}/root"):
        status = folder.stat()
        (NSPAWN_LOCKS / f"inode-{status.st_dev}:{status.st_ino}").unlink(missing_ok=True)


def _end_all_in_groups(lab: Lab, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        found = [process for process in (identify(pid) for pid in sorted(pids_of(lab))) if process is not None]
        if not found:
            return
        left = end(found, timeout_s=1)
        if left and time.monotonic() >= deadline:
            raise LabError(f"these processes cannot be ended: {', '.join(str(process.pid) for process in left)}")
