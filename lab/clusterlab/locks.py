"""Locks: one `up` or `down` of a lab and one builder of the cache at a time; the kernel drops a dead holder's."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clusterlab.errors import LabError
from clusterlab.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(path: Path, what: str, *, wait_s: float) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs; LabError if another holds it for wait_s seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_CLOEXEC is Python's default: a machine that is booted here does not inherit the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        is_said = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LabError(f"another process has been {what} for {wait_s:g} s ({path} is locked)") from None
            if not is_said:
                say(f"waiting: another process is {what}")
                is_said = True
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
