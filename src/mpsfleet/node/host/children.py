"""Children: run several commands side by side under their own time limits, with nothing inherited.

`os.posix_spawn` and one poll loop (the subprocess module alone costs more start-up than a query of the daemon). A child
gets an environment from scratch, its own process group and pipes for its three streams; output is capped; at its limit
the group is killed, and a child that cannot be killed is not waited for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

_CHUNK = 65536
_GRACE_S = 0.2  # for a killed child to be reaped; one in uninterruptible sleep is left behind
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = (("PATH", PATH), ("LC_ALL", "C"))


class Command(NamedTuple):
    """A program to run. `argv[0]` is an absolute path."""

    argv: tuple[str, ...]
    limit_s: float
    stdin: bytes = b""
    environment: tuple[tuple[str, str], ...] = ENVIRONMENT
    keep_fd: int = -1  # a descriptor the child inherits under the same number
    cap: int = _CHUNK  # bytes kept of each output stream; more ends the child
    delay_s: float = 0.0  # wait this long before starting


class Answer(NamedTuple):
    """What a command gave. `rc` is None when it did not end in time; a negative rc is a signal."""

    rc: int | None
    out: str
    err: str
    state: str = ""  # letter of /proc/PID/stat at the time limit
    capped: bool = False
    missing: bool = False  # the program is not there or not executable


if TYPE_CHECKING:
    Again = Callable[[int, Answer], Optional[Command]]


class _Child:
    def __init__(self, index: int, command: Command, now: float) -> None:
        self.index = index
        self.command = command
        self.out = bytearray()
        self.err = bytearray()
        self.capped = False
        self.rc: int | None = None
        self.starts = now + command.delay_s
        self.deadline = self.starts + command.limit_s
        self.pid = 0
        self.fds: dict[int, bytearray] = {}
        self.stdin = -1
        self.to_send = command.stdin
        self.pidfd = -1

    def start(self) -> bool:
        """Start the child; False when the program cannot be executed."""
        ends: list[tuple[int, int]] = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, ends[0][0], 0),
            (os.POSIX_SPAWN_DUP2, ends[1][1], 1),
            (os.POSIX_SPAWN_DUP2, ends[2][1], 2),
        ]
        kept = self.command.keep_fd
        if kept >= 0:
            actions.append((os.POSIX_SPAWN_DUP2, kept, kept))
            os.set_inheritable(kept, True)
        try:
            self.pid = os.posix_spawn(
                self.command.argv[0],
                self.command.argv,
                dict(self.command.environment),
                file_actions=actions,
                setpgroup=0,
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM),
            )
        except OSError:
            for pair in ends:
                os.close(pair[0])
                os.close(pair[1])
            return False
        finally:
            if kept >= 0:
                os.set_inheritable(kept, False)
        os.close(ends[0][0])
        os.close(ends[1][1])
        os.close(ends[2][1])
        self.stdin = ends[0][1]
        self.fds = {ends[1][0]: self.out, ends[2][0]: self.err}
        for each in (self.stdin, *self.fds):
            os.set_blocking(each, False)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:  # a kernel before 5.3: the end of the child shows as the end of its streams
            self.pidfd = -1
        return True

    def send(self) -> None:
        """Write what is left of the input; close the pipe when it is all gone or nobody reads."""
        if self.stdin < 0:
            return
        try:
            sent = os.write(self.stdin, self.to_send) if self.to_send else 0
            self.to_send = self.to_send[sent:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.to_send = b""
        if not self.to_send:
            os.close(self.stdin)
            self.stdin = -1

    def receive(self, fd: int) -> None:
        """Read what is there; forget the stream at its end or beyond the cap."""
        into = self.fds[fd]
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        room = self.command.cap - len(into)
        into += data[:room]
        if len(data) > room:
            self.capped = True
        if not data or self.capped:
            os.close(fd)
            del self.fds[fd]

    def reap(self) -> bool:
        """Take the exit status if the child has ended."""
        if self.rc is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self.rc = os.waitstatus_to_exitcode(status)
        return True

    def close(self) -> None:
        for each in (self.stdin, self.pidfd, *self.fds):
            if each >= 0:
                os.close(each)
        self.stdin = self.pidfd = -1
        self.fds = {}

    def drain(self) -> None:
        """After the end of the child: read what its pipes still hold (a grandchild may keep them open)."""
        for fd in tuple(self.fds):
            before = -1
            while fd in self.fds and len(self.fds[fd]) != before:
                before = len(self.fds[fd])
                self.receive(fd)

    def kill(self) -> None:
        """Kill the group and reap; a child that does not die within the grace is left to init."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # our own unreaped child: its pid cannot have been reused
        end = time.monotonic() + _GRACE_S
        while not self.reap() and time.monotonic() < end:
            time.sleep(0.005)

    def answer(self, *, in_time: bool, state: str) -> Answer:
        return Answer(
            self.rc if in_time else None,
            self.out.decode("utf-8", "replace"),
            self.err.decode("utf-8", "replace"),
            state,
            self.capped,
        )


