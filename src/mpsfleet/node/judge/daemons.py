"""Judge the control daemon: there, answering, reachable by root and by users, and only one.

A pid is evidence and no part of a sentence: equal sentences of many nodes are one line for a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.model import Answers, Finding, Peer, Silence, Unreadable, finding
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Daemon, Facts

_SUBJECT = "daemon node"
_PACKAGE = (
    "install it (Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-VERSION; RHEL and SLES: nvidia-driver-cuda), "
    "then deploy again"
)


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the control daemon of the node."""
    if isinstance(facts.said, Silence) and facts.said.outcome == "no-binary":
        message = f"NVIDIA's control program {desired.control_binary} is not installed; {_PACKAGE}"
        return (finding("mps-package-missing", _SUBJECT, message, remedy=f"Package missing: {_PACKAGE}."),)
    if isinstance(facts.daemons, Unreadable):
        return (finding("probe-failed", _SUBJECT, f"the processes of the node are not known: {facts.daemons.reason}"),)
    hijacked = _hijacked(facts)
    return (*hijacked, *_serving(facts, desired, hijacked=bool(hijacked)), *_duplicates(facts, desired))


def _hijacked(facts: Facts) -> tuple[Finding, ...]:
    """Find the sockets whose listener is not the daemon that holds this directory's control_lock."""
    serving = facts.serving()
    found = []
    for name, peer in (("control", facts.control), ("control_privileged", facts.privileged)):
        entry = facts.pipe.name(name)
        if peer.outcome == "listening" and (serving is None or peer.pid != serving.process.pid):
            if _is_ours_elsewhere(facts, peer):
                continue  # a daemon of root's whose lock was deleted or replaced: told as unreachable or duplicate
            found.append(_stranger(facts, name, peer))
        elif entry is not None and entry.kind != "socket":
            message = f"{facts.pipe.path}/{name} is a {entry.kind} of user {entry.uid}, not the control daemon's socket"
            found.append(finding("socket-hijacked", f"{facts.pipe.path}/{name}", message, uid=entry.uid))
    return tuple(found)


def _is_ours_elsewhere(facts: Facts, peer: Peer) -> bool:
    daemons = () if isinstance(facts.daemons, Unreadable) else facts.daemons
    return any(each.process.pid == peer.pid and each.directory == facts.pipe.path for each in daemons)


def _stranger(facts: Facts, name: str, peer: Peer) -> Finding:
    if peer.pid == 0:
        message = f"{facts.pipe.path}/{name} is served from another process namespace, so its owner cannot be told"
        return finding("probe-failed", f"{facts.pipe.path}/{name}", message)
    program = f" ({show(peer.comm, 20)})" if peer.comm else ""
    message = (
        f"{facts.pipe.path}/{name} is served by a process of user {peer.uid}{program}, "
        "not by the control daemon of that directory, so jobs connect to a stranger"
    )
    return finding("socket-hijacked", f"{facts.pipe.path}/{name}", message, pid=peer.pid, uid=peer.uid, comm=peer.comm)


def _serving(facts: Facts, desired: Desired, *, hijacked: bool) -> tuple[Finding, ...]:
    serving = facts.serving()
    if serving is None:
        return _not_serving(facts, desired, hijacked=hijacked)
    if isinstance(facts.said, Silence):
        return (_silent(facts, serving, facts.said),)
    if hijacked:
        return ()
    return _as_user(facts, serving)


def _not_serving(facts: Facts, desired: Desired, *, hijacked: bool) -> tuple[Finding, ...]:
    """Nobody holds the control_lock that lies in the directory now."""
    lost = [each for each in _daemons(facts) if each.directory == desired.pipe_directory]
    if lost:
        pids = ", ".join(str(each.process.pid) for each in lost)
        message = (
            f"the control daemon is alive, but its files in {desired.pipe_directory} were deleted, "
            "so no job can connect to it"
        )
        return (finding("daemon-unreachable", _SUBJECT, message, pid=pids),)
    if hijacked:
        message = f"no control daemon of root's serves {desired.pipe_directory}"
        return (finding("daemon-absent", _SUBJECT, message),)
    stale = facts.pipe.name("control") is not None
    left = "; its files are still there, but a socket file is no sign of life" if stale else ""
    return (finding("daemon-absent", _SUBJECT, f"no control daemon runs for {desired.pipe_directory}{left}"),)


