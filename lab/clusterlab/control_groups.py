"""Control groups of the lab: one group per node, so that units of the same name on two nodes never share one.

Without `--register` systemd-nspawn boots a node in the caller's own group. All nodes would then have one
`system.slice/ssh.service` between them on cgroup v1, and a unit would wait for the processes of another node's.
A group is also an exact list of all that a node ever started: `down` needs no search.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.errors import LabError

if TYPE_CHECKING:
    from clusterlab.naming import Lab

HOSTS_OWN = "/sys/fs/cgroup"


def hierarchies() -> tuple[Path, ...]:
    """Return the mount points of systemd's own v1 hierarchy and of cgroup v2, those that this host has.

    Source: proc(5) mounts; nspawn keeps a node's processes in both on a hybrid host. It mounts them elsewhere as well,
    for a moment (/tmp/unifiedXXXXXX, while a node starts), so only the host's own place counts.
    """
    found = []
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options = line.split(" ")[:4]
        if not point.startswith(HOSTS_OWN):
            continue
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(point))
    return tuple(dict.fromkeys(found))


def is_host_unified() -> bool:
    """Whether the host has cgroup v2 alone."""
    return all("name=systemd" not in line for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines())


def make_node_groups(lab: Lab, node: str) -> tuple[Path, ...]:
    """Make a node's groups in each hierarchy and return their cgroup.procs files."""
    files = []
    for hierarchy in hierarchies():
        group = hierarchy / lab.cgroup / node
        group.mkdir(parents=True, exist_ok=True)
        files.append(group / "cgroup.procs")
    if not files:
        raise LabError(
            "this host has neither systemd's cgroup v1 hierarchy nor cgroup v2, and systemd-nspawn needs one"
        )
    return tuple(files)


def groups_for_entering(init_pid: int) -> tuple[Path, ...]:
    """Make a group beside the node's own units for commands entered from outside; return the cgroup.procs files.

    The group lies below the node's root group: inside the node it reads `/lab-exec`.
    """
    lines = Path(f"/proc/{init_pid}/cgroup").read_text(encoding="utf-8").splitlines()
    paths = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    files = []
    for hierarchy in hierarchies():
        is_v1 = not (hierarchy / "cgroup.controllers").exists()
        name = "name=systemd" if is_v1 else ""
        if name not in paths:
            continue
        group = hierarchy / paths[name].lstrip("/")
        if group.name == "init.scope":
            group = group.parent
        group /= "lab-exec"
        group.mkdir(exist_ok=True)
        files.append(group / "cgroup.procs")
    return tuple(files)


def pids_of(lab: Lab) -> set[int]:
    """Return the pids of every process in any of the lab's groups."""
    pids: set[int] = set()
    for hierarchy in hierarchies():
        for file in (hierarchy / lab.cgroup).glob("**/cgroup.procs"):
            with contextlib.suppress(OSError):
                pids |= {int(word) for word in file.read_text(encoding="ascii").split()}
    return pids - {0}


def remove_groups(lab: Lab, *, timeout_s: float) -> list[Path]:
    """Remove the lab's groups, innermost first; return those that are still there after timeout_s seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = []
        for hierarchy in hierarchies():
            top = hierarchy / lab.cgroup
            if not top.is_dir():
                continue
            groups = sorted((path for path in top.glob("**/") if path.is_dir()), key=lambda path: -len(path.parts))
            for group in (*(path for path in groups if path != top), top):
                try:
                    group.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    left.append(group)
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.05)