def run(
    commands: tuple[Command, ...], again: Again | None = None, meanwhile: Callable[[], None] = lambda: None
) -> tuple[Answer, ...]:
    """Run `commands` side by side and return their answers in order.

    `again(index, answer)` may return another command to try in the place of the one that ended (a busy daemon), until
    it returns None. `meanwhile` is done once, when the first have been started; it must be short. Never raises for a
    child: a missing program, a time limit and a flood are answers.
    """
    answers: list[Answer | None] = [None] * len(commands)
    now = time.monotonic()
    waiting = [_Child(index, command, now) for index, command in enumerate(commands)]
    live: list[_Child] = []
    is_first = True

    def settle(child: _Child, answer: Answer) -> None:
        child.close()
        another = again(child.index, answer) if again else None
        if another is None:
            answers[child.index] = answer
        else:
            waiting.append(_Child(child.index, another, time.monotonic()))

    while waiting or live:
        now = time.monotonic()
        for child in [each for each in waiting if each.starts <= now]:
            waiting.remove(child)
            if child.start():
                child.send()
                live.append(child)
            else:
                settle(child, Answer(None, "", "", missing=True))
        if is_first:
            meanwhile()
            is_first = False
        _wait(live, waiting)
        now = time.monotonic()
        for child in tuple(live):
            if _ended(child):
                live.remove(child)
                child.drain()
                settle(child, child.answer(in_time=True, state=""))
            elif child.capped or now >= child.deadline:
                live.remove(child)
                state = state_of(child.pid)
                child.kill()
                settle(child, child.answer(in_time=False, state=state))
    return tuple(each if each is not None else Answer(None, "", "") for each in answers)


def _ended(child: _Child) -> bool:
    if child.pidfd < 0 and child.fds:
        return False
    return child.reap()


def _wait(live: list[_Child], waiting: list[_Child]) -> None:
    """Poll until something can be read, a child ended, or the next deadline or start is due."""
    due = [child.deadline for child in live] + [child.starts for child in waiting]
    if not due:
        return
    poll = select.poll()
    reads: dict[int, _Child] = {}
    for child in live:
        for fd in child.fds:
            poll.register(fd, select.POLLIN)
            reads[fd] = child
        if child.stdin >= 0:
            poll.register(child.stdin, select.POLLOUT)
        if child.pidfd >= 0:
            poll.register(child.pidfd, select.POLLIN)
    left_s = max(0.0, min(due) - time.monotonic())
    # without pidfds a child may end while a grandchild keeps its streams: look again soon
    slice_s = left_s if all(child.pidfd >= 0 for child in live) else min(left_s, 0.05)
    for fd, _event in poll.poll(slice_s * 1000 + 1):
        if fd in reads:
            reads[fd].receive(fd)
    for child in live:
        child.send()


def state_of(pid: int, proc: str = "/proc") -> str:
    """Return the state letter of /proc/PID/stat (proc(5)), or "" when it is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as stream:
            return stream.read(4096).rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


class Apart:
    """A piece of reading done in a forked child with a deadline, while this process goes on.

    For reads that another process can make block or grow (its environ), and for looking with another user's eyes.
    """

    def __init__(self, work: Callable[[], bytes], limit_s: float, cap: int = 262_144) -> None:
        self._deadline = time.monotonic() + limit_s
        self._inlet, outlet = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._inlet)
                os.write(outlet, b"=" + work()[:cap])
                status = 0
            finally:
                os._exit(status)
        os.close(outlet)

    def result(self) -> bytes | None:
        """Return what the work returned; None when it failed or did not end in time. To be called once."""
        got = bytearray()
        poll = select.poll()
        poll.register(self._inlet, select.POLLIN)
        ended = False
        while not ended:
            left_s = self._deadline - time.monotonic()
            if not poll.poll(max(0.0, left_s) * 1000):
                break
            data = os.read(self._inlet, _CHUNK)
            ended = not data
            got += data
        os.close(self._inlet)
        if not ended:
            os.kill(self._pid, signal.SIGKILL)  # our own unreaped child: its pid cannot have been reused
        end = time.monotonic() + _GRACE_S
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            time.sleep(0.002)
        return bytes(got[1:]) if ended and got[:1] == b"=" else None
