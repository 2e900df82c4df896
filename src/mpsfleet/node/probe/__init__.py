"""Probe: read everything of one node, daemon and GPUs side by side, under one deadline. Writes nothing.

Whoever else uses the daemon may make it busy for a moment; the query is repeated until its limit.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node import instances, topology
from mpsfleet.node.desired import DEFAULT_DIRECTORY
from mpsfleet.node.files import QUIESCED, UNIT_PATHS
from mpsfleet.node.host import children, files, processes
from mpsfleet.node.model import (
    Answers,
    Daemon,
    Directory,
    Facts,
    Observed,
    Peer,
    Silence,
    Unreadable,
    UserView,
    serving,
)
from mpsfleet.node.probe import directories, gpu, mps, procfs

if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command
    from mpsfleet.node.instances import Instance

PROBE_USER = "mpsfleet"
_FALLBACK = "nobody"
_USER_LIMIT_S = 1.0
_DRIVER = "/proc/driver/nvidia"
_PCI = "/sys/bus/pci/devices"
_NVIDIA = b"0x10de"
_SOCKETS = ("control", "control_privileged")
_PASSWD_GID = 3  # field of passwd(5)


def short_name(host: Host) -> str:
    """Return the node's short host name, Slurm's default NodeName.

    Under a root it is the one of its /etc/hostname (hostname(5)); this machine's where that is absent or no name.
    """
    written = _hostname(host) if host.root else ""
    return (written or os.uname().nodename).partition(".")[0]


def _hostname(host: Host) -> str:
    """Return what the node's /etc/hostname holds, "" where it cannot be read or is not one name."""
    from mpsfleet.slurm.names import is_literal  # it needs `re`, which an audit of a real node does without

    try:
        text = files.read(host.path("/etc/hostname"), 1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return text if is_literal(text) else ""


def probe(host: Host, desired: Desired, known: tuple[Card, ...] | None = None) -> Facts:
    """Read the node and return its facts. What cannot be read is a value that says so.

    `known` are the GPUs to go by; by default those that the last deploy recorded.
    """
    cards = topology.recorded(host) if known is None else known
    wanted = instances.of(desired, None if isinstance(cards, Unreadable) else cards)
    looks = tuple(_Look(each, *_directories(host, each)) for each in wanted)
    try:
        return _probe(host, desired, cards, looks)
    finally:
        for each in looks:
            if each.fd >= 0:
                os.close(each.fd)


class _Look(NamedTuple):
    """An instance's directories as they were found; `fd` pins the pipe directory, -1 where there is none."""

    instance: Instance
    pipe: Directory
    log: Directory
    fd: int


def _directories(host: Host, instance: Instance) -> tuple[Directory, Directory, int]:
    log, log_fd = directories.look(host, instance.log_directory)
    if log_fd >= 0:
        os.close(log_fd)
    pipe, fd = directories.look(host, instance.pipe_directory)
    return pipe, log, fd


def _probe(
    host: Host, desired: Desired, cards: tuple[Card, ...] | Unreadable | None, looks: tuple[_Look, ...]
) -> Facts:
    found = procfs.named_mps(host)
    daemons = found if isinstance(found, Unreadable) else procfs.daemons(host, found)
    binary = os.access(host.path(desired.control_binary), os.X_OK)
    sockets = tuple(
        tuple(mps.peer(host, each.fd, name) if each.fd >= 0 else Peer("absent") for name in _SOCKETS) for each in looks
    )
    # root speaks only to each directory's own daemon: the socket's listener must be the holder of its control_lock
    asked = tuple(
        each
        for each, (_, privileged) in zip(looks, sockets)
        if binary and _is_own(privileged, serving(each.pipe, daemons))
    )
    user = _look_as_user(host, tuple(each.instance.pipe_directory for each in looks if each.fd >= 0))
    answers, gpu_answer = _ask(host, desired, asked)
    views = _what_user_saw(user, looks)
    observed = tuple(
        Observed(
            each.instance,
            each.pipe,
            each.log,
            control,
            privileged,
            _said(desired, each, answers.get(each.instance.name), privileged, binary=binary),
            None,
            view,
        )
        for each, (control, privileged), view in zip(looks, sockets, views)
    )
    facts = Facts(
        desired.node_name or short_name(host),
        daemons,
        observed,
        gpu.understand(gpu_answer, desired.nvidia_smi_timeout_s),
        cards,
        _default(host, tuple(each.instance.pipe_directory for each in looks)),
        any(os.path.exists(host.path(each)) for each in UNIT_PATHS),
        os.path.exists(host.path(QUIESCED)),
        os.path.exists(host.path(_DRIVER)) or _has_nvidia_device(host),
        host.owner_uid,
    )
    return _look_closer(host, facts)


def _default(host: Host, ours: tuple[str, ...]) -> Directory | None:
    """Look at the directory that every CUDA program tries that is told no other."""
    if DEFAULT_DIRECTORY in ours:
        return None
    found, fd = directories.look(host, DEFAULT_DIRECTORY)
    if fd >= 0:
        os.close(fd)
    return found


def _has_nvidia_device(host: Host) -> bool:
    """Look for a display or 3D controller of NVIDIA's on the PCI bus (sysfs-bus-pci; class 0x03, vendor 0x10de)."""
    folder = host.path(_PCI)
    for name in files.names(folder):
        try:
            if files.read(f"{folder}/{name}/vendor", 64).strip() != _NVIDIA:
                continue
            if files.read(f"{folder}/{name}/class", 64).startswith(b"0x03"):
                return True
        except OSError:
            continue
    return False


def _is_own(listener: Peer, owner: Daemon | None) -> bool:
    return owner is not None and listener.outcome == "listening" and listener.pid == owner.process.pid


def _said(desired: Desired, look: _Look, answer: Answer | None, privileged: Peer, *, binary: bool) -> Answers | Silence:
    if answer is not None:
        return mps.understand(answer, desired.query_timeout_s, len(look.instance.memory_limits_mib))
    if not binary:
        return Silence("no-binary", f"{desired.control_binary} is not installed")
    return Silence("busy" if privileged.outcome == "busy" else "not-asked", privileged.reason or "nobody listens")


def _ask(host: Host, desired: Desired, asked: tuple[_Look, ...]) -> tuple[dict[str, Answer], Answer]:
    """Ask GPUs and daemons side by side; a busy daemon again until its limit."""
    binary = host.path(desired.control_binary)
    limit_s = desired.query_timeout_s

    def question(look: _Look, left_s: float, delay_s: float = 0.0) -> Command:
        return mps.question(binary, look.fd, left_s, len(look.instance.memory_limits_mib), delay_s)

    commands = (gpu.question(host, desired.nvidia_smi_timeout_s), *(question(each, limit_s) for each in asked))
    end = time.monotonic() + limit_s

    def again(index: int, answer: Answer) -> Command | None:
        left_s = end - time.monotonic() - mps.BUSY_PAUSE_S
        if index > 0 and mps.is_unheard(answer) and left_s > 0:
            return question(asked[index - 1], left_s, mps.BUSY_PAUSE_S)
        return None

    first, *rest = children.run(commands, again)
    return {each.instance.name: answer for each, answer in zip(asked, rest)}, first


def _look_as_user(host: Host, paths: tuple[str, ...]) -> children.Apart | Unreadable:
    """Look with the eyes of an ordinary user: the program's own system user, else nobody. One child for all."""
    if host.root and os.geteuid() != 0:  # a simulated node of somebody without root: nobody else to be
        return children.Apart(lambda: mps.as_user(host, paths, lambda: None), _USER_LIMIT_S)
    user = probe_user(host)
    if user is None:
        return Unreadable(f"/etc/passwd has neither {PROBE_USER} nor {_FALLBACK}")
    uid, gid, _name = user
    return children.Apart(lambda: mps.as_user(host, paths, lambda: processes.drop_to(uid, gid)), _USER_LIMIT_S)


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


def _what_user_saw(look: children.Apart | Unreadable, looks: tuple[_Look, ...]) -> tuple[UserView | Unreadable, ...]:
    """Return what the user met at each instance; a pipe directory that is not there stops everybody."""
    seen: tuple[UserView, ...] | Unreadable
    if isinstance(look, children.Apart):
        raw = look.result()
        seen = (
            Unreadable(f"the look as a user did not end within {_USER_LIMIT_S:g} s")
            if raw is None
            else mps.user_views(raw)
        )
    else:
        seen = look
    views = iter(() if isinstance(seen, Unreadable) else seen)
    found: list[UserView | Unreadable] = []
    for each in looks:
        if each.fd < 0:
            found.append(UserView(reached=False, step=each.pipe.reason or each.pipe.path, error="ENOENT"))
        elif isinstance(seen, Unreadable):
            found.append(seen)
        else:
            found.append(next(views, Unreadable("the look as a user ended early")))
    return tuple(found)


def _look_closer(host: Host, facts: Facts) -> Facts:
    """Read what only matters when something is wrong, and which GPUs each daemon of some GPUs was started with."""
    if not isinstance(facts.daemons, Unreadable) and any(each.deleted for each in facts.daemons):
        facts = facts._replace(daemons=tuple(_named(host, each) for each in facts.daemons))
    return facts._replace(instances=tuple(_closer(host, each, facts.serving(each)) for each in facts.instances))


def _closer(host: Host, at: Observed, daemon: Daemon | None) -> Observed:
    if daemon is None:
        return at
    if at.instance.gpus:
        at = at._replace(gpus=_gpus_of(host, daemon))
    if isinstance(at.said, Silence) and at.said.outcome == "timeout":
        state = children.state_of(daemon.process.pid, host.proc)
        held = procfs.waits_for_bytes(host, daemon.process.pid)
        return at._replace(said=at.said._replace(daemon_state=state, held=held))
    if isinstance(at.said, Answers) and at.said.percentage != at.instance.active_thread_percentage:
        return at._replace(started_with=_started_with(host, daemon))
    return at


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


def _gpus_of(host: Host, daemon: Daemon) -> tuple[str, ...] | Unreadable:
    value = _environment(host, daemon, "CUDA_VISIBLE_DEVICES")
    if value is None:
        return Unreadable("the daemon's environment could not be read")
    return tuple(each for each in value.split(",") if each)


def _started_with(host: Host, daemon: Daemon) -> float | Unreadable | None:
    value = _environment(host, daemon, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    if value is None:
        return Unreadable("the daemon's environment could not be read")
    try:
        return float(value) if value else None
    except ValueError:
        return Unreadable(f"the daemon was started with the percentage {value!r}")
