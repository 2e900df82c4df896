"""The host around the control daemons: what each was started with, its threads, its file systems, who sees its files.

What a process can make slow or long is read in one child for all daemons, with caps; the rest is a system call or two.
"""

from __future__ import annotations

import json
import os
import time

from mpsfleet.node.host import children, files
from mpsfleet.node.host_facts import MULTI_USER, Holder, Own, Volume
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Daemon, Process

PIPE, LOG, DEVICES, PERCENTAGE, JOB = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "SLURM_JOB_ID",
)
_LIMIT_S = 1.0
_MOST = 64  # daemons looked at
_VALUE_CAP = 4096
_BORN_S = 2.0  # after which a daemon has all its threads
_CAP = 1 << 20  # of mountinfo and locks, which grow with the node
_LOCKS = {"POSIX", "OFDLCK"}  # the kinds that exclude the daemon's own (fcntl(2))
_SLURM_CONF = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_CONTAINERS = ("jobcontainertype", "namespacetype")  # job_container/tmpfs; namespace/tmpfs and /linux from 25.11


def read_apart(daemons: tuple[Daemon, ...] | Unreadable, host: Host) -> children.Apart | None:
    """Begin to read what the daemons were started with; the answer is for `understand`. None where there is none."""
    if isinstance(daemons, Unreadable) or not daemons:
        return None
    pids = tuple(each.process.pid for each in daemons)[:_MOST]
    return children.Apart(lambda: json.dumps([_read(host, each) for each in pids]).encode(), _LIMIT_S)


def _read(host: Host, pid: int) -> list[object]:
    try:
        program = os.readlink(f"{host.proc}/{pid}/exe")
        found = procfs.environment(host, pid, (PIPE, LOG, DEVICES, PERCENTAGE, JOB, MULTI_USER))
    except OSError as error:
        return [pid, "", {}, error.strerror or "gone"]
    return [pid, program, {name: value[:_VALUE_CAP] for name, value in found.items()}, ""]


def understand(begun: children.Apart | None) -> tuple[Own, ...] | Unreadable:
    """Return what the child read."""
    raw = b"[]" if begun is None else begun.result()
    if raw is None:
        return Unreadable(f"what it was started with could not be read within {_LIMIT_S:g} s")
    try:
        rows = json.loads(raw)
    except ValueError:
        return Unreadable("what it was started with is too long to be read")
    return tuple(Own(pid, program, tuple(found.items()), reason) for pid, program, found, reason in rows)


def of(owns: tuple[Own, ...] | Unreadable, pid: int) -> Own | Unreadable:
    """Return what was read of one daemon."""
    if isinstance(owns, Unreadable):
        return owns
    found = next((each for each in owns if each.pid == pid), None)
    if found is None or found.reason:
        return Unreadable("what it was started with could not be read" + (f": {found.reason}" if found else ""))
    return found


def lost_its_log_thread(host: Host, daemon: Process) -> bool:
    """Tell a daemon whose log thread has ended: whoever asks it now brings it nearer to a stop.

    Every question adds lines to its log fifo that nobody reads any more; when the fifo is full the daemon blocks. So
    does a mere connection. A daemon that was started a moment ago may not have all its threads yet.
    """
    if procfs.threads(host, daemon.pid) != 1:
        return False
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - daemon.start / os.sysconf("SC_CLK_TCK")
    return age_s > _BORN_S


def volume(host: Host, directory_fd: int) -> Volume:
    """Return the file system of an open directory; its type only where it may be a network's, or cannot be written."""
    now = os.fstatvfs(directory_fd)
    names = now.f_ffree if now.f_files else -1
    found = Volume(now.f_bfree * now.f_frsize, names)
    device = os.fstat(directory_fd).st_dev
    is_read_only = bool(now.f_flag & os.ST_RDONLY)
    if os.major(device) != 0 and not is_read_only:
        return found  # a disk
    if not is_read_only and device == os.stat(host.path("/run")).st_dev:
        return found  # systemd's own tmpfs
    kind, options = _mount(host, device)
    # the mount may be read-only in a sandbox of whoever runs this; the file system itself is what counts
    return found._replace(kind=kind, is_read_only=is_read_only and "ro" in options)


def _mount(host: Host, device: int) -> tuple[str, list[str]]:
    """Return type and options of the file system with that device number (/proc/PID/mountinfo in proc(5))."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(f"{host.proc}/self/mountinfo", "rb") as stream:
            lines = stream.read(_CAP).decode("utf-8", "replace").splitlines()
    except OSError:
        return "", []
    for line in lines:
        words, _, rest = line.partition(" - ")
        if words.split(" ", 3)[2:3] == [wanted] and len(rest.split(" ")) > 2:  # noqa: PLR2004  # type, source, options
            kind, _source, options = rest.split(" ", 2)
            return kind, options.split(",")
    return "", []


def control_group(host: Host, pid: int) -> str:
    """Return the control group of a process, by systemd's hierarchy; "" where it cannot be read."""
    try:
        with open(f"{host.proc}/{pid}/cgroup", "rb") as stream:
            lines = stream.read(_VALUE_CAP).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    groups = {name: group for _, name, group in (line.split(":", 2) for line in lines if line.count(":") > 1)}
    return groups.get("name=systemd") or groups.get("", "")


def seen_by(host: Host, pid: int, path: str) -> tuple[int, int] | None:
    """Return device and inode of a path as another process sees it; None where that process does not."""
    try:
        now = os.stat(f"{host.proc}/{pid}/root{host.path(path)}", follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return now.st_dev, now.st_ino


def gives_jobs_their_own(host: Host, path: str) -> bool:
    """Tell whether Slurm gives each job its own directory in the place of one above `path`, by its configuration.

    job_container.conf(5): `Dirs=`, by default /tmp and /dev/shm. What stands in included files is not looked at.
    """
    for each in _SLURM_CONF:
        settings = _settings(host, each)
        if settings is None:
            continue
        if not any("tmpfs" in settings.get(name, "") or "linux" in settings.get(name, "") for name in _CONTAINERS):
            return False
        own = _settings(host, f"{each.rpartition('/')[0]}/job_container.conf") or {}
        hidden = own.get("dirs", "/tmp,/dev/shm").split(",")  # noqa: S108  # Slurm's own default
        return any(f"{path}/".startswith(f"{one.strip().rstrip('/')}/") for one in hidden if one.strip())
    return False


def _settings(host: Host, path: str) -> dict[str, str] | None:
    """Return the settings of one of Slurm's files by their lower-case names; None where it is not there."""
    try:
        content = files.read(os.path.realpath(host.path(path)), _CAP).decode("utf-8", "replace")
    except OSError:
        return None
    found: dict[str, str] = {}
    for line in content.splitlines():
        for word in line.partition("#")[0].split():
            name, equals, value = word.partition("=")
            if equals:
                found[name.lower()] = value
    return found


def lock_holder(host: Host, device: int, inode: int) -> Holder | None:
    """Return who holds a lock on a file (/proc/locks), one that would keep a daemon from starting; None: nobody."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        with open(f"{host.proc}/locks", "rb") as stream:
            lines = stream.read(_CAP).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) < 6 or words[1] not in _LOCKS or words[5] != wanted:  # noqa: PLR2004  # number, kind, …, file
            continue
        pid = int(words[4]) if words[4].isdigit() else 0
        found = procfs.process(host, pid) if pid else None
        if found is None:
            return Holder(pid, reason="it cannot be told who")
        return Holder(pid, found.uid, found.comm)
    return None
