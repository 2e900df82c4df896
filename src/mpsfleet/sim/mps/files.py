"""What a control daemon makes in its directories before it serves, in NVIDIA's order and with NVIDIA's modes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys

from mpsfleet.sim.mps import behaviour
from mpsfleet.sim.mps.log import Log
from mpsfleet.sim.mps.wire import LONGEST_SOCKET, UI_SOCKET, USER_SOCKET, log_directory, pipe_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.sim.place import Place

_LOCK, _FIFO, _PID = "control_lock", "log", "nvidia-cuda-mps-control.pid"
_BACKLOG = 128
_STANDARD_OUTPUT = 1


class NotStarted(Exception):
    """What NVIDIA's says when it does not start; "" where it says nothing."""


class Files:
    """The open files of a daemon."""

    def __init__(self, directory: str, log: Log, server_log: int) -> None:
        self._directory = directory
        self.log = log
        self.server_log = server_log  # inherited by servers; -1 where there is none
        self.listeners: list[socket.socket] = []

    def remove_some(self) -> None:
        """Remove what goes with a clean end."""
        for name in (_FIFO, _PID):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._directory}/{name}")


def make_ready(place: Place, is_in_background: bool) -> Files:  # noqa: FBT001  # -d or -f
    """Make and open everything. NotStarted where NVIDIA's daemon ends at once."""
    directory = pipe_directory(place.root)
    output, server_log = _logs(log_directory(place.root)) if is_in_background else (_STANDARD_OUTPUT, _STANDARD_OUTPUT)
    before = os.umask(0)
    with contextlib.suppress(OSError):
        os.mkdir(directory, 0o777)  # made open to all whatever the umask; an existing one is left as it is
    try:
        lock = os.open(f"{directory}/{_LOCK}", os.O_WRONLY | os.O_CREAT, 0o666)
    except OSError:
        raise NotStarted(f"Cannot access CUDA_MPS_PIPE_DIRECTORY={directory}") from None
    finally:
        os.umask(before)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise NotStarted("An instance of this daemon is already running") from None
    os.set_inheritable(lock, True)  # servers inherit it; the lock itself is this process's
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{_FIFO}")
    os.mkfifo(f"{directory}/{_FIFO}", 0o777)
    os.chmod(f"{directory}/{_FIFO}", 0o777)  # noqa: S103  # as NVIDIA's
    files = Files(directory, Log(f"{directory}/{_FIFO}", output), server_log)
    files.log.say(f"Starting control daemon using socket {directory}/{USER_SOCKET}")
    files.log.say(f"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={directory}")
    files.listeners = [_listener(f"{directory}/{name}") for name in (UI_SOCKET, USER_SOCKET)]
    os.chmod(f"{directory}/{USER_SOCKET}", 0o666)  # noqa: S103  # as NVIDIA's
    if behaviour.version_of(place) >= behaviour.WITH_STATUS:
        _write_pid(f"{directory}/{_PID}")
    return files


def _logs(directory: str) -> tuple[int, int]:
    """Return the open control.log and server.log; -1 each where they cannot be written, which is said and no more."""
    with contextlib.suppress(OSError):
        os.mkdir(directory, 0o700)
    found = []
    for name in ("control.log", "server.log"):
        try:
            found.append(os.open(f"{directory}/{name}", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666))
            os.set_inheritable(found[-1], True)
        except OSError:
            found.append(-1)
    if -1 in found:
        sys.stdout.write(f"Warning: Failed writing log files to directory [{directory}]. No logs will be available.\n")
        sys.stdout.flush()
    return found[0], found[1]


def _listener(path: str) -> socket.socket:
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise NotStarted("")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        listener.bind(path)
    except OSError:
        raise NotStarted("") from None
    listener.listen(_BACKLOG)
    return listener


def _write_pid(path: str) -> None:
    before = os.umask(0)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    os.umask(before)
    os.write(fd, f"{os.getpid()}\n".encode())
    os.close(fd)
