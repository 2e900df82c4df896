"""Draining and undraining one node: pure decisions first, then the steps that carry them out.

The rules (domain knowledge from Slurm's src/slurmctld/node_mgr.c, 22.05.8): `scontrol update` overwrites a reason
without a word and has no compare-and-set, so a node is read right before and again right after; a drain of a node that
powers up kills its jobs, so power states are left alone; UNDRAIN clears DRAIN alone. A drain that is not ours, or has
no reason, is never changed. Whatever state is not known to allow the step forbids it.
"""

from __future__ import annotations

import enum
import pwd
from typing import NamedTuple, Optional

from mpsfleet.slurm import reasons, states
from mpsfleet.slurm.nodes import Node
from mpsfleet.slurm.reasons import DrainReason
from mpsfleet.slurm.show import show
from mpsfleet.slurm.states import Base

_ALLOWED_FLAGS = states.HARMLESS_FLAGS | {states.DRAIN, states.COMPLETING}
_NO_NAME = "nobody"  # what scontrol prints for a uid without a name (uid_to_string in Slurm's src/common/uid.c)


class Action(enum.Enum):
    """What is to be done to a node. NONE: it is already so. REFUSE: it must not be done."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    NONE = "none"
    REFUSE = "refuse"


class Decision(NamedTuple):
    """What to do, why (one sentence), and the reason to write for a drain."""

    action: Action
    why: str
    reason: Optional[DrainReason] = None


def own_name(euid: int) -> str | None:
    """Give the user name that scontrol prints for drains of this uid; None where there is none to be told by."""
    if euid == 0:
        return "root"  # scontrol's own choice where several names share uid 0
    try:
        name = pwd.getpwuid(euid).pw_name
    except KeyError:
        return None
    return None if name == _NO_NAME else name


def our_reason(node: Node) -> DrainReason | None:
    """Give the reason of a node that is drained by this program, None for every other node."""
    if not node.state.is_drain or node.reason is None:
        return None
    return reasons.parse(node.reason.text)


def decide_drain(node: Node, code: str, gpu: int | None, who: str | None) -> Decision:
    """Decide on a drain of a node as it was read just now. Raises UsageError for a code that drains no node.

    A node that is already drained by us stays with the reason it has, also where another finding would drain it now:
    the first reason is what was true when the node left service, and changing it would reset its time.
    """
    wanted = reasons.build(code, gpu)
    ours = our_reason(node)
    if ours is not None:
        setter = node.reason.user if node.reason else None
        by = "" if setter in (None, who) else f", set by {show(setter)}"
        if ours == wanted:
            return Decision(Action.NONE, f"{node.name} is already drained with this reason{by}.")
        return Decision(Action.NONE, f"{node.name} is already drained by mpsfleet and keeps its reason ({ours}){by}.")
    obstacle = _foreign_drain(node) or _state_obstacle(node)
    if obstacle is not None:
        return Decision(Action.REFUSE, obstacle)
    # A reason without DRAIN or DOWN holds nothing back: Slurm leaves it behind after a resume (24.11, no accounting).
    stale = f" The reason left from before is replaced: {show(node.reason.text)}." if node.reason else ""
    return Decision(Action.DRAIN, f"{node.name} is {node.state.raw} and can be drained.{stale}", wanted)


def decide_undrain(node: Node, who: str | None) -> Decision:
    """Decide on giving a node back, as it was read just now: only what we drained, and only when nothing is on it."""
    if not node.state.is_drain:
        return Decision(Action.NONE, f"{node.name} is not drained: its state is {node.state.raw}.")
    if our_reason(node) is None:
        return Decision(Action.REFUSE, _foreign_drain(node) or f"The drain of {node.name} is not ours.")
    setter = node.reason.user if node.reason else None
    if who is None or setter != who or setter == _NO_NAME:
        return Decision(
            Action.REFUSE,
            f"The drain of {node.name} was set by {show(setter or 'a user Slurm does not name')}, and this runs as "
            f"{who or 'a user without a name'}; run it as the one who set it.",
        )
    obstacle = _state_obstacle(node)
    if obstacle is not None:
        return Decision(Action.REFUSE, obstacle)
    if not node.state.drained:
        return Decision(Action.REFUSE, f"A job is still on {node.name}: its state is {node.state.raw}.")
    return Decision(Action.UNDRAIN, f"{node.name} is drained by mpsfleet ({our_reason(node)}) and nothing is on it.")


def _foreign_drain(node: Node) -> str | None:
    if not node.state.is_drain:
        return None
    if node.reason is None or not node.reason.text.strip():
        return f"{node.name} is drained without a reason, so somebody else did it; it is left alone."
    by = f" by {show(node.reason.user)}" if node.reason.user else ""
    if node.reason.text.startswith(reasons.TAG):
        return f"The drain of {node.name} is no longer ours as it stands{by}: {show(node.reason.text)}."
    return f"{node.name} is already drained{by} for another reason, which is left alone: {show(node.reason.text)}."


def _state_obstacle(node: Node) -> str | None:
    """Say why a node in this state is left alone; None where its base and every flag are known to allow a step."""
    state, name = node.state, node.name
    why = None
    if state.base is Base.DOWN:
        why = "is DOWN: jobs do not get there, and bringing it back is not for mpsfleet to decide"
    elif states.FAIL in state.flags:
        why = "is in state FAIL, which somebody set"
    elif state.is_maintenance:
        why = "is in a maintenance reservation"
    elif state.is_reboot:
        why = "is to be rebooted or is rebooting"
    elif state.is_power:
        why = "is powered down, or is being powered up or down"
    elif not state.responding:
        why = "does not respond to slurmctld"
    elif states.INVALID_REG in state.flags:
        why = "has registered with other resources than slurm.conf gives it; Slurm holds it back until they agree"
    elif state.unknown_flags:
        why = f"has a state that this program does not know ({show(', '.join(state.unknown_flags), 60)})"
    elif state.base not in (Base.IDLE, Base.ALLOCATED, Base.MIXED) or not state.flags <= _ALLOWED_FLAGS:
        why = "is in a state that allows no such step"
    return None if why is None else f"{name} {why}; it is left alone (state {show(state.raw, 80)})."
