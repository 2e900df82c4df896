"""Judge the default thread percentage against the configured one; a change on the running daemon is named as such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.judge.daemons import answered
from mpsfleet.node.model import Finding, Unreadable, finding

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts

_SUBJECT = "daemon node"
_TOLERANCE = 0.05  # the daemon prints one decimal


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the finding about the thread percentage, if the daemon answered and it is not the configured one."""
    said = answered(facts)
    if said is None or said.percentage is None or is_as_wanted(said.percentage, desired):
        return ()
    wanted = desired.active_thread_percentage
    started = facts.started_with
    if isinstance(started, float) and abs(started - wanted) <= _TOLERANCE:
        message = (
            f"the default thread percentage is {said.percentage:g}, not the configured {wanted:g}: "
            "it was changed on the running daemon, which drivers up to 535 allow any user"
        )
        return (finding("percentage-tampered", _SUBJECT, message, now=said.percentage, configured=wanted),)
    since = "" if started is None or isinstance(started, Unreadable) else f"; the daemon was started with {started:g}"
    message = f"the default thread percentage is {said.percentage:g}, not the configured {wanted:g}{since}"
    return (finding("percentage-differs", _SUBJECT, message, now=said.percentage, configured=wanted),)


def is_as_wanted(percentage: float, desired: Desired) -> bool:
    """Return whether the daemon's percentage is the configured one, as exactly as the daemon prints it."""
    return abs(percentage - desired.active_thread_percentage) <= _TOLERANCE
