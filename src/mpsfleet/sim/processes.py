"""The processes of a simulated fleet: registered by pid and start time, ended through a pidfd and never by name.

A node's /proc (R/proc) is a directory of links, one for each registered process, so the product sees and signals only
those. Beside it R/sim/pids/PID keeps the start time, which tells the process from a later one with the same number.
Every lasting process of a fleet is a copy of the interpreter that lies in the fleet's directory; so one that was not
registered in time (its starter was killed) is found by its executable.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.sim.place import Place, is_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOOK_S = 0.5  # between two looks whether the fleet is still up
_END_S = 3.0
_GONE, _NO_PIDFD = -1, -2


class Known(NamedTuple):
    """A process as it was registered."""

    pid: int
    start: int  # proc(5), field 22: clock ticks since boot
    kind: str  # "control", "server", "client", "systemd", "job", "listener"


def start_of(pid: int) -> int | None:
    """Return when a process started; None when it has ended (a zombie has)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read(4096).rpartition(b")")[2].split()
    except OSError:
        return None
    return None if not words or words[0] in (b"Z", b"X") else int(words[19])


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def register(place: Place, kind: str, pid: int | None = None) -> None:
    """Make a process (default: this one) one of the node's."""
    pid = os.getpid() if pid is None else pid
    start = start_of(pid)
    if start is None:
        return
    with open(place.state(f"pids/{pid}"), "w", encoding="ascii") as stream:
        stream.write(f"{start} {kind}")
    link = place.path(f"/proc/{pid}")
    with contextlib.suppress(FileExistsError):
        os.symlink(f"/proc/{pid}", link)


def forget(place: Place, pid: int) -> None:
    """Take a process that has ended out of the node's list."""
    for path in (place.path(f"/proc/{pid}"), place.state(f"pids/{pid}")):
        with contextlib.suppress(OSError):
            os.unlink(path)


def registered(place: Place) -> tuple[Known, ...]:
    """Return the node's living processes; those that have ended are forgotten."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(place.state("pids")):
            known = _known(place, name)
            if known is not None and start_of(known.pid) == known.start:
                found.append(known)
            elif known is not None:
                forget(place, known.pid)
    return tuple(sorted(found))


def _known(place: Place, name: str) -> Known | None:
    try:
        with open(place.state(f"pids/{name}"), encoding="ascii") as stream:
            start, _, kind = stream.read().partition(" ")
        return Known(int(name), int(start), kind)
    except (OSError, ValueError):  # being written, or gone
        return None


def program_of(pid: int) -> str:
    """Return the executable of a process, "" where it has none or is not ours to know."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return ""


def of_fleet(fleet: str) -> tuple[int, ...]:
    """Return every process, but this one, whose executable lies in the fleet's directory."""
    inside = f"{fleet}/"
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return tuple(pid for pid in pids if pid != os.getpid() and program_of(pid).startswith(inside))


def send(known: Known, number: int) -> bool:
    """Send a signal to that very process; False when it has ended."""
    with _held(known.pid) as pidfd:
        if start_of(known.pid) != known.start:
            return False
        return _signal(known.pid, pidfd, number)


def end(pids: Iterable[int], fleet: str) -> None:
    """End processes of the fleet at once (SIGKILL reaches a stopped one too) and wait until they are gone."""
    waiting = []
    for pid in pids:
        with _held(pid) as pidfd:
            if program_of(pid).startswith(f"{fleet}/"):  # read after the pidfd was opened: it is that very process
                _signal(pid, pidfd, signal.SIGKILL)
                waiting.append((pid, start_of(pid)))
    limit = time.monotonic() + _END_S
    for pid, start in waiting:
        while start is not None and start_of(pid) == start and time.monotonic() < limit:
            time.sleep(0.005)


def wait_gone(known: Known, limit_s: float) -> bool:
    """Wait until a process has ended; False when it lives on."""
    limit = time.monotonic() + limit_s
    while start_of(known.pid) == known.start:
        if time.monotonic() >= limit:
            return False
        time.sleep(0.005)
    return True


def sleep_while_up(fleet: str, seconds: float) -> bool:
    """Sleep as long as the fleet is up; False when it went down before the time was over."""
    limit = time.monotonic() + seconds
    while is_up(fleet):
        left_s = limit - time.monotonic()
        if left_s <= 0:
            return True
        select.select((), (), (), min(left_s, _LOOK_S))
    return False


@contextlib.contextmanager
def _held(pid: int) -> Iterator[int]:
    """Open a pidfd: _GONE where there is no such process, _NO_PIDFD where the kernel (before 5.3) has none."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        pidfd = _GONE
    except OSError:
        pidfd = _NO_PIDFD
    try:
        yield pidfd
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _signal(pid: int, pidfd: int, number: int) -> bool:
    try:
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, number)
        elif pidfd == _NO_PIDFD:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    return pidfd != _GONE
