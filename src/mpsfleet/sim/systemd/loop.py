"""The supervisor's loop: tasks written as generators, each waiting for a process to end, a time, or a job.

One thread. Every child's end is collected here, also of orphans, which come to this process as they come to PID 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from mpsfleet.sim.processes import start_of

if TYPE_CHECKING:
    import socket

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ADOPTED_LOOK_S = 0.1
UNKNOWN_END = 9  # wait status of a process that was not our child: taken for killed


class Wait(NamedTuple):
    """What a task waits for; whichever comes first."""

    pid: int = 0
    until: float | None = None  # monotonic seconds
    jobs: bool = False


class Event(NamedTuple):
    """What came."""

    kind: str  # "ended" | "time" | "job"
    status: int = 0  # as of waitpid(2)
    job: Any = None


Task = Generator[Wait, Event, None]


class Loop:
    """Runs tasks until `goes_on` says no. `hear` is called with the listener when somebody connects."""

    def __init__(self, listener: socket.socket, hear: Callable[[], None], goes_on: Callable[[], bool]) -> None:
        self._listener = listener
        self._hear = hear
        self._goes_on = goes_on
        self._tasks: dict[str, tuple[Task, Wait]] = {}
        self._ended: dict[int, int] = {}
        self._adopted: dict[int, int] = {}  # pid: start
        self.jobs: dict[str, deque[Any]] = {}

    def add(self, name: str, task: Task) -> None:
        """Start a task under a name; a task of that name must not be running."""
        self.jobs.setdefault(name, deque())
        with contextlib.suppress(StopIteration):
            self._tasks[name] = (task, next(task))

    def adopt(self, pid: int, start: int) -> None:
        """Watch a process that is not our child."""
        self._adopted[pid] = start

    def run(self, slice_s: float) -> None:
        """Go round, at least every `slice_s` seconds."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        inlet, outlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(inlet, selectors.EVENT_READ)
            while self._goes_on():
                self._collect()
                while self._step():
                    self._collect()
                for key, _ in selector.select(self._left_s(slice_s)):
                    if key.fd == inlet:
                        with contextlib.suppress(BlockingIOError):
                            os.read(inlet, 4096)
                    else:
                        self._hear()

    def _left_s(self, slice_s: float) -> float:
        due = [wait.until - time.monotonic() for _, wait in self._tasks.values() if wait.until is not None]
        return max(0.0, min([slice_s, *due, *([_ADOPTED_LOOK_S] if self._adopted else [])]))

    def _collect(self) -> None:
        """Take the exit status of every child that has ended, and see which adopted processes have."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._ended[pid] = status
        for pid, start in tuple(self._adopted.items()):
            if start_of(pid) != start:
                del self._adopted[pid]
                self._ended[pid] = UNKNOWN_END
        waited = {wait.pid for _, wait in self._tasks.values()}
        if len(self._ended) > 256:  # noqa: PLR2004  # orphans nobody asks about
            self._ended = {pid: status for pid, status in self._ended.items() if pid in waited}

    def _step(self) -> bool:
        """Give every task the event it waits for, if there is one; False when nothing happened."""
        moved = False
        for name, (task, wait) in tuple(self._tasks.items()):
            event = self._event(name, wait)
            if event is None:
                continue
            moved = True
            try:
                self._tasks[name] = (task, task.send(event))
            except StopIteration:
                del self._tasks[name]
        return moved

    def _event(self, name: str, wait: Wait) -> Event | None:
        if wait.pid and wait.pid in self._ended:
            return Event("ended", self._ended.pop(wait.pid))
        if wait.jobs and self.jobs[name]:
            return Event("job", job=self.jobs[name].popleft())
        if wait.until is not None and time.monotonic() >= wait.until:
            return Event("time")
        return None
