"""Judge the control daemon: there, answering, reachable by root and by users, and only one.

A pid is evidence and no part of a sentence: equal sentences of many nodes are one line for a person.
"""

from __future__ import annotations

from mpsfleet.node.instances import needs_record
from mpsfleet.node.judge import host, silence
from mpsfleet.node.model import Answers, Finding, Observed, Peer, Silence, Unreadable, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Daemon, Facts

_PACKAGE = (
    "install it (Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-VERSION; RHEL and SLES: nvidia-driver-cuda), "
    "then deploy again"
)
_ALL = "all GPUs of the node"


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the control daemons of the node."""
    if any(isinstance(at.said, Silence) and at.said.outcome == "no-binary" for at in facts.instances):
        message = f"NVIDIA's control program {desired.control_binary} is not installed; {_PACKAGE}"
        return (finding("mps-package-missing", "node", message, remedy=f"Package missing: {_PACKAGE}."),)
    if isinstance(facts.daemons, Unreadable):
        return (finding("probe-failed", "daemons", f"the processes of the node are not known: {facts.daemons.reason}"),)
    each = tuple(found for at in facts.instances for found in _instance(facts, at))
    if needs_record(desired) and (facts.cards is None or isinstance(facts.cards, Unreadable)):
        return ()  # which daemons there should be is not known, and told so (gpus-unrecorded): none is one too many
    return (*each, *_duplicates(facts))


def _instance(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    on_its_way = host.starting(facts, at)
    if on_its_way is not None:
        return (on_its_way,)
    hijacked = _hijacked(facts, at)
    return (*hijacked, *_serving(facts, at, hijacked=bool(hijacked)))


def _hijacked(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    """Find the sockets whose listener is not the daemon that holds this directory's control_lock."""
    serving = facts.serving(at)
    if serving is None and _without_lock(facts, at):
        return ()  # told as that
    found = []
    for name, peer in (("control", at.control), ("control_privileged", at.privileged)):
        entry = at.pipe.name(name)
        path = f"{at.pipe.path}/{name}"
        if peer.outcome == "listening" and (serving is None or peer.pid != serving.process.pid):
            if _is_ours_elsewhere(facts, at, peer):
                continue  # a daemon of root's whose lock was deleted or replaced: told as unreachable or duplicate
            found.append(_stranger(path, peer))
        elif entry is not None and entry.kind != "socket":
            message = f"{path} is a {entry.kind} of user {entry.uid}, not the control daemon's socket"
            found.append(finding("socket-hijacked", path, message, uid=entry.uid))
    return tuple(found)


def _is_ours_elsewhere(facts: Facts, at: Observed, peer: Peer) -> bool:
    return any(each.process.pid == peer.pid and each.directory == at.pipe.path for each in _daemons(facts))


def _stranger(path: str, peer: Peer) -> Finding:
    if peer.pid == 0:
        message = f"{path} is served from another process namespace, so its owner cannot be told"
        return finding("probe-failed", path, message)
    program = f" ({show(peer.comm, 20)})" if peer.comm else ""
    message = (
        f"{path} is served by a process of user {peer.uid}{program}, "
        "not by the control daemon of that directory, so jobs connect to a stranger"
    )
    if peer.is_control_program and peer.uid > 0:
        message = (
            f"{path} is served by a control daemon of user {peer.uid}, not of root's, so other users' jobs fail there"
        )
        return finding("daemon-wrong-user", path, message, pid=peer.pid, uid=peer.uid)
    return finding("socket-hijacked", path, message, pid=peer.pid, uid=peer.uid, comm=peer.comm)


def _serving(facts: Facts, at: Observed, *, hijacked: bool) -> tuple[Finding, ...]:
    serving = facts.serving(at)
    if serving is None:
        return _not_serving(facts, at, hijacked=hijacked)
    if isinstance(at.said, Silence):
        return (_silent(at, serving, at.said),)
    if hijacked:
        return ()
    return (*_as_user(at, serving), *_devices(facts, at, serving))


def _devices(facts: Facts, at: Observed, serving: Daemon) -> tuple[Finding, ...]:
    """Compare the GPUs a daemon was started with: with others, its jobs land on GPUs that are not theirs."""
    if at.gpus is None or at.gpus == at.instance.gpus:
        return ()
    if isinstance(at.gpus, Unreadable):
        message = f"which GPUs the control daemon was started for is not known: {at.gpus.reason}"
        return (finding("probe-failed", at.instance.subject, message),)
    now, wanted = (", ".join(show(each, 50) for each in gpus) or _ALL for gpus in (at.gpus, at.instance.gpus))
    message = f"the control daemon of {at.pipe.path} was started for {now}, not for {wanted}"
    if _named(facts, at.gpus) == _named(facts, at.instance.gpus):  # an order of its own changes nothing for jobs
        message += ", which are the same"
        return (finding("daemon-environment", at.instance.subject, message, pid=serving.process.pid),)
    return (finding("daemon-wrong-gpus", at.instance.subject, message, pid=serving.process.pid),)


def _named(facts: Facts, uuids: tuple[str, ...]) -> set[str]:
    """Return the GPUs that a daemon's list stands for: an empty one for all that the deploy recorded."""
    recorded = () if facts.cards is None or isinstance(facts.cards, Unreadable) else facts.cards
    return set(uuids) or {each.uuid for each in recorded}


