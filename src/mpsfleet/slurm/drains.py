"""Draining and undraining one node: pure decisions first, then the steps that carry them out.

The rules (domain knowledge from Slurm's src/slurmctld/node_mgr.c, 22.05.8): `scontrol update` overwrites a reason
without a word and has no compare-and-set, so a node is read right before and again right after; a drain of a node that
powers up kills its jobs, so power states are left alone; UNDRAIN clears DRAIN alone. A drain that is not ours, or has
no reason, is never changed. Whatever state is not known to allow the step forbids it.
"""

from __future__ import annotations

import enum
import pwd
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.show import show
from mpsfleet.slurm import reasons, states
from mpsfleet.slurm.state_table import JOB, Step

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.reasons import DrainReason

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
    reason: DrainReason | None = None


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
            return Decision(Action.NONE, f"The node is already drained with this reason{by}.")
        return Decision(Action.NONE, f"The node is already drained by mpsfleet and keeps its reason ({ours}){by}.")
    obstacle = _foreign_drain(node) or _state_obstacle(node, Step.DRAIN)
    if obstacle is not None:
        return Decision(Action.REFUSE, obstacle)
    # A reason without DRAIN or DOWN holds nothing back: Slurm leaves it behind after a resume (24.11, no accounting).
    is_stale = node.reason is not None and node.reason.text != reasons.GIVEN_BACK
    stale = f" The reason left from before is replaced: {show(node.reason.text)}." if is_stale and node.reason else ""
    return Decision(Action.DRAIN, f"The node is {show(node.state.raw, 80)} and can be drained.{stale}", wanted)


def decide_undrain(node: Node, who: str | None) -> Decision:
    """Decide on giving a node back, as it was read just now: only what we drained, and only when nothing is on it."""
    ours = our_reason(node)
    if not node.state.is_drain:
        return Decision(Action.NONE, f"The node is not drained: its state is {show(node.state.raw, 80)}.")
    if ours is None:
        return Decision(Action.REFUSE, _foreign_drain(node) or "The drain is not ours.")
    setter = node.reason.user if node.reason else None
    if who is None or setter != who or setter == _NO_NAME:
        by, me = show(setter or "a user that Slurm does not name"), who or "a user without a name"
        return Decision(
            Action.REFUSE, f"The drain was set by {by}, and this runs as {me}; run it as the one who set it."
        )
    obstacle = _state_obstacle(node, Step.UNDRAIN)
    if obstacle is not None:
        return Decision(Action.REFUSE, obstacle)
    return Decision(Action.UNDRAIN, f"The node is drained by mpsfleet ({ours}) and nothing is on it.")


def _foreign_drain(node: Node) -> str | None:
    if not node.state.is_drain:
        return None
    if node.reason is None or not node.reason.text.strip():
        return "The node is drained without a reason, so somebody else did it; it is left alone."
    by = f" by {show(node.reason.user)}" if node.reason.user else ""
    if node.reason.text == reasons.GIVEN_BACK:
        return "Slurm drained the node after mpsfleet had given it back; slurmctld's log says why. It is left alone."
    if node.reason.text.startswith(reasons.TAG):
        return f"The reason of the drain{by} is more or other than mpsfleet writes, so it is left alone: " + show(
            node.reason.text,
        )
    return f"The node is already drained{by} for another reason, which is left alone: {show(node.reason.text)}"


def _state_obstacle(node: Node, step: Step) -> str | None:
    """Say why a node in this state is left alone; None where its base and every flag are known to allow the step."""
    why = states.obstacle(node.state, step)
    if why == JOB:
        return f"A job is still on the node: its state is {show(node.state.raw, 80)}."
    return None if why is None else f"The node {why}; it is left alone (state {show(node.state.raw, 80)})."
