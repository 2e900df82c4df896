"""A connection of another process, looked at: the kernel's word on who opened its other end. Nothing is sent on it."""

from __future__ import annotations

import os
import socket
import struct

_PIDFD_GETFD = 438  # the same on every architecture (pidfd_getfd(2), Linux 5.6)
_CREDENTIALS = struct.Struct("3i")


def opened_by(pid: int, number: int) -> tuple[int, int]:
    """Return pid and uid of whoever connected to the socket that is descriptor `number` of process `pid`.

    SO_PEERCRED of a copy of that descriptor, so it is exact even where the other end has been handed on. OSError where
    the kernel has no pidfd_getfd, where it is not allowed, and where the descriptor is gone or is no socket.
    """
    import ctypes  # 2 ms, and only for a daemon that is silent

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
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    who, uid, _gid = _CREDENTIALS.unpack(raw)
    return who, uid
