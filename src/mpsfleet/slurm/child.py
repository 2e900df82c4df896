"""One child process: started without a shell, bounded in time and output, both streams kept apart.

The child leads its own process group in `/`, reads nothing and inherits no descriptor; at the deadline the group is
killed. A child that even SIGKILL does not end (state D) is left behind and not waited for.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from typing import IO, NamedTuple

OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes, both streams together; 4,000 nodes of 2 kB are 8 MiB
_CHUNK = 65536
_LAST_WAIT_S = 1.0


class Ended(NamedTuple):
    """What came of the child. Bytes that are no UTF-8 stand as \\xNN in the texts; `rc` is -N after signal N."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False
    too_long: bool = False


def run(
    argv: tuple[str, ...],
    environment: dict[str, str],
    timeout_s: float,
    output_limit: int = OUTPUT_LIMIT,
) -> Ended:
    """Run a program to its end or to a limit. Raises OSError where it cannot be started."""
    deadline = time.monotonic() + timeout_s
    child = subprocess.Popen(  # noqa: S603 - argv is a tuple with an absolute path
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )
    assert child.stdout is not None  # noqa: S101 - for the type checker; both are pipes
    assert child.stderr is not None  # noqa: S101
    kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0
    timed_out = too_long = False
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, "stdout")
        selector.register(child.stderr, selectors.EVENT_READ, "stderr")
        while selector.get_map() and not timed_out and not too_long:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                kept[key.data].append(data)
                size += len(data)
            too_long = size > output_limit
            timed_out = not too_long and bool(selector.get_map()) and time.monotonic() >= deadline
    if not timed_out and not too_long:
        timed_out = not _ended_by(child, max(0.0, deadline - time.monotonic()))
    if timed_out or too_long:  # before the child is waited for: until then its number cannot become another group's
        _kill_group(child)
        _ended_by(child, _LAST_WAIT_S)
    _close(child.stdout, child.stderr)
    rc = child.returncode if child.returncode is not None else -int(signal.SIGKILL)
    return Ended(rc, _text(kept["stdout"]), _text(kept["stderr"]), timed_out, too_long)


def _ended_by(child: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _close(*streams: IO[bytes]) -> None:
    for stream in streams:
        stream.close()


def _text(parts: list[bytes]) -> str:
    return b"".join(parts).decode("utf-8", "backslashreplace")
