"""A second look at what the first one found: who each daemon is and what stands in its way.

Nothing is asked again. On a sound node it puts together what was read side by side; only where something is wrong is
more read: of a silent daemon, of one that its unit did not start, of a directory that others may not see.
"""

from __future__ import annotations

from mpsfleet.node.host import children, processes
from mpsfleet.node.host_facts import PRIVATE, HostState, InstanceState, Own, Unit, Volume
from mpsfleet.node.model import Answers, Daemon, Observed, Process, Silence, Unreadable, UserView
from mpsfleet.node.probe import host_state, procfs, units
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Facts, Peer

_ZOMBIE_S = 0.2  # for a parent to take the exit status
_ANSWERED = ("timeout", "mute", "no-binary")  # silences that a start does not explain


class Seen(NamedTuple):
    """What was read beside the daemons' answers."""

    owns: tuple[Own, ...] | Unreadable
    volumes: dict[str, tuple[Volume | None, Volume | None]]  # of pipe and log directory, by the instance's name
    mute: frozenset[str]  # names of the instances whose daemon was not spoken to
    host: HostState


def look(facts: Facts, host: Host, seen: Seen) -> Facts:
    """Return the facts with what was seen beside them, and with what only matters where something is wrong."""
    facts = facts._replace(host=seen.host._replace(zombies=_lasting(host, seen.host.zombies)))
    if not isinstance(facts.daemons, Unreadable):
        facts = facts._replace(daemons=tuple(_named(facts, host, each, seen.owns) for each in facts.daemons))
    return facts._replace(instances=tuple(_instance(facts, host, each, seen) for each in facts.instances))


def _instance(facts: Facts, host: Host, at: Observed, seen: Seen) -> Observed:
    name, daemon = at.instance.name, facts.serving(at)
    pipe, log = seen.volumes.get(name, (None, None))
    unit = _unit(seen.host.units, at.instance.unit)
    state = InstanceState(unit, None, pipe=pipe, log=log, is_mute=name in seen.mute)
    if daemon is None:
        at = at._replace(control=_program(host, at.control), privileged=_program(host, at.privileged))
        return at._replace(state=_unserved(facts, host, at, state))
    pid = daemon.process.pid
    own = host_state.of(seen.owns, pid)
    is_foreign = unit is not None and unit.main_pid != pid
    state = state._replace(
        own=own,
        group=host_state.control_group(host, pid) if is_foreign else "",
        hidden=_hidden(host, at, _unit(seen.host.units, units.SLURMD)),
    )
    return _served(host, at._replace(gpus=_gpus(at, own), state=state), daemon, own)


def _served(host: Host, at: Observed, daemon: Daemon, own: Own | Unreadable) -> Observed:
    pid = daemon.process.pid
    if isinstance(at.said, Silence) and at.said.outcome in ("timeout", "mute") and at.state is not None:
        from mpsfleet.node.probe import silence

        cause = silence.cause(host, pid)
        letter = children.state_of(pid, host.proc)
        said = at.said._replace(daemon_state=letter, held=cause.holder is not None)
        return at._replace(said=said, state=at.state._replace(cause=cause))
    if isinstance(at.said, Answers) and at.said.percentage != at.instance.active_thread_percentage:
        return at._replace(started_with=_percentage(own))
    return at


def _unserved(facts: Facts, host: Host, at: Observed, state: InstanceState) -> InstanceState:
    """Look for what a daemon's absence may come from: a directory of its own, or a lock that somebody else holds."""
    path = at.pipe.path
    daemons = () if isinstance(facts.daemons, Unreadable) else facts.daemons
    for each in daemons:
        if each.directory == path and not each.deleted and each.lock == _seen_by(host, each, f"{path}/control_lock"):
            return state._replace(hidden="daemon")
    lock = at.pipe.name("control_lock")
    return state if lock is None else state._replace(locked_by=host_state.lock_holder(host, lock.device, lock.inode))


