"""Processes by identity: a pid counts only together with its start time, and is signalled through a descriptor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROC = Path("/proc")


class ProcessId(NamedTuple):
    """A process of this boot: pid in the host's namespace, start time in clock ticks (proc(5), field 22 of stat)."""

    pid: int
    start: int


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, also a closing parenthesis: the fields start after the last one.
    return text[text.rindex(")") + 2 :].split()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process that has this pid now, None if there is none."""
    fields = _stat_fields(pid)
    return None if fields is None else ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId) -> bool:
    """Whether this very process still runs; a zombie does not, and is reaped if it is ours."""
    fields = _stat_fields(process.pid)
    if fields is None or int(fields[19]) != process.start:
        return False
    if fields[0] not in "ZX":
        return True
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return False


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal this very process; False if it is gone.

    The descriptor is opened before the identity is read again, so a reused pid is never hit. Python's signal module
    has pidfd_send_signal since 3.9; a kernel or C library without it falls back on kill right after the check.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        descriptor = -1
    try:
        if not is_alive(process):
            return False
        with contextlib.suppress(ProcessLookupError):
            if descriptor >= 0:
                signal.pidfd_send_signal(descriptor, number)
            else:
                os.kill(process.pid, number)
            return True
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def wait_gone(processes: Iterable[ProcessId], *, timeout_s: float) -> list[ProcessId]:
    """Wait until the processes have ended; return those that have not after timeout_s seconds."""
    left = list(processes)
    deadline = time.monotonic() + timeout_s
    while True:
        left = [process for process in left if is_alive(process)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Return the pids of a process's direct children, empty if the process is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            found += [int(word) for word in (task / "children").read_text(encoding="ascii").split()]
    return found


def namespace_pids(pid: int) -> tuple[int, ...]:
    """Return a process's pids from the host's namespace inwards (the NSpid line of status), empty if it is gone."""
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return tuple(int(word) for word in line.split()[1:])
    return ()


def in_namespace_of(leader: int) -> Iterator[int]:
    """Yield the host pids of all processes in the pid namespace of `leader`."""
    namespace = os.readlink(PROC / str(leader) / "ns" / "pid")
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns" / "pid") == namespace:
                    yield int(entry.name)


def find_inside(leader: int, inside: int) -> ProcessId | None:
    """Return the process that has the pid `inside` in the pid namespace of `leader`, None if there is none."""
    for pid in in_namespace_of(leader):
        if namespace_pids(pid)[-1:] == (inside,):
            return identify(pid)
    return None


def command_line(pid: int) -> tuple[str, ...]:
    """Return a process's arguments, empty for a zombie or if it is gone."""
    with contextlib.suppress(OSError):
        raw = (PROC / str(pid) / "cmdline").read_bytes()
        return tuple(word.decode("utf-8", "backslashreplace") for word in raw.split(b"\0")[:-1])
    return ()


def environment(pid: int) -> dict[str, str]:
    """Return the environment a process was started with, empty if it is gone."""
    with contextlib.suppress(OSError):
        words = (PROC / str(pid) / "environ").read_bytes().decode("utf-8", "backslashreplace").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)
    return {}


def executable(pid: int) -> str:
    """Return the path of a process's program as its own mount namespace has it, empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return os.readlink(PROC / str(pid) / "exe")
    return ""


def boot_id() -> str:
    """Return the kernel's id of this boot: a record of another boot names no process of this one."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
