"""Carrying out a drain or an undrain on the cluster: read right before, act, read again; the last reading counts.

Every step gives an `Outcome`, and never raises for what Slurm says: what was refused, and what was done and did not
take effect, are values with their exit status.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable, NamedTuple, Protocol

from mpsfleet.errors import MpsfleetError, NotInEffect, Refused
from mpsfleet.show import show
from mpsfleet.slurm import drains
from mpsfleet.slurm.commands import Done, NodeAnswer, NoSuchNode, Unreadable
from mpsfleet.slurm.drains import Action, Decision
from mpsfleet.slurm.names import is_literal

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.reasons import DrainReason

_POLL_S = 0.5  # grows to the longest while jobs end
_LONGEST_POLL_S = 5.0
_SETTLE_S = 3.0
_SETTLE_POLL_S = 0.2


class Door(Protocol):
    """What a step needs of `commands.Scontrol`."""

    def show_node(self, name: str) -> NodeAnswer:
        """Read one node."""

    def cluster_name(self) -> str | Unreadable:
        """Read the cluster's name."""

    def drain(self, name: str, reason: str) -> Done | Unreadable:
        """Set DRAIN and the reason."""

    def undrain(self, name: str) -> Done | Unreadable:
        """Clear DRAIN."""


class NotAsked(MpsfleetError):
    """Slurm could not be asked (exit status 3)."""


class Clock(NamedTuple):
    """Time as an argument: seconds of a clock that only goes forward, and a way to let them pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


REAL_CLOCK = Clock()


class Terms(NamedTuple):
    """Under what terms a step is taken: as whom, on which cluster (None: any), and whether only in thought."""

    who: str | None
    cluster: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of one step on one node. `error` is None, Refused (nothing changed), NotInEffect or NotAsked."""

    node: str
    action: Action  # DRAIN, UNDRAIN or NONE
    why: str
    changed: bool = False
    before: Node | None = None
    after: Node | None = None
    error: MpsfleetError | None = None
    dry_run: bool = False
    was_silent: bool = False  # scontrol did not end in time when it was told to act

    @property
    def exit_code(self) -> int:
        """The shell's answer: 0, 2 not in effect, 3 could not ask, 75 refused."""
        return 0 if self.error is None else self.error.exit_code


def drain(door: Door, name: str, reason: DrainReason, terms: Terms) -> Outcome:
    """Drain a node with our reason, unless somebody else drained it or its state forbids it."""
    return _take(door, name, terms, lambda node: drains.decide_drain(node, reason.code, reason.gpu, terms.who))


def undrain(door: Door, name: str, terms: Terms, clock: Clock = REAL_CLOCK) -> Outcome:
    """Give a node back that we drained, and let it register.

    Slurm calls a node NOT_RESPONDING from its UNDRAIN until it has registered anew: under 0.5 s on 22.05.8. Nothing
    runs on it and nothing may be done to it before, so the step ends a little later; that it registers is not its part.
    """
    outcome = undrain_and_leave(door, name, terms)
    node, end = outcome.after, clock.now() + _SETTLE_S
    while outcome.changed and node is not None and not node.state.responding and clock.now() < end:
        clock.sleep(_SETTLE_POLL_S)
        answer = door.show_node(name)
        node = None if isinstance(answer, (Unreadable, NoSuchNode)) else answer
    return outcome if node is None else replace(outcome, after=node)


def undrain_and_leave(door: Door, name: str, terms: Terms) -> Outcome:
    """Give a node back that we drained, and do not wait for it to register."""
    return _take(door, name, terms, lambda node: drains.decide_undrain(node, terms.who))


def check_cluster(door: Door, cluster: str | None) -> MpsfleetError | None:
    """Compare slurmctld's cluster with the one that is meant; None where it is that one, or none is meant."""
    if cluster is None:
        return None
    name = door.cluster_name()
    if isinstance(name, Unreadable):
        return NotAsked(name.reason)
    if name != cluster:
        return Refused(f"This is cluster {show(name)} and not {show(cluster)}; nothing was changed.")
    return None


