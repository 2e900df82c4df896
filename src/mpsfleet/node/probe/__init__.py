"""Probe: read everything of one node, daemon and GPUs side by side, under one deadline. Writes nothing.

Whoever else uses the daemon may make it busy for a moment; the query is repeated until its limit.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mpsfleet.node.files import UNIT_PATH
from mpsfleet.node.host import children, files, processes
from mpsfleet.node.model import Answers, Daemon, Directory, Facts, Peer, Silence, Unreadable, UserView, serving
from mpsfleet.node.probe import directories, gpu, mps, procfs

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command

PROBE_USER = "mpsfleet"
_FALLBACK = "nobody"
_USER_LIMIT_S = 1.0
_PASSWD_GID = 3  # field of passwd(5)


def short_name() -> str:
    """Return this machine's short host name, Slurm's default NodeName."""
    return os.uname().nodename.partition(".")[0]


def probe(host: Host, desired: Desired) -> Facts:
    """Read the node and return its facts. What cannot be read is a value that says so."""
    pipe, fd = directories.look(host, desired.pipe_directory)
    log, log_fd = directories.look(host, desired.log_directory)
    if log_fd >= 0:
        os.close(log_fd)
    try:
        return _probe(host, desired, pipe, fd, log)
    finally:
        if fd >= 0:
            os.close(fd)


def _probe(host: Host, desired: Desired, pipe: Directory, fd: int, log: Directory) -> Facts:
    found = procfs.named_mps(host)
    daemons = found if isinstance(found, Unreadable) else procfs.daemons(host, found)
    control = mps.peer(host, fd, "control") if fd >= 0 else Peer("absent")
    privileged = mps.peer(host, fd, "control_privileged") if fd >= 0 else Peer("absent")
    binary = os.access(host.path(desired.control_binary), os.X_OK)
    owner = serving(pipe, daemons)
    # root speaks only to this directory's daemon: the socket's listener must be the holder of its control_lock
    ask = binary and owner is not None and privileged.outcome == "listening" and privileged.pid == owner.process.pid
    look = (
        _look_as_user(host, desired)
        if fd >= 0
        else UserView(reached=False, step=pipe.reason or pipe.path, error="ENOENT")
    )
    answer, gpu_answer = _ask(host, desired, fd if ask else -1)
    if answer is not None:
        said = mps.understand(answer, desired.query_timeout_s)
    elif not binary:
        said = Silence("no-binary", f"{desired.control_binary} is not installed")
    else:
        said = Silence("busy" if privileged.outcome == "busy" else "not-asked", privileged.reason or "nobody listens")
    facts = Facts(
        desired.node_name or short_name(),
        pipe,
        log,
        daemons,
        control,
        privileged,
        said,
        None,
        _what_user_saw(look) if isinstance(look, children.Apart) else look,
        gpu.understand(gpu_answer, desired.nvidia_smi_timeout_s),
        os.path.exists(host.path(UNIT_PATH)),
        host.owner_uid,
    )
    return _look_closer(host, desired, facts)


def _ask(host: Host, desired: Desired, fd: int) -> tuple[Answer | None, Answer]:
    """Ask daemon (when `fd` is one) and GPUs side by side; a busy daemon again until its limit."""
    present = tuple(each for each in gpu.places() if os.path.exists(host.path(each)))
    binary = host.path(desired.control_binary)
    commands = [gpu.question(host, desired.nvidia_smi_timeout_s, present)]
    limit_s = desired.query_timeout_s
    if fd >= 0:
        commands.append(mps.question(binary, fd, limit_s))
    end = time.monotonic() + limit_s

    def again(index: int, answer: Answer) -> Command | None:
        left_s = end - time.monotonic() - mps.BUSY_PAUSE_S
        if index == 1 and mps.is_unheard(answer) and left_s > 0:
            return mps.question(binary, fd, left_s, mps.BUSY_PAUSE_S)
        return None

    answers = children.run(tuple(commands), again)
    return (answers[1] if fd >= 0 else None), answers[0]


def _look_as_user(host: Host, desired: Desired) -> children.Apart | Unreadable:
    """Look with the eyes of an ordinary user: the program's own system user, else nobody."""
    if host.root and os.geteuid() != 0:  # a simulated node of somebody without root: nobody else to be
        return children.Apart(lambda: mps.as_user(host, desired, lambda: None), _USER_LIMIT_S)
    user = probe_user(host)
    if user is None:
        return Unreadable(f"/etc/passwd has neither {PROBE_USER} nor {_FALLBACK}")
    uid, gid, _name = user
    return children.Apart(lambda: mps.as_user(host, desired, lambda: processes.drop_to(uid, gid)), _USER_LIMIT_S)


def probe_user(host: Host) -> tuple[int, int, str] | None:
    """Return uid, gid and name of the ordinary user to look as; None when there is none.

    Read from /etc/passwd itself: a lookup through the name service may wait for a directory server.
    """
    try:
        lines = files.read(host.path("/etc/passwd"), 1 << 22).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    known = {words[0]: words for line in lines if len(words := line.split(":")) > _PASSWD_GID}
    for name in (PROBE_USER, _FALLBACK):
        uid, gid = known.get(name, ["", "", "", ""])[2:4]
        if uid.isdigit() and gid.isdigit() and int(uid) != 0:
            return int(uid), int(gid), name
    return None


def _what_user_saw(look: children.Apart) -> UserView | Unreadable:
    raw = look.result()
    return (
        Unreadable(f"the look as a user did not end within {_USER_LIMIT_S:g} s") if raw is None else mps.user_view(raw)
    )


def _look_closer(host: Host, desired: Desired, facts: Facts) -> Facts:
    """Read what only matters when something is wrong: why a daemon is silent, what a daemon was started with."""
    if not isinstance(facts.daemons, Unreadable) and any(each.deleted for each in facts.daemons):
        facts = facts._replace(daemons=tuple(_named(host, each) for each in facts.daemons))
    daemon = facts.serving()
    said = facts.said
    if isinstance(said, Silence) and said.outcome == "timeout" and daemon is not None:
        state = children.state_of(daemon.process.pid, host.proc)
        held = procfs.waits_for_bytes(host, daemon.process.pid)
        return facts._replace(said=said._replace(daemon_state=state, held=held))
    if isinstance(said, Answers) and said.percentage != desired.active_thread_percentage and daemon is not None:
        return facts._replace(started_with=_started_with(host, daemon))
    return facts


def _named(host: Host, daemon: Daemon) -> Daemon:
    """Name the directory of a daemon whose files are gone by its environment: the descriptor may have lost its path.

    (A unit's sandbox mounts the directory; when it is deleted outside, that mount is detached and paths begin there.)
    """
    if not daemon.deleted:
        return daemon
    named = _environment(host, daemon, "CUDA_MPS_PIPE_DIRECTORY")
    return daemon if not named else daemon._replace(directory=named[len(host.root) :])


def _environment(host: Host, daemon: Daemon, name: str) -> str | None:
    """Return a variable the daemon was started with, "" where it has none, None where it cannot be read in time."""

    def read() -> bytes:
        return (procfs.environment_value(host, daemon.process.pid, name) or "").encode()

    raw = children.Apart(read, _USER_LIMIT_S).result()
    return None if raw is None else raw.decode("utf-8", "replace")


def _started_with(host: Host, daemon: Daemon) -> float | Unreadable | None:
    value = _environment(host, daemon, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    if value is None:
        return Unreadable("the daemon's environment could not be read")
    try:
        return float(value) if value else None
    except ValueError:
        return Unreadable(f"the daemon was started with the percentage {value!r}")