def _daemons(facts: Facts) -> tuple[Daemon, ...]:
    return () if isinstance(facts.daemons, Unreadable) else facts.daemons


def _silent(facts: Facts, serving: Daemon, said: Silence) -> Finding:
    pid = serving.process.pid
    who = f"the control daemon of {facts.pipe.path}"
    if said.outcome == "busy":
        message = f"{who} could not be asked: {said.reason}"
        return finding("daemon-busy", _SUBJECT, message, pid=pid)
    if said.outcome == "timeout":
        return _wedged(who, pid, said)
    if said.outcome == "garbled":
        return finding("probe-failed", _SUBJECT, f"{who} gave an answer that is not understood: {said.reason}", pid=pid)
    entry = facts.pipe.name("control_privileged")
    if entry is None or facts.privileged.outcome == "refused":
        message = f"{who} is alive, but its socket control_privileged was deleted or replaced, so it cannot be asked"
        return finding("daemon-unreachable", _SUBJECT, message, pid=pid)
    return finding("probe-failed", _SUBJECT, f"{who} could not be asked: {said.reason}", pid=pid)


def _wedged(who: str, pid: int, said: Silence) -> Finding:
    """Tell a silent daemon's cause: stopped and uninterruptible are the node's; the rest a user can bring about."""
    within = f"did not answer within {said.seconds:g} s"
    if said.daemon_state in ("T", "t"):
        message = f"{who} is stopped (SIGSTOP) and {within}"
        return finding("daemon-wedged", _SUBJECT, message, origin="node", pid=pid, state=said.daemon_state)
    if said.daemon_state == "D":
        message = f"{who} is in uninterruptible sleep and {within}; only a reboot ends that"
        return finding("daemon-wedged", _SUBJECT, message, origin="node", pid=pid, state="D")
    if said.held:
        message = f"{who} {within}: it waits for a program that holds a connection to it open"
        return finding("daemon-wedged", _SUBJECT, message, origin="user", pid=pid, state=said.daemon_state)
    message = f"{who} accepts connections and {within}"
    return finding("daemon-wedged", _SUBJECT, message, pid=pid, state=said.daemon_state)


def _as_user(facts: Facts, serving: Daemon) -> tuple[Finding, ...]:
    view = facts.user
    if isinstance(view, Unreadable):
        message = f"whether users reach the control daemon is not known: {view.reason}"
        return (finding("probe-failed", _SUBJECT, message),)
    if view.reached:
        return ()
    message = (
        "the control daemon answers root, but an ordinary user is stopped "
        f"at {view.step} ({view.error}), so jobs cannot connect"
    )
    return (finding("daemon-unreachable-by-users", _SUBJECT, message, pid=serving.process.pid, error=view.error),)


def _duplicates(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Every other control daemon of root's: on this directory without serving it, or on another one."""
    serving = facts.serving()
    if serving is None:
        others = tuple(each for each in _daemons(facts) if each.directory != desired.pipe_directory)
    else:
        others = tuple(each for each in _daemons(facts) if each.process.pid != serving.process.pid)
    return tuple(_duplicate(each, desired) for each in others)


def _duplicate(other: Daemon, desired: Desired) -> Finding:
    pid = other.process.pid
    if other.directory == desired.pipe_directory:
        message = f"a second control daemon was started for {desired.pipe_directory} and is unreachable there"
    else:
        message = (
            f"another control daemon of root's serves {show(other.directory)} beside the configured "
            f"{desired.pipe_directory}, on the same GPUs"
        )
        remedy = "Stop what starts it, or end it with `mpsfleet node reset --others` on the drained node."
        return finding("daemon-duplicate", f"daemon {pid}", message, remedy=remedy, pid=pid, directory=other.directory)
    return finding("daemon-duplicate", f"daemon {pid}", message, pid=pid, directory=other.directory)


def answered(facts: Facts) -> Answers | None:
    """Return the serving daemon's answers, if it gave any."""
    return facts.said if isinstance(facts.said, Answers) and facts.serving() is not None else None
