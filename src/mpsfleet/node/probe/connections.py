"""Who is connected to a control daemon: the kernel's own word for it, taken from the daemon's side.

The daemon keeps the connection of a program that it has not yet given to a server. pidfd_getfd(2) copies such a
descriptor, and SO_PEERCRED of the copy names the pid and the uid that connected (unix(7)). Nothing is sent or read.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.node.host import Host

_PIDFD_GETFD = 438  # the same number on all architectures (Linux 5.6)
_CREDENTIALS = struct.Struct("3i")
_MOST_FDS = 4096
_SOCKET = "control"  # the one for users; root's answers come through another


def users(host: Host, daemon: int) -> tuple[tuple[int, int], ...]:
    """Return pid and uid of each connection to the daemon's `control`; () where the kernel does not tell."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(daemon)
        try:
            return tuple(_connected(host, daemon, pidfd))
        finally:
            os.close(pidfd)
    return ()


def _connected(host: Host, daemon: int, pidfd: int) -> Iterator[tuple[int, int]]:
    import ctypes  # 2 ms, and only where a server has clients

    library = ctypes.CDLL(None, use_errno=True)
    folder = f"{host.proc}/{daemon}/fd"
    for name in os.listdir(folder)[:_MOST_FDS]:
        with contextlib.suppress(OSError):  # closed meanwhile
            if not os.readlink(f"{folder}/{name}").startswith("socket:"):
                continue
            copy = library.syscall(_PIDFD_GETFD, pidfd, int(name), 0)
            if copy >= 0:
                with socket.socket(fileno=copy) as connection:
                    found = _peer(connection)
                if found is not None:
                    yield found


def _peer(connection: socket.socket) -> tuple[int, int] | None:
    """Return who connected to this end, if it is an end of a connection to `control`."""
    if connection.family != socket.AF_UNIX or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    at = connection.getsockname()
    if not isinstance(at, str) or os.path.basename(at) != _SOCKET:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return (pid, uid) if pid > 0 else None
