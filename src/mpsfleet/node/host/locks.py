"""Locks of ours: one per GPU (or node-wide daemon), in a directory only root can enter."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from mpsfleet.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.node.host import Host

STATE = "/run/mpsfleet"  # 0700, root's


def state_directory(host: Host) -> str:
    """Make /run/mpsfleet (0700) and return its path on this machine."""
    path = host.path(STATE)
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, 0o700)
    now = os.lstat(path)
    if now.st_uid != host.owner_uid or not os.path.isdir(path) or os.path.islink(path):
        raise Refused(f"{STATE} is not root's own directory; remove it and run again")
    if now.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


@contextlib.contextmanager
def held(host: Host, name: str, limit_s: float) -> Iterator[None]:
    """Hold the lock `name` ("node", or a GPU's UUID); Refused when another mpsfleet keeps it beyond `limit_s`."""
    path = os.path.join(state_directory(host), f"{name}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    message = f"another mpsfleet works on this node ({STATE}/{name}.lock); try again when it has ended"
                    raise Refused(message) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(fd)
