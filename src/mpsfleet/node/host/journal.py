"""Where a hook's one sentence goes (Slurm rarely shows its output), and the end of a hook that takes too long."""

from __future__ import annotations

import os
import signal
import syslog
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_STDERR = 2


def say(sentence: str) -> None:
    """Write one printable line to the system's journal (syslog(3)) and to stderr; neither can fail the caller."""
    syslog.openlog("mpsfleet", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, sentence)
    _to_stderr(sentence)


def end_after(limit_s: float, sentence: str, status: int) -> None:
    """End this process with `status` after `limit_s` seconds, with one sentence, unless it has ended by itself."""

    def ended(_number: int, _frame: FrameType | None) -> None:
        _to_stderr(sentence)
        os._exit(status)

    signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def _to_stderr(sentence: str) -> None:
    try:
        os.write(_STDERR, f"mpsfleet: {sentence}\n".encode("utf-8", "backslashreplace"))
    except OSError:  # nobody listens
        return
