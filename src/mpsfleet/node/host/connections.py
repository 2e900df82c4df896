"""A connection of another process, looked at: the kernel's word on who opened its other end. Nothing is sent on it."""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

_PIDFD_GETFD = 438  # the same on every architecture (pidfd_getfd(2), Linux 5.6)
_CREDENTIALS = struct.Struct("3i")


class Accepted(NamedTuple):
    """One end of a connection between processes of this machine, as its owner accepted it."""

    path: str  # of the socket that was connected to; "" where it has no path
    pid: int  # of whoever connected; 0 from another process namespace
    uid: int


def accepted(pid: int, number: int) -> Accepted:
    """Return what the kernel knows of the connection that is descriptor `number` of process `pid`.

    SO_PEERCRED of a copy of that descriptor, so it is exact even where the other end has been handed on. OSError where
    the kernel has no pidfd_getfd, where it is not allowed, and where the descriptor is gone or is no such connection.
    """
    import ctypes  # 2 ms, and only for a daemon that is silent or has clients

    library = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        copy = library.syscall(_PIDFD_GETFD, pidfd, number, 0)
    finally:
        os.close(pidfd)
    if copy < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    with socket.socket(fileno=copy) as connection:
        if connection.family != socket.AF_UNIX or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(f"descriptor {number} is no connection")
        path = connection.getsockname()
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    who, uid, _gid = _CREDENTIALS.unpack(raw)
    return Accepted(path if isinstance(path, str) else "", who, uid)
