"""Judge a silent daemon: stopped, uninterruptible, blocked at its own log, held by somebody's connection, or wedged.

A user can bring about all but the first two, so those are never the node's.
"""

from __future__ import annotations

from mpsfleet.node.model import Finding, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host_facts import Cause, Holder
    from mpsfleet.node.model import Daemon, Observed, Silence

FULL = 60_000  # of the 65536 bytes of a fifo (pipe(7)): the daemon's next lines do not fit
_STOPPED = ("T", "t")
_GOES_ON = "End that program, or have its user end it: the daemon then goes on by itself. Reset it only if it does not."


def judge(at: Observed, serving: Daemon, said: Silence) -> Finding:
    """Return the one finding about a daemon that gave no answer in time, or was not asked since its log is stopped."""
    who, pid, subject = f"the control daemon of {at.pipe.path}", serving.process.pid, at.instance.subject
    within = f"did not answer within {said.seconds:g} s"
    state = said.daemon_state
    if state in _STOPPED:
        late = f" and {within}" if said.seconds else ""
        message = f"{who} is stopped (SIGSTOP){late}"
        return finding("daemon-wedged", subject, message, origin="node", pid=pid, state=state)
    if state == "D":
        message = f"{who} is in uninterruptible sleep and {within}; only a reboot ends that"
        return finding("daemon-wedged", subject, message, origin="node", pid=pid, state="D")
    cause = at.state.cause if at.state is not None else None
    if cause is not None and (said.outcome == "mute" or _is_stuck(cause)):
        return _at_its_log(subject, who, pid, cause)
    if said.held:
        return _held(subject, f"{who} {within}", pid, cause.holder if cause is not None else None)
    if said.outcome == "mute":
        message = f"{who} was not asked: its log thread has ended"
        return finding("daemon-log-stopped", subject, message, pid=pid)
    message = f"{who} accepts connections and {within}"
    return finding("daemon-wedged", subject, message, pid=pid, state=state)


def _is_stuck(cause: Cause) -> bool:
    return cause.waiting >= FULL and not cause.is_draining


def _at_its_log(subject: str, who: str, pid: int, cause: Cause) -> Finding:
    """Its own lines go through its log fifo: when nobody empties that, it stops at the next line that does not fit."""
    ended = cause.threads == 1
    why = "its log thread has ended" if ended else "nobody empties its log fifo"
    if _is_stuck(cause):
        message = f"{who} is blocked: {why}, and its log fifo is full"
        return finding("daemon-wedged", subject, message, origin="user", pid=pid, unread=cause.waiting)
    message = f"{who} was not asked: {why}, and every question brings it nearer to a full log fifo, at which it stops"
    return finding("daemon-log-stopped", subject, message, pid=pid, unread=cause.waiting)


def _held(subject: str, who: str, pid: int, holder: Holder | None) -> Finding:
    what = "which holds a connection to it open"
    if holder is None or holder.pid == 0:
        reason = holder.reason if holder is not None else ""
        message = f"{who}: it waits for a program that holds a connection to it open"
        return finding("daemon-wedged", subject, message, origin="user", pid=pid, holder=reason)
    program = f" ({show(holder.comm, 20)})" if holder.comm else ""
    whose = "root" if holder.uid == 0 else f"user {holder.uid}"
    message = f"{who}: it waits for a program of {whose}{program}, {what}"
    origin = "either" if holder.uid == 0 else "user"
    return finding(
        "daemon-wedged", subject, message, origin=origin, remedy=_GOES_ON, pid=pid, holder=holder.pid, uid=holder.uid
    )