def _take(door: Door, name: str, terms: Terms, decide: Callable[[Node], Decision]) -> Outcome:
    if not is_literal(name):
        return _none(name, Refused(f"{show(name)} is not the literal name of one node (no lists, ranges or ALL)."))
    wrong = check_cluster(door, terms.cluster)
    if wrong is not None:
        return _none(name, wrong)
    before = door.show_node(name)
    if isinstance(before, Unreadable):
        return _none(name, NotAsked(before.reason))
    if isinstance(before, NoSuchNode):
        return _none(name, Refused(f"slurmctld knows no node {name}; `mpsfleet slurm nodes` lists those it knows."))
    decision = decide(before)
    if decision.action is Action.REFUSE:
        refused = Refused(f"{name}: {decision.why}")
        return Outcome(name, Action.NONE, decision.why, before=before, error=refused, dry_run=terms.dry_run)
    if decision.action is Action.NONE:
        return Outcome(name, Action.NONE, decision.why, before=before, after=before, dry_run=terms.dry_run)
    if terms.dry_run:
        return Outcome(name, decision.action, decision.why, changed=True, before=before, dry_run=True)
    return _act(door, before, decision)


def _act(door: Door, before: Node, decision: Decision) -> Outcome:
    name, action = before.name, decision.action
    done = door.drain(name, str(decision.reason)) if action is Action.DRAIN else door.undrain(name)
    after = door.show_node(name)
    if isinstance(after, NoSuchNode):
        after = Unreadable(f"slurmctld no longer knows node {name}.")
    if isinstance(after, Unreadable):
        error = NotAsked(f"The {action.value} of {name} was requested and could not be verified: {after.reason}")
        return Outcome(name, action, decision.why, before=before, error=error)
    if _is_in_effect(after, decision):
        return Outcome(name, action, decision.why, changed=True, before=before, after=after)
    changed = (after.state, after.reason) != (before.state, before.reason)
    told = done.reason if isinstance(done, Unreadable) else done.words
    failed = NotInEffect(
        f"{action.value} of {name} requested but not in effect: its state is {show(after.state.raw, 80)}, "
        f"its reason {show(after.reason.text) if after.reason else 'empty'}{f' (scontrol: {told})' if told else ''}.",
    )
    return Outcome(name, action, decision.why, changed, before, after, failed, was_silent=isinstance(done, Unreadable))


def _is_in_effect(after: Node, decision: Decision) -> bool:
    if decision.action is Action.UNDRAIN:
        return not after.state.is_drain
    return after.state.is_drain and after.reason is not None and after.reason.text == str(decision.reason)


def wait_until_free(door: Door, outcome: Outcome, wait_s: float, clock: Clock) -> Outcome:
    """Read on after a drain until the node is free: IDLE+DRAIN, for us, with nothing against work on it.

    When the time is over it is refused: jobs are still on it, or it is about to be rebooted, say.

    A slurmctld that does not answer for a while (it is restarted) does not end the wait. After a drain that failed, or
    was a dry run, there is nothing to wait for.
    """
    if outcome.error is not None or outcome.dry_run:
        return outcome
    deadline = clock.now() + wait_s
    node, trouble, pause_s = outcome.after, "", _POLL_S
    while node is not None and (trouble or not node.state.drained or node.state.work_obstacle is not None):
        if drains.our_reason(node) is None:
            return _with(outcome, node, Refused(f"While waiting, the drain of {node.name} ceased to be ours."))
        left = deadline - clock.now()
        if left <= 0:
            late = f"{node.name} is not free after {wait_s:g} s (state {show(node.state.raw, 80)}); it stays drained."
            return _with(outcome, node, NotAsked(trouble) if trouble else Refused(late))
        clock.sleep(min(pause_s, left))
        pause_s = min(pause_s * 1.5, _LONGEST_POLL_S)
        answer = door.show_node(node.name)
        if isinstance(answer, NoSuchNode):
            return _with(outcome, node, NotAsked(f"While waiting, slurmctld ceased to know node {node.name}."))
        trouble = answer.reason if isinstance(answer, Unreadable) else ""
        node = node if isinstance(answer, Unreadable) else answer
    return _with(outcome, node, None)


def _with(outcome: Outcome, after: Node | None, error: MpsfleetError | None) -> Outcome:
    return replace(outcome, after=after, error=error)


def _none(name: str, error: MpsfleetError) -> Outcome:
    return Outcome(name, Action.NONE, str(error), error=error)
