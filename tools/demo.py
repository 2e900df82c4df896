"""`./dev demo`: a cluster in which MPS is deployed, broken on three nodes, drained, repaired.

Simulated, for everybody; with `--lab` a real one on this machine, which takes root. The story is checked as it is told:
where a step ends otherwise than it says, the demo fails. Whatever ends it, nothing of it is left running.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import demo_lab
import demo_sim
from outcome import REPOSITORY
from story import LOG, StoryError, say

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
BUSY = 75
NOT_ROOT = 77
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(words: list[str]) -> int:
    """Tell the story; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="A cluster on this machine, broken and repaired.")
    parser.add_argument("--lab", action="store_true", help="a real Slurm cluster on this machine (Debian, root)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    parser.add_argument("--verbose", action="store_true", help="show all that Ansible says")
    options = parser.parse_args(words)
    if options.lab and os.geteuid() != 0:
        sys.stderr.write("dev: the lab starts machines on this one, which takes root: `sudo ./dev demo --lab`.\n")
        return NOT_ROOT
    told = demo_lab if options.lab else demo_sim
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("demo: another demo runs in this checkout; wait for its end.\n")
            return BUSY
        lock.truncate(0)
        for number in _ENDING:
            signal.signal(number, _interrupt)
        return _run(told, options)


def _run(told: Told, options: argparse.Namespace) -> int:
    start, failed, code = time.monotonic(), None, 1
    try:
        told.down()  # what an earlier run left: `--keep`, or one that was killed
        told.tell(is_verbose=options.verbose)
    except StoryError as error:
        failed = str(error)
    except KeyboardInterrupt:
        failed, code = "interrupted.", INTERRUPTED
    took_s = time.monotonic() - start
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)  # the clean-up is not to be interrupted; it takes seconds
    if options.keep and code != INTERRUPTED:
        say(told.WHILE_IT_IS_UP)
    elif told.down() != 0:
        failed = f"{failed or ''} The cluster could not be taken away."
    if failed:
        sys.stderr.write(f"demo: {failed} All that was said is in {LOG.relative_to(REPOSITORY)}.\n")
        return code
    say(f"{told.NEXT}\n\nThe story took {took_s:.0f} s.")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if TYPE_CHECKING:
    from typing import Protocol

    class Told(Protocol):
        """One of the two stories: a module."""

        NEXT: str
        WHILE_IT_IS_UP: str

        def tell(self, *, is_verbose: bool) -> None:
            """Tell it."""

        def down(self) -> int:
            """Take away what it needs."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
