"""One child process: started without a shell, bounded in time and output, both streams kept apart.

The child leads its own process group in `/`, reads nothing and inherits no descriptor; at the deadline the group is
killed. A child that even SIGKILL does not end (state D) is left behind and not waited for.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import IO, NamedTuple, cast

OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes, both streams together; 4,000 nodes of 2 kB are 8 MiB
_CHUNK = 65536
_GRACE_S = 0.1  # between the end of its output and its own end
_LAST_WAIT_S = 1.0


class Ended(NamedTuple):
    r"""What came of the child. Bytes that are no UTF-8 stand as \\xNN in the texts; `rc` is -N after signal N."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False
    too_long: bool = False


class _Collected(NamedTuple):
    stdout: bytes
    stderr: bytes
    timed_out: bool
    too_long: bool


def run(
    argv: tuple[str, ...],
    environment: dict[str, str],
    timeout_s: float,
    output_limit: int = OUTPUT_LIMIT,
) -> Ended:
    """Run a program to its end or to a limit. Raises OSError where it cannot be started."""
    deadline = time.monotonic() + timeout_s
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )
    is_over = False
    try:
        got = _collect(cast("IO[bytes]", child.stdout), cast("IO[bytes]", child.stderr), deadline, output_limit)
        is_over = (
            not got.timed_out and not got.too_long and _ended_by(child, max(_GRACE_S, deadline - time.monotonic()))
        )
    finally:  # also on an interrupt, which the child in its own session does not get
        if not is_over:  # before the child is waited for: until then its number cannot become another group's
            _kill_group(child)
            _ended_by(child, _LAST_WAIT_S)
    rc = child.returncode if child.returncode is not None else -int(signal.SIGKILL)
    return Ended(rc, _text(got.stdout), _text(got.stderr), not is_over and not got.too_long, got.too_long)


def _collect(stdout: IO[bytes], stderr: IO[bytes], deadline: float, limit: int) -> _Collected:
    """Read both streams to their ends, or until the deadline or the limit; close them."""
    kept: dict[IO[bytes], list[bytes]] = {stdout: [], stderr: []}
    size = 0
    with stdout, stderr, selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map() and size <= limit and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                kept[key.data].append(data)
                size += len(data)
        is_open = bool(selector.get_map())
    too_long = size > limit
    return _Collected(b"".join(kept[stdout]), b"".join(kept[stderr]), is_open and not too_long, too_long)


def _ended_by(child: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
