"""nvidia-cuda-mps-control: `-d` and `-f` start the daemon, anything else talks to it. Words after it are ignored."""

from __future__ import annotations

import os
import sys

_HELP = """\
CUDA MPS Control for Linux/Unix (SIMULATED, driver release of the node: see the simulated nvidia-smi).

  This program allows multiple CUDA processes to share a single GPU context. No GPU stands behind this one.

"""
_DAEMON = "nvidia-cuda-mps-control"


def main(argv: list[str]) -> int:
    """Run one call; `argv` is the node's root and the words of the call. Returns the exit status."""
    root, words = argv[0], argv[1:]
    if words[:1] == ["server"]:
        sys.stderr.write("nvidia-cuda-mps-server is started by the control daemon.\n")
        return 1
    if "-h" in words or "--help" in words:
        sys.stdout.write(_HELP)
        return 0
    if "-f" in words:
        become_daemon(root, -1)
    if "-d" in words:
        return in_background(root)
    from mpsfleet.sim.mps.conversation import talk

    return talk(root)


def become_daemon(root: str, ready: int) -> None:
    """Replace this process by the daemon, under NVIDIA's name; it tells `ready` (a descriptor) when it serves."""
    from mpsfleet.sim.mps.program import argv_of

    path, words = argv_of(root, _DAEMON, "mpsfleet.sim.mps.daemon", root, str(ready))
    os.execv(path, words)  # noqa: S606  # no shell: it is the daemon


def in_background(root: str) -> int:
    """Start the daemon apart and wait until it serves, as NVIDIA's does; 1 where it does not."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.setsid()
        become_daemon(root, write)
    os.close(write)
    is_ready = os.read(read, 1) != b""
    os.close(read)
    if is_ready:
        return 0
    os.waitpid(pid, 0)
    return 1
