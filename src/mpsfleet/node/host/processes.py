"""Processes to act on: a pidfd, opened before its identity is read, and signalled through it.

(pid, start time) alone is no identity for a signal: between the reading and the kill a pid can be given to another
process, within one clock tick.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time

from mpsfleet.node.host.children import state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


class Held:
    """A process that cannot be confused with another while this object is open.

    Where the kernel has no pidfds (before 5.3) its identity is read again right before each signal.
    """

    def __init__(self, pid: int, pidfd: int, is_it: Callable[[int], bool]) -> None:
        self.pid = pid
        self._pidfd = pidfd  # -1 without pidfds
        self._is_it = is_it

    def alive(self) -> bool:
        """Return whether the process has not ended (a zombie has)."""
        return not self.wait(0)

    def wait(self, limit_s: float) -> bool:
        """Wait until the process has ended; False when it lives on after `limit_s` seconds."""
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(limit_s * 1000))
        end = time.monotonic() + limit_s
        while state_of(self.pid) not in ("", "Z") and self._is_it(self.pid):
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        return True

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._is_it(self.pid):
                os.kill(self.pid, number)

    def end(self, term_s: float, kill_s: float) -> str | None:
        """TERM (and CONT, for a stopped one), wait, KILL, wait. Return None, or why it lives on."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self.wait(term_s):
            return None
        self.signal(signal.SIGKILL)
        if self.wait(kill_s):
            return None
        state = state_of(self.pid)
        how = "in uninterruptible sleep (only a reboot ends it)" if state == "D" else f"in state {state or '?'}"
        return f"process {self.pid} lives on after SIGKILL, {how}"

    def close(self) -> None:
        """Let go of the process."""
        if self._pidfd >= 0:
            os.close(self._pidfd)


def hold(pid: int, is_it: Callable[[int], bool]) -> Held | None:
    """Open a pidfd, then read the identity with `is_it(pid)`, then see that it still lives; None when it is not it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        pidfd = -1
    held = Held(pid, pidfd, is_it)
    if held.alive() and is_it(pid) and held.alive():
        return held
    held.close()
    return None


def become(argv: tuple[str, ...], environment: tuple[tuple[str, str], ...], output_fd: int) -> None:
    """Replace this process: input from /dev/null, both outputs to `output_fd`, nothing else inherited."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.umask(0o022)
    os.chdir("/")
    os.execve(argv[0], argv, dict(environment))  # no shell is what is wanted


def drop_to(uid: int, gid: int) -> None:
    """Become an ordinary user for good, without root's groups. In a forked child that executes nothing."""
    os.chdir("/")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
