"""/proc: which control daemons of root's run, and which directory each one holds.

The kernel's name of daemon and server is `nvidia-cuda-mps` (15 bytes) for both, and anybody can take it. So the name is
only a sieve; a control daemon is a process of root's that holds a file called `control_lock` open and is not one of its
servers, which inherit that descriptor. Its directory's daemon is the one whose descriptor is the inode that lies there.
"""

from __future__ import annotations

import os

from mpsfleet.node.model import Daemon, Process, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

DONE = ("Z", "X")  # states of a process that has ended
_COMM = "nvidia-cuda-mps"
_PROGRAM = "nvidia-cuda-mps-control"
_LOCK = "/control_lock"
_DELETED = " (deleted)"
_MOST_FDS = 4096
_OTHERS = 0o077


def process(host: Host, pid: int) -> Process | None:
    """Return the process `pid`; None when it has gone. One read of its stat, one of its status."""
    return _process(host, str(pid))


def lives(host: Host, pid: int) -> bool:
    """Return whether a process is there and not defunct."""
    found = process(host, pid)
    return found is not None and found.state not in DONE


def _process(host: Host, pid: str) -> Process | None:
    try:
        with open(f"{host.proc}/{pid}/stat", "rb", buffering=0) as stream:
            raw = stream.read(4096)
            head, _, tail = raw.rpartition(b")")
            comm = head[head.index(b"(") + 1 :]
            uid = _real_uid(f"{host.proc}/{pid}/status")
    except (OSError, ValueError):  # it ended while we looked
        return None
    if uid is None:
        return None
    words = tail.split()
    # proc(5): state is field 3, ppid 4, starttime 22
    return Process(int(pid), int(words[1]), uid, comm.decode("utf-8", "replace"), words[0].decode(), int(words[19]))


def _real_uid(path: str) -> int | None:
    with open(path, "rb", buffering=0) as stream:
        for line in stream.read(4096).split(b"\n"):
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return None


def named_mps(host: Host) -> tuple[Process, ...] | Unreadable:
    """Return every process with the kernel name of MPS, control daemons and servers, anybody's.

    Of each other process one small file is opened, `comm`: a node may have 20,000, and `stat` costs five times as much.
    """
    sieve = f"{_COMM}\n".encode()
    at = -1
    try:
        at = os.open(host.proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        pids = [each for each in os.listdir(at) if each.isdigit() and _comm(at, each) == sieve]
    except OSError as error:
        return Unreadable(f"{host.proc} cannot be listed: {error.strerror}")
    finally:
        if at >= 0:
            os.close(at)
    found = (_process(host, pid) for pid in pids)
    return tuple(each for each in found if each is not None and each.comm == _COMM)


def _comm(at: int, pid: str) -> bytes:
    """Return the kernel's name of a process and a newline (proc(5), comm), b"" when it has gone."""
    try:
        fd = os.open(f"{pid}/comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return b""
    try:
        return os.read(fd, 64)
    except OSError:
        return b""
    finally:
        os.close(fd)


def daemons(host: Host, processes: tuple[Process, ...]) -> tuple[Daemon, ...]:
    """Return the control daemons of the node's owner among `processes`. A zombie holds nothing and is none.

    Nor is the child that a daemon is about to turn into a server: for a moment it is the daemon's own image.
    """
    found = tuple(
        daemon for each in processes if each.uid == host.owner_uid and (daemon := _daemon(host, each)) is not None
    )
    locks = {each.process.pid: each.lock for each in found}
    return tuple(each for each in found if locks.get(each.process.ppid) != each.lock)


def _daemon(host: Host, owner: Process) -> Daemon | None:
    base = f"{host.proc}/{owner.pid}/fd"
    try:
        numbers = os.listdir(base)[:_MOST_FDS]
    except OSError:
        return None
    for number in numbers:
        try:
            target = os.readlink(f"{base}/{number}")
            bare = target.removesuffix(_DELETED)
            if not bare.endswith(_LOCK) or not is_control_program(host, owner.pid):
                continue
            now = os.stat(f"{base}/{number}")
        except OSError:  # the descriptor or the process has gone
            continue
        directory = bare[len(host.root) : -len(_LOCK)]
        return Daemon(owner, directory, (now.st_dev, now.st_ino), now.st_nlink == 0)
    return None


def is_control_program(host: Host, pid: int) -> bool:
    """Tell a daemon from its servers, which inherit its descriptors and may be root's: by the program's name.

    No proof of a daemon: anybody's process can have that name.
    """
    try:
        program = os.readlink(f"{host.proc}/{pid}/exe")
    except OSError:
        return False
    return os.path.basename(program.replace(_DELETED, "")) == _PROGRAM


def is_server(host: Host, process: Process) -> bool:
    """Return whether a process with MPS's name holds a control_lock of root's that nobody else can open.

    A server inherits that descriptor from its daemon (measured on 535); the name alone anybody can take.
    """
    folder = f"{host.proc}/{process.pid}/fd"
    try:
        for name in os.listdir(folder)[:_MOST_FDS]:
            path = f"{folder}/{name}"
            if os.path.basename(os.readlink(path)).split(" ")[0] == _LOCK[1:]:
                now = os.stat(path)
                if now.st_uid == host.owner_uid and not now.st_mode & _OTHERS:
                    return True
    except OSError:  # it ended while we looked
        return False
    return False


def ended_children(host: Host, pid: int) -> int:
    """Return the minor faults of the children that a process has waited for (proc(5), cminflt); 0 when it has gone.

    Each server that ends makes it grow, and nobody but the kernel writes it.
    """
    try:
        with open(f"{host.proc}/{pid}/stat", "rb", buffering=0) as stream:
            return int(stream.read(4096).rpartition(b")")[2].split()[8])
    except (OSError, ValueError, IndexError):
        return 0


def receives_from(host: Host, pid: int) -> int:
    """Return the descriptor from which the process waits in recvmsg(2) for the next bytes; -1 where it does not."""
    try:
        with open(f"{host.proc}/{pid}/syscall", "rb", buffering=0) as stream:
            number, first = stream.read(64).split()[:2]
        wanted = {"x86_64": b"47", "aarch64": b"212"}.get(os.uname().machine)
        return int(first, 16) if number == wanted else -1
    except (OSError, ValueError):
        return -1


def threads(host: Host, pid: int) -> int:
    """Return how many threads the process has; 0 where it cannot be told."""
    try:
        with open(f"{host.proc}/{pid}/status", "rb", buffering=0) as stream:
            for line in stream.read(4096).split(b"\n"):
                if line.startswith(b"Threads:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return 0


def environment(host: Host, pid: int, names: tuple[str, ...]) -> dict[str, str]:
    """Return the variables called so that a process was started with. May block or be large: call it apart."""
    with open(f"{host.proc}/{pid}/environ", "rb", buffering=0) as stream:
        pairs = (each.partition(b"=") for each in stream.read(262_144).split(b"\0"))
        found = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
    return {name: found[name] for name in names if name in found}
