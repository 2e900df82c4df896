"""Judge the limits that daemons give new clients against the configured ones; tampering is named as such."""

from __future__ import annotations

from mpsfleet.node.judge.daemons import answered
from mpsfleet.node.model import Finding, Observed, Unreadable, finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Facts

_TOLERANCE = 0.05  # the daemon prints one decimal
_MIB_PER_GIB = 1024


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:  # noqa: ARG001  # one signature for all judges
    """Return the findings about the limits of every daemon that answered."""
    return tuple(
        each for at in facts.instances for each in (*_percentage(facts, at), *_memory(facts, at), *_priority(facts, at))
    )


def _percentage(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    said = answered(facts, at)
    if said is None or said.percentage is None or is_as_wanted(said.percentage, at.instance):
        return ()
    wanted = at.instance.active_thread_percentage
    started = at.started_with
    subject = at.instance.subject
    if isinstance(started, float) and abs(started - wanted) <= _TOLERANCE:
        message = (
            f"the default thread percentage is {said.percentage:g}, not the configured {wanted:g}: "
            "it was changed on the running daemon, which drivers up to 535 allow any user"
        )
        return (finding("percentage-tampered", subject, message, now=said.percentage, configured=wanted),)
    since = "" if started is None or isinstance(started, Unreadable) else f"; the daemon was started with {started:g}"
    message = f"the default thread percentage is {said.percentage:g}, not the configured {wanted:g}{since}"
    return (finding("percentage-differs", subject, message, now=said.percentage, configured=wanted),)


def _memory(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    said = answered(facts, at)
    if said is None:
        return ()
    found = []
    for device, (now, wanted) in enumerate(zip(said.memory_limits_mib, at.instance.memory_limits_mib)):
        if now is None:
            message = "a memory limit is configured, and this driver's MPS knows none (470 and older)"
            return (finding("memory-limit-unsupported", at.instance.subject, message),)
        if now != wanted:
            uuid = at.instance.gpus[device]
            message = (
                f"the default memory limit of device {device} is {size(now)}, not the configured {size(wanted)}: "
                "a client could take more memory than its share"
            )
            remedy = None if wanted else "Reset the daemon when it is free: only a restart takes a limit away."
            found.append(
                finding("memory-limit-differs", at.instance.subject, message, remedy=remedy, gpu=uuid, now=size(now))
            )
    return tuple(found)


def _priority(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    said = answered(facts, at)
    wanted = at.instance.client_priority
    if said is None or said.client_priority == wanted:
        return ()
    if said.client_priority is None:
        if not wanted:
            return ()
        message = f"a client priority of {wanted} is configured, and this driver's MPS knows none (470 and older)"
        remedy = "Take client_priority out of node.toml (mps_client_priority), or upgrade the driver."
        return (finding("priority-differs", at.instance.subject, message, remedy=remedy, configured=wanted),)
    message = f"the default priority of clients is {said.client_priority}, not the configured {wanted}"
    return (finding("priority-differs", at.instance.subject, message, now=said.client_priority, configured=wanted),)


def size(mib: int) -> str:
    """Return a memory limit as NVIDIA's program takes it, "none" for no limit."""
    if not mib:
        return "none"
    return f"{mib}M" if mib % _MIB_PER_GIB else f"{mib // _MIB_PER_GIB}G"


def is_as_wanted(percentage: float, instance: Instance) -> bool:
    """Return whether the daemon's percentage is the configured one, as exactly as the daemon prints it."""
    return abs(percentage - instance.active_thread_percentage) <= _TOLERANCE
