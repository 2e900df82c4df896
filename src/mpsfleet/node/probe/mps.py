"""The control daemon, asked: who listens on its sockets, what it answers root, what an ordinary user meets.

All reads of a daemon go in one invocation: an unknown word between two commands is answered `Unknown command "word"`
(seen on 470 to 555) and so delimits the answers. The pipe directory is handed over as a pinned descriptor, so the
directory asked is the directory looked at. The exit status only tells whether the daemon was reached; the text tells
the rest.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct

from mpsfleet.node.host import children
from mpsfleet.node.model import Answers, Peer, ServerAnswer, Silence, UserView
from mpsfleet.node.probe import procfs
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command

_MARK = "mpsfleet-next"
_LIMIT = "get_default_device_pinned_mem_limit"
_PRIORITY = "get_default_client_priority"
_STATUS_OF, _CLIENTS_OF = "get_server_status", "get_client_list"
_STARTING = "INITIALIZING"
_UNKNOWN = "Unknown command"
_NO_SERVER = "not found"
_STATUS = 20  # characters of a server's status
_DIGITS = 18  # of any number it prints
_MIB = {"M": 1, "G": 1024}
_BUSY = "Cannot send command to MPS control daemon process"
_NOBODY = "Cannot find MPS control daemon process"
_CREDENTIALS = struct.Struct("3i")
BUSY_PAUSE_S = 0.03


def peer(host: Host, directory_fd: int, name: str) -> Peer:
    """Return who listens on socket `name` of the pinned directory, without sending a byte.

    SO_PEERCRED names whoever last called listen(), so it answers for a stopped daemon too; it is no proof of life.
    """
    path = f"/proc/self/fd/{directory_fd}/{name}"
    try:
        kind = os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
    except OSError as error:
        return Peer("absent" if error.errno == errno.ENOENT else "failed", reason=error.strerror or "")
    if not stat.S_ISSOCK(kind):
        return Peer("not-a-socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(0)
        try:
            connection.connect(path)
        except OSError as error:
            return _unconnected(error)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    owner = procfs.process(host, pid) if pid > 0 else None
    return Peer("listening", pid, uid, owner.comm if owner else "")


def _unconnected(error: OSError) -> Peer:
    if error.errno == errno.EAGAIN:
        return Peer("busy", reason="its queue of connections is full")
    if error.errno in (errno.ECONNREFUSED, errno.ENOENT, errno.EPROTOTYPE):
        return Peer("refused", reason=error.strerror or "")
    return Peer("failed", reason=error.strerror or str(error))


class About(NamedTuple):
    """What a daemon is asked about beside itself."""

    devices: int = 0  # GPUs, in its own order, whose memory limit is asked
    servers: tuple[int, ...] = ()  # pids of processes that may be its servers
    priority: bool = False  # whether the priority of clients is asked


NOTHING_ELSE = About()


def question(
    binary: str, directory_fd: int, limit_s: float, about: About = NOTHING_ELSE, delay_s: float = 0.0
) -> Command:
    """Return the command that asks the daemon of the pinned directory everything the audit needs.

    A driver answers what it does not know by saying so: get_server_status came with 550, ps and priorities with 535.
    """
    asked = [
        "get_default_active_thread_percentage",
        "get_server_list",
        *(f"{_LIMIT} {each}" for each in range(about.devices)),
        *((_PRIORITY,) if about.priority else ()),
        *(f"{_STATUS_OF} {pid}" for pid in about.servers),
        *(("ps",) if about.servers else ()),
    ]
    words = "".join(f"{each}\n{_MARK}\n" for each in asked)
    return command(binary, directory_fd, words.encode(), limit_s, delay_s)


def clients_question(
    binary: str, directory_fd: int, limit_s: float, servers: tuple[int, ...], delay_s: float = 0.0
) -> Command:
    """Return the command that asks for the clients of servers."""
    words = "".join(f"{_CLIENTS_OF} {each}\n{_MARK}\n" for each in servers)
    return command(binary, directory_fd, words.encode(), limit_s, delay_s)


def ready(said: Answers) -> tuple[int, ...]:
    """Return the daemon's servers that have come beyond their start; of others it does not know the clients."""
    told = (each for each in said.of_servers if each.pid in said.servers)
    return tuple(each.pid for each in told if each.status != _STARTING and each.is_ready is not False)


def with_clients(said: Answers, answer: Answer) -> Answers:
    """Add the answer about the clients of the ready servers; one that is not understood tells of none."""
    asked = ready(said)
    parts = answer.out.split(f'Unknown command "{_MARK}"\n')
    if answer.rc is None or answer.capped or len(parts) != len(asked) + 1:
        return said
    try:
        clients = dict(zip(asked, map(_clients, parts)))
    except ValueError:
        return said
    told = tuple(each._replace(clients=clients.get(each.pid)) for each in said.of_servers)
    return said._replace(of_servers=told, raw=said.raw + answer.out)


def command(binary: str, directory_fd: int, stdin: bytes, limit_s: float, delay_s: float = 0.0) -> Command:
    """Return one invocation of NVIDIA's control program, a path of this machine, on the pinned pipe directory."""
    environment = (*children.ENVIRONMENT, ("CUDA_MPS_PIPE_DIRECTORY", f"/proc/self/fd/{directory_fd}"))
    return children.Command((binary,), limit_s, stdin, environment, directory_fd, delay_s=delay_s)