def _not_serving(facts: Facts, at: Observed, *, hijacked: bool) -> tuple[Finding, ...]:
    """Nobody holds the control_lock that lies in the directory now."""
    directory, subject = at.instance.pipe_directory, at.instance.subject
    lost = [each for each in _daemons(facts) if each.directory == directory]
    if lost and at.state is not None and at.state.hidden:
        return ()  # told by where its directory lies
    bare = _without_lock(facts, at)
    if bare:
        message = (
            f"control_lock in {directory} was deleted or replaced under the control daemon, which jobs still reach, "
            "so it cannot be told from another, was not asked, and a second one could be started"
        )
        return (finding("lock-replaced", subject, message, pid=bare),)
    if lost:
        pids = ", ".join(str(each.process.pid) for each in lost)
        message = f"the control daemon is alive, but its files in {directory} were deleted, so no job can connect to it"
        return (finding("daemon-unreachable", subject, message, pid=pids),)
    if hijacked:
        message = f"no control daemon of root's serves {directory}"
        return (finding("daemon-absent", subject, message),)
    stale = at.pipe.name("control") is not None
    left = "; its files are still there, but a socket file is no sign of life" if stale else ""
    return (finding("daemon-absent", subject, f"no control daemon runs for {directory}{left}"),)


def _without_lock(facts: Facts, at: Observed) -> int:
    """Return the pid of root's daemon that serves both sockets and no longer holds the lock beside them; 0 for none.

    Where its lock was renamed, nothing else tells whose it is. To listen as root takes root, so nobody poses as it.
    """
    one, other = at.control, at.privileged
    if (one.outcome, other.outcome) != ("listening", "listening") or one.pid != other.pid:
        return 0
    known = next((each for each in _daemons(facts) if each.process.pid == one.pid), None)
    if known is not None:
        return one.pid if known.directory == at.pipe.path else 0
    is_roots = one.uid == other.uid == facts.owner_uid and one.is_control_program
    return one.pid if is_roots and one.pid > 0 else 0


def _daemons(facts: Facts) -> tuple[Daemon, ...]:
    return () if isinstance(facts.daemons, Unreadable) else facts.daemons


def _silent(at: Observed, serving: Daemon, said: Silence) -> Finding:
    pid, subject = serving.process.pid, at.instance.subject
    who = f"the control daemon of {at.pipe.path}"
    if said.outcome == "busy":
        message = f"{who} could not be asked: {said.reason}"
        return finding("daemon-busy", subject, message, pid=pid)
    if said.outcome in ("timeout", "mute"):
        return silence.judge(at, serving, said)
    if said.outcome == "garbled":
        return finding("probe-failed", subject, f"{who} gave an answer that is not understood: {said.reason}", pid=pid)
    entry = at.pipe.name("control_privileged")
    if entry is None or at.privileged.outcome == "refused":
        message = f"{who} is alive, but its socket control_privileged was deleted or replaced, so it cannot be asked"
        return finding("daemon-unreachable", subject, message, pid=pid)
    return finding("probe-failed", subject, f"{who} could not be asked: {said.reason}", pid=pid)


def _as_user(at: Observed, serving: Daemon) -> tuple[Finding, ...]:
    view, subject = at.user, at.instance.subject
    if isinstance(view, Unreadable):
        message = f"whether users reach the control daemon is not known: {view.reason}"
        return (finding("probe-failed", subject, message),)
    if view.reached:
        return ()
    message = (
        "the control daemon answers root, but an ordinary user is stopped "
        f"at {view.step} ({view.error}), so jobs cannot connect"
    )
    return (finding("daemon-unreachable-by-users", subject, message, pid=serving.process.pid, error=view.error),)


def _duplicates(facts: Facts) -> tuple[Finding, ...]:
    """Every other control daemon of root's: on a directory of ours without serving it, or on another one."""
    ours = {at.pipe.path: facts.serving(at) for at in facts.instances}
    found = []
    for each in _daemons(facts):
        if each.directory not in ours:
            found.append(_elsewhere(each, facts))
            continue
        serving = ours[each.directory]
        if serving is not None and each.process.pid != serving.process.pid:  # else it is told as unreachable
            message = f"a second control daemon was started for {each.directory} and is unreachable there"
            found.append(_duplicate(each, message))
    return tuple(found)


def _elsewhere(other: Daemon, facts: Facts) -> Finding:
    configured = ", ".join(facts.directories())
    message = f"another control daemon of root's serves {show(other.directory)}"
    message += f" beside the configured {configured}, on the same GPUs" if configured else ", and none is configured"
    remedy = "Stop what starts it, or end it with `mpsfleet node reset --others` on the drained node."
    return _duplicate(other, message)._replace(remedy=remedy)


def _duplicate(other: Daemon, message: str) -> Finding:
    pid = other.process.pid
    return finding("daemon-duplicate", f"daemon {pid}", message, pid=pid, directory=other.directory)


def answered(facts: Facts, at: Observed) -> Answers | None:
    """Return the serving daemon's answers, if it gave any."""
    return at.said if isinstance(at.said, Answers) and facts.serving(at) is not None else None
