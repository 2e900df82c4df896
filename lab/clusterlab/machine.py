"""One node as a machine: its overlay is mounted, systemd-nspawn boots it, and later ends for sure."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.commands import must, run, search_path
from clusterlab.control_groups import is_host_unified, make_node_groups
from clusterlab.errors import LabError
from clusterlab.processes import ProcessId, children, identify, namespace_pids, send, wait_gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterlab.naming import Lab
    from clusterlab.suites import Suite
    from mpsfleet.sim.gpu.board import Board

# Joins the node's control groups, then becomes systemd-nspawn: the pid that was started stays the same.
JOIN_AND_BECOME = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 70; shift; done; shift; exec "$@"'


def mount_root(lab: Lab, node: str, lower: Sequence[Path]) -> None:
    """Mount a node's overlay on its root folder; `lower` has the topmost layer first."""
    folder = lab.folder(node)
    (folder / "work").mkdir()
    (folder / "root").mkdir()
    layers = ":".join(str(layer) for layer in lower)
    options = f"lowerdir={layers},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    must(
        ("mount", "-t", "overlay", "-o", options, f"lab-{lab.name}-{node}", str(folder / "root")),
        f"mounting the root of {node}",
        timeout_s=10,
    )


def boot(lab: Lab, node: str, suite: Suite, board: Board, *, is_on_one_cpu: bool = False) -> ProcessId:
    """Start systemd-nspawn for a node and return its process at once; the boot goes on by itself.

    GPU devices are /dev/null under other names: gres.conf wants character devices. The host has no say in a node's
    control groups (`--register=no --keep-unit`), since it may run without systemd.

    A job with a /tmp of its own needs a node that is_on_one_cpu: slurmstepd binds the job's mount namespace to a file,
    which the kernel refuses (EINVAL) unless that namespace has a higher number than the node's. Linux 6.18 numbers them
    per CPU: made on CPU 0 and then on CPU 1, 10 of 10 were refused; on one CPU, none of 20.
    """
    binds = [f"--bind={lab.state / 'home'}:/home"]
    binds += [f"--bind=/dev/null:/dev/nvidia{minor}" for minor in sorted(board.minors())]
    binds += ["--bind=/dev/null:/dev/nvidiactl"] if board.kinds else []
    groups = make_node_groups(lab, node)
    is_unified = suite.is_unified or is_host_unified()
    with (lab.folder(node) / "console.log").open("ab") as console:
        process = subprocess.Popen(
            (
                "/bin/sh",
                "-c",
                JOIN_AND_BECOME,
                "sh",
                *(str(file) for file in groups),
                "--",
                *(("taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))) if is_on_one_cpu else ()),
                "systemd-nspawn",
                "--quiet",
                f"--directory={lab.root(node)}",
                "--boot",
                f"--machine={lab.machine(node)}",
                f"--hostname={node}",
                "--register=no",
                "--keep-unit",
                f"--network-bridge={lab.bridge}",
                "--link-journal=no",
                "--resolv-conf=off",
                "--timezone=off",
                "--console=read-only",
                "--system-call-filter=pidfd_getfd",  # a real node's root has it; nspawn's own list lacks it
                *binds,
            ),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env={
                "PATH": search_path(),
                "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if is_unified else "0",
            },
            start_new_session=True,
        )
    nspawn = identify(process.pid)
    # Popen would warn when it is collected while the machine still runs, which is what is wanted here.
    process.returncode = 0
    if nspawn is None:
        raise LabError(f"systemd-nspawn for {node} ended at once")
    return nspawn


def init_of(nspawn: ProcessId) -> ProcessId | None:
    """Return the node's own init, a child of systemd-nspawn and pid 1 in its namespace; None before there is one."""
    for pid in children(nspawn.pid):
        inner = namespace_pids(pid)
        if len(inner) > 1 and inner[-1] == 1:
            return identify(pid)
    return None


def console_tail(lab: Lab, node: str, lines: int = 5) -> str:
    """Return the last lines of a node's console."""
    path = lab.folder(node) / "console.log"
    if not path.is_file():
        return ""
    return " | ".join(path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-lines:])


def end(processes: Sequence[ProcessId], *, timeout_s: float) -> list[ProcessId]:
    """Kill these processes and return those still there after timeout_s seconds."""
    for process in processes:
        send(process, signal.SIGKILL)
    return wait_gone(processes, timeout_s=timeout_s)


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points below a folder, innermost first (proc(5), field 5 of mountinfo)."""
    prefix = f"{folder}/"
    points = [
        line.split(" ")[4].replace("\\040", " ")
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    ]
    return [Path(point) for point in reversed(points) if point.startswith(prefix)]


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, lazily: a process that still looks into a node does not hold it."""
    for point in mounts_below(folder):
        run(("umount", "--lazy", str(point)), timeout_s=10)
    left = mounts_below(folder)
    if left:
        raise LabError(f"these cannot be unmounted: {', '.join(str(point) for point in left)}")
