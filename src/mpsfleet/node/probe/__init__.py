"""Probe: read everything of one node, daemon and GPUs side by side, under one deadline. Changes nothing.

Whoever else uses the daemon may make it busy for a moment; the query is repeated until its limit.
"""

from __future__ import annotations

import os
import time

from mpsfleet.node import instances, topology
from mpsfleet.node.desired import DEFAULT_DIRECTORY
from mpsfleet.node.files import QUIESCED
from mpsfleet.node.host import children, files, processes
from mpsfleet.node.host_facts import HostState
from mpsfleet.node.model import (
    Answers,
    Daemon,
    Directory,
    Facts,
    Observed,
    Peer,
    Silence,
    Unreadable,
    serving,
)
from mpsfleet.node.probe import (
    closer,
    directories,
    gpu,
    host_state,
    kernel_log,
    mps,
    owned_files,
    procfs,
    servers,
    units,
    user_views,
)
from mpsfleet.node.probe.asking import Others, Question, ask
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host_facts import Volume
    from mpsfleet.node.instances import Instance

PROBE_USER = "mpsfleet"
_FALLBACK = "nobody"
_USER_LIMIT_S = 1.0
_DRIVER = "/proc/driver/nvidia"
_PCI = "/sys/bus/pci/devices"
_NVIDIA = b"0x10de"
_SOCKETS = ("control", "control_privileged")
_SETTLE_S = 2.0  # for a daemon that is on its way up
_SETTLE_PAUSE_S = 0.1
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
    facts = _look_at(host, desired, cards, wanted, None)
    end = time.monotonic() + _SETTLE_S
    while closer.is_settling(facts) and time.monotonic() < end:
        processes.sleep(_SETTLE_PAUSE_S)
        facts = _look_at(host, desired, cards, wanted, facts)
    return facts


def _look_at(
    host: Host,
    desired: Desired,
    cards: tuple[Card, ...] | Unreadable | None,
    wanted: tuple[Instance, ...],
    before: Facts | None,
) -> Facts:
    """Read the node. With the facts of a moment `before`, only what a daemon's start changes is read again."""
    looks = tuple(_Look(each, *_directories(host, each)) for each in wanted)
    try:
        return _probe(host, desired, cards, looks, before)
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
    volumes: tuple[Volume | None, Volume | None]  # of pipe and log directory


def _directories(
    host: Host, instance: Instance
) -> tuple[Directory, Directory, int, tuple[Volume | None, Volume | None]]:
    log, log_fd = directories.look(host, instance.log_directory)
    of_log = host_state.volume(host, log_fd) if log_fd >= 0 else None
    if log_fd >= 0:
        os.close(log_fd)
    pipe, fd = directories.look(host, instance.pipe_directory)
    return pipe, log, fd, (host_state.volume(host, fd) if fd >= 0 else None, of_log)


def _probe(
    host: Host,
    desired: Desired,
    cards: tuple[Card, ...] | Unreadable | None,
    looks: tuple[_Look, ...],
    before: Facts | None,
) -> Facts:
    found = procfs.named_mps(host)
    daemons = found if isinstance(found, Unreadable) else procfs.daemons(host, found)
    binary = files.executable(host.path(desired.control_binary))
    begun = host_state.read_apart(daemons, host)
    mute = frozenset(
        each.instance.name
        for each in looks
        if (owner := serving(each.pipe, daemons)) and host_state.lost_its_log_thread(host, owner.process)
    )
    sockets = tuple(_peers(host, each, is_mute=each.instance.name in mute) for each in looks)
    # root speaks only to each directory's own daemon: the socket's listener must be the holder of its control_lock
    asked = tuple(
        each
        for each, (_, privileged) in zip(looks, sockets)
        if binary and _is_own(privileged, serving(each.pipe, daemons))
    )
    spoken_to = tuple(each for each in looks if each.fd >= 0 and each.instance.name not in mute)
    user = _look_as_user(host, tuple(each.instance.pipe_directory for each in spoken_to))
    is_deployed = owned_files.are_deployed(host)
    names = units.names(desired, tuple(each.instance for each in looks))
    is_managed = before is None and is_deployed and bool(names) and files.exists(host.path(units.RUNNING))
    there = servers.find(host, found, daemons)
    questions = tuple(_question(each, there.children_of(serving(each.pipe, daemons))) for each in asked)
    smi, kernel = gpu.Query(host, desired.nvidia_smi_timeout_s), kernel_log.Reading(host)
    of_units = (units.question(host, names),) if is_managed else ()
    others = Others((smi.command(), *of_units, *servers.commands(host, desired, there)), smi.again, kernel.read)
    answers, beside = ask(questions, others if before is None else Others(), host, desired)
    ways = tuple(user_views.Way(each.pipe, each.fd >= 0, each.instance.name in mute) for each in looks)
    views = user_views.views(user, ways, _USER_LIMIT_S)
    around = before.host if before is not None else None
    if around is None:
        found_units = units.with_links(host, units.understand(beside[1], names, units.now_s())) if is_managed else None
        around = HostState(found_units, owned_files.drifts(host, desired) if is_deployed else None)
    observed = tuple(
        Observed(
            each.instance,
            each.pipe,
            each.log,
            control,
            privileged,
            answers.get(each.instance.name) or _unasked(desired, privileged, binary=binary),
            None,
            view,
        )
        for each, (control, privileged), view in zip(looks, sockets, views)
    )
    facts = Facts(
        desired.node_name or short_name(host),
        daemons,
        observed,
        before.gpus if before is not None else smi.understand(beside[0]),
        cards,
        _default(host, tuple(each.instance.pipe_directory for each in looks)),
        is_deployed,
        files.exists(host.path(QUIESCED)),
        files.exists(host.path(_DRIVER)) or _has_nvidia_device(host),
        host.owner_uid,
        kernel=before.kernel if before is not None else kernel.found,
    )

    def again() -> tuple[Answers, ...]:
        now, _ = ask(questions, Others(), host, desired)
        return tuple(each for each in now.values() if isinstance(each, Answers))

    known = () if isinstance(found, Unreadable) else found
    zombies = tuple(each for each in known if (each.uid, each.state) == (host.owner_uid, "Z"))
    owns = host_state.understand(begun)
    volumes = {each.instance.name: each.volumes for each in looks}
    facts = closer.look(facts, host, closer.Seen(owns, volumes, mute, around._replace(zombies=zombies)))
    if before is not None:
        return facts._replace(servers=before.servers)
    beside = beside[1 + len(of_units) :]
    return facts._replace(servers=servers.read(host, desired, there, facts, servers.Beside(beside, again)))


def _peers(host: Host, look: _Look, *, is_mute: bool) -> tuple[Peer, ...]:
    """Return who listens on the sockets; even that is not asked of a daemon whose log thread has ended."""
    if is_mute:
        return tuple(Peer("not-asked") for _ in _SOCKETS)
    return tuple(mps.peer(host, look.fd, name) if look.fd >= 0 else Peer("absent") for name in _SOCKETS)


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


def _unasked(desired: Desired, privileged: Peer, *, binary: bool) -> Silence:
    if not binary:
        return Silence("no-binary", f"{desired.control_binary} is not installed")
    if privileged.outcome == "not-asked":
        return Silence("mute", "its log thread has ended")
    return Silence("busy" if privileged.outcome == "busy" else "not-asked", privileged.reason or "nobody listens")


def _question(look: _Look, of_servers: tuple[int, ...]) -> Question:
    return Question(
        look.instance.name, look.fd, mps.About(len(look.instance.memory_limits_mib), of_servers, priority=True)
    )


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