def is_busy(answer: Answer) -> bool:
    """Return whether the daemon was serving another connection: it takes one at a time, and busy is not dead."""
    return answer.rc not in (0, None) and _BUSY in answer.err + answer.out


def is_unheard(answer: Answer) -> bool:
    """Return whether a question was not answered because the daemon served another connection.

    For questions that are always answered by a line: a busy daemon also drops a connection without a word, with exit
    status 0 or 1 (12 of 400 queries beside three loops of a user's, 535).
    """
    return is_busy(answer) or (answer.rc in (0, 1) and not answer.out.strip() and not answer.err.strip())


def understand(answer: Answer, limit_s: float, about: About = NOTHING_ELSE) -> Answers | Silence:
    """Return what the daemon said to `question`, or in what way it was silent. Replies are matched to a grammar."""
    if answer.missing:
        return Silence("no-binary", "the control program cannot be executed")
    if answer.capped:
        return Silence("garbled", "it answered without end")
    if answer.rc is None:
        return Silence("timeout", f"it did not answer within {limit_s:g} s", seconds=limit_s)
    said = answer.out + answer.err
    if _NOBODY in said:
        return Silence("no-daemon", _NOBODY)
    if is_unheard(answer):
        return Silence("busy", f"it served other connections for {limit_s:g} s")
    parts = answer.out.split(f'Unknown command "{_MARK}"\n')
    devices, asked, has_priority = about
    limits_end = 2 + devices
    servers_begin = limits_end + has_priority
    if len(parts) != servers_begin + (len(asked) + 1 if asked else 0) + 1:  # the rest is one more
        return Silence("garbled", f"it answered {said.strip()!r}")
    try:
        percentage = _decimal(parts[0].strip())
        servers = tuple(_number(line) for line in parts[1].split())
        limits = tuple(memory_mib(each) for each in parts[2:limits_end])
        priority = _priority(parts[limits_end]) if has_priority else None
        of_servers = _of_servers(asked, parts[servers_begin:-1])
    except ValueError:
        return Silence("garbled", f"it answered {said.strip()!r}")
    return Answers(percentage, servers, limits, answer.out, of_servers, priority)


def _of_servers(asked: tuple[int, ...], parts: list[str]) -> tuple[ServerAnswer, ...]:
    """Read a status for each server asked about, and after them `ps`, which is of all."""
    return tuple(ServerAnswer(pid, _status(each), None, _is_ready(parts[-1])) for pid, each in zip(asked, parts))


def _status(said: str) -> str | None:
    """Read "ACTIVE"; None for an older driver or a pid that is no server of this daemon. ValueError for a text."""
    text = said.strip()
    if text.startswith(_UNKNOWN) or text.endswith(_NO_SERVER):
        return None
    if not text.isascii() or not text.isalpha() or len(text) > _STATUS:
        raise ValueError(text)
    return text.upper()


def _priority(said: str) -> int | None:
    """Read the default priority of clients; None where the driver knows none (470). ValueError for anything else."""
    return None if said.startswith(_UNKNOWN) else _number(said.strip())


def _clients(said: str) -> tuple[int, ...] | None:
    if said.strip().endswith(_NO_SERVER):
        return None
    return tuple(_number(line) for line in said.split())


def _number(text: str) -> int:
    """Read a number as the daemon prints it. ValueError for what Python alone takes for one."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise ValueError(text)
    return int(text)


def _decimal(text: str) -> float:
    whole, _, fraction = text.partition(".")
    _number(whole + fraction)
    return float(text)


def _is_ready(said: str) -> bool | None:
    """Read `ps`: a server that is still starting is `not found` there, though it is listed (535, 550)."""
    if not said.strip() or said.startswith(_UNKNOWN):
        return None
    return _NO_SERVER not in said


def memory_mib(said: str) -> int | None:
    """Read a memory limit as MiB: "" is none (0), a driver without limits (470) is None. ValueError for anything else.

    From 1G on the daemon prints whole G, cut down; below that it prints M.
    """
    text = said.strip()
    if not text:
        return 0
    if text.startswith("Unknown command"):
        return None
    return _number(text[:-1]) * _MIB[text[-1]] if text[-1] in _MIB else _number(text)


def as_user(host: Host, directories: tuple[str, ...], drop: Callable[[], None]) -> bytes:
    """In a forked child: walk to each pipe directory as an ordinary user and connect, as a CUDA program would.

    Returns a line b"step|errno name" for each; the errno is empty where the user reached the daemon. It sends no
    command: `start_server` for one's own uid would be accepted and block the next user.
    """
    drop()
    return "\n".join(_reach(host.path(each)) for each in directories).encode()


def _reach(path: str) -> str:
    step = path
    try:
        walked = ""
        for part in path.split("/")[1:]:
            walked += "/" + part
            step = walked
            os.stat(f"{walked}/.")
        step = f"{path}/control"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(0)
            connection.connect(step)
        step = f"{path}/log"
        os.close(os.open(step, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EAGAIN:  # the queue is full: reached, and busy
            return f"{step}|"
        return f"{step}|{errno.errorcode.get(error.errno or 0, '?')}"
    return f"{step}|"


def user_views(raw: bytes) -> tuple[UserView, ...]:
    """Read what `as_user` returned."""
    lines = raw.decode("utf-8", "replace").split("\n")
    return tuple(UserView(not error, step, error) for step, _, error in (line.partition("|") for line in lines))
