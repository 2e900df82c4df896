"""Small files beside a node's state by which a simulated process says how it does, and what it uses of a GPU.

R/sim/mps/PID holds its state in a word or two; R/sim/mps/PID.gpu holds "GPU MIB TYPE NAME", GPU -1 for all of
the node, the type as nvidia-smi has it: C beside MPS, M+C through it.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.sim.place import Place


def write_state(place: Place, state: str) -> None:
    """Say how this process does; nothing happens where its user may not."""
    _write(place.state(f"mps/{os.getpid()}"), state)


def write_gpu_use(place: Place, gpu: int, kind: str, name: str, memory_mib: int) -> None:
    """Say that this process uses a GPU."""
    _write(place.state(f"mps/{os.getpid()}.gpu"), f"{gpu} {memory_mib} {kind} {name}")


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        partial = f"{path}.new"
        with open(partial, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.rename(partial, path)


def read_state(place: Place, pid: int) -> str:
    """Return what a process said last, "" where it said nothing."""
    try:
        with open(place.state(f"mps/{pid}"), encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def remove_gpu_use(place: Place, pid: int) -> None:
    """Take back that a process uses a GPU."""
    with contextlib.suppress(OSError):
        os.unlink(place.state(f"mps/{pid}.gpu"))


def remove_notes(place: Place, pid: int) -> None:
    """Remove what a process said."""
    remove_gpu_use(place, pid)
    with contextlib.suppress(OSError):
        os.unlink(place.state(f"mps/{pid}"))
