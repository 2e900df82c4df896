"""Why a control daemon is silent, read from the kernel alone: nothing is asked of the daemon.

It serves one connection at a time and reads from it with recvmsg(2); its own log lines go through its log fifo, which
one thread of its own empties. Measured on 470 to 555: two threads while it is well.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import termios
from typing import TYPE_CHECKING

from mpsfleet.node.host import connections, processes
from mpsfleet.node.host_facts import Cause, Holder
from mpsfleet.node.probe import procfs

if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_PAUSE_S = 0.1
_MOST_FDS = 256
_LOG = "/log"
_KERNEL = "this kernel cannot tell by whom"


def cause(host: Host, pid: int) -> Cause:
    """Return what keeps the daemon `pid`, as far as it can be told."""
    threads = procfs.threads(host, pid)
    first = _unread(host, pid)
    holder = _holder(host, pid)
    if first <= 0:
        return Cause(threads, first, holder=holder)
    processes.sleep(_PAUSE_S)
    second = _unread(host, pid)
    return Cause(threads, second, 0 <= second < first, holder)


def _holder(host: Host, pid: int) -> Holder | None:
    """Return who opened the connection that the daemon waits on for bytes; None where it does not wait so."""
    number = procfs.receives_from(host, pid)
    if number < 0:
        return None
    try:
        _, who, uid = connections.accepted(pid, number)
    except OSError as error:
        return Holder(reason=_KERNEL if error.errno in (errno.ENOSYS, errno.EPERM) else error.strerror or "")
    if who <= 0:
        return Holder(uid=uid, reason="it lives in another process namespace")
    found = procfs.process(host, who)
    return Holder(who, uid, found.comm if found else "")


def _unread(host: Host, pid: int) -> int:
    """Return how many bytes lie unread in the daemon's log fifo, by its own descriptor; -1 where it cannot be told."""
    base = f"{host.proc}/{pid}/fd"
    try:
        for number in os.listdir(base)[:_MOST_FDS]:
            path = f"{base}/{number}"
            if os.readlink(path).endswith(_LOG) and stat.S_ISFIFO(os.stat(path).st_mode):
                return _waiting(path)
    except OSError:
        return -1
    return -1


def _waiting(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    finally:
        os.close(fd)
    return int(count)