def _seen_by(host: Host, daemon: Daemon, path: str) -> tuple[int, int] | None:
    try:
        return host_state.seen_by(host, daemon.process.pid, path)
    except OSError:
        return None


def _hidden(host: Host, at: Observed, slurmd: Unit | None) -> str:
    """Tell whose private /tmp hides the pipe directory: slurmd's, which its jobs inherit, or each job's own."""
    path = at.pipe.path
    if not f"{path}/".startswith(PRIVATE):
        return ""
    lock = at.pipe.name("control_lock")
    if slurmd is not None and slurmd.main_pid and lock is not None:
        try:
            seen = host_state.seen_by(host, slurmd.main_pid, f"{path}/control_lock")
        except OSError:
            seen = lock.device, lock.inode  # it could not be looked at, so nothing is said
        if seen != (lock.device, lock.inode):
            return "slurmd"
    return "jobs" if host_state.gives_jobs_their_own(host, path) else ""


def _program(host: Host, peer: Peer) -> Peer:
    """Add whether a stranger on a socket is a control daemon by its program: a hint, anybody's can be called so."""
    if peer.outcome != "listening" or peer.pid <= 0:
        return peer
    return peer._replace(is_control_program=procfs.is_control_program(host, peer.pid))


def _unit(found: tuple[Unit, ...] | Unreadable | None, name: str) -> Unit | None:
    if found is None or isinstance(found, Unreadable):
        return None
    return next((each for each in found if each.name == name), None)


def _named(facts: Facts, host: Host, daemon: Daemon, owns: tuple[Own, ...] | Unreadable) -> Daemon:
    """Name a daemon that serves nothing of ours by its environment: its descriptor may have lost its path.

    (A unit's sandbox mounts the directory; when it is deleted outside, that mount is detached and paths begin there.
    So they do in a /tmp of the daemon's own.)
    """
    own = host_state.of(owns, daemon.process.pid)
    if isinstance(own, Unreadable) or any(facts.serving(at) == daemon for at in facts.instances):
        return daemon
    named = own.variable(host_state.PIPE)[len(host.root) :]
    return daemon._replace(directory=named) if named and (daemon.deleted or named in facts.directories()) else daemon


def _gpus(at: Observed, own: Own | Unreadable) -> tuple[str, ...] | Unreadable | None:
    if isinstance(own, Unreadable):
        return own if at.instance.gpus else None
    return tuple(each for each in own.variable(host_state.DEVICES).split(",") if each)


def _percentage(own: Own | Unreadable) -> float | Unreadable | None:
    if isinstance(own, Unreadable):
        return own
    value = own.variable(host_state.PERCENTAGE)
    try:
        return float(value) if value else None
    except ValueError:
        return Unreadable(f"the daemon was started with the percentage {value!r}")


def _lasting(host: Host, zombies: tuple[Process, ...]) -> tuple[Process, ...]:
    """Return those whose parent has not taken their exit status after a moment either."""
    if zombies:
        processes.sleep(_ZOMBIE_S)
    return tuple(each for each in zombies if children.state_of(each.pid, host.proc) == "Z")


def is_settling(facts: Facts) -> bool:
    """Tell a node on which a daemon is on its way up, so that it is worth looking again in a moment."""
    return any(_is_settling(facts, at) for at in facts.instances)


def _is_settling(facts: Facts, at: Observed) -> bool:
    unit = at.state.unit if at.state is not None else None
    if unit is None or not (unit.is_starting or (unit.is_fresh and unit.active == "active")):
        return False
    if isinstance(at.said, Answers):
        return unit.is_starting and isinstance(at.user, UserView) and not at.user.reached
    if at.said.outcome in _ANSWERED or isinstance(facts.daemons, Unreadable):
        return False
    return unit.is_starting or all(each.directory != at.pipe.path for each in facts.daemons)
