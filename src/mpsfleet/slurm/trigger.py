"""What becomes of a verdict's decisions: carried out one by one, or marked as what would be done.

The only writer behind `trigger_drain` and `trigger_undrain`. Each node is read again right before; once Slurm stops
answering, nothing more is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import Refused
from mpsfleet.slurm import steps
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.notices import Notice, highest, rank, worst
from mpsfleet.slurm.steps import Door, NotAsked, Outcome, Terms

if TYPE_CHECKING:
    from mpsfleet.slurm.verdict import FleetVerdict, HostVerdict

ACTIONS = (Action.DRAIN, Action.UNDRAIN)


def only_told(fleet: FleetVerdict, action: Action, words: str) -> FleetVerdict:
    """Mark each drain, or each undrain, as not done, for the reason given ("trigger_drain is off")."""
    return _with_hosts(fleet, [_told(each, action, f"Would {action.value} ({words}).") for each in fleet.hosts])


def carry_out(fleet: FleetVerdict, door: Door, who: str | None, actions: tuple[Action, ...] = ACTIONS) -> FleetVerdict:
    """Take the steps of these kinds that the verdict decided on, and mark each decision as done or why not."""
    hosts: list[HostVerdict] = []
    has_lost_slurm = False
    for host in fleet.hosts:
        decision = host.decision
        if decision.action not in actions or decision.reason is None or host.node is None:
            hosts.append(host)
        elif has_lost_slurm:
            hosts.append(_told(host, decision.action, "Not tried: Slurm ceased to answer before."))
        else:
            terms = Terms(who)
            if decision.action is Action.DRAIN:
                outcome = steps.drain(door, host.node, decision.reason, terms)
            else:
                outcome = steps.undrain_and_leave(door, host.node, terms)
            has_lost_slurm = isinstance(outcome.error, NotAsked) or outcome.was_silent
            hosts.append(_after(host, outcome))
    return _with_hosts(fleet, hosts)


def done_count(fleet: FleetVerdict) -> int:
    """Give how many steps were taken."""
    return sum(each.decision.done for each in fleet.hosts)


def wanted_count(fleet: FleetVerdict, actions: tuple[Action, ...] = ACTIONS) -> int:
    """Give how many steps of these kinds the verdict wants, done or not."""
    return sum(each.decision.action in actions for each in fleet.hosts)


def _told(host: HostVerdict, action: Action, why: str) -> HostVerdict:
    if host.decision.action is not action:
        return host
    return host._replace(decision=host.decision._replace(why=why, done=False))


def _after(host: HostVerdict, outcome: Outcome) -> HostVerdict:
    if outcome.error is None:
        done = outcome.action in ACTIONS
        decision = host.decision._replace(action=outcome.action, why=outcome.why, done=done)
        return host._replace(decision=decision, slurm=outcome.after or host.slurm)
    if isinstance(outcome.error, Refused):  # somebody changed the node's state since the whole fleet was read
        return host._replace(decision=host.decision._replace(action=Action.NONE, why=outcome.why), slurm=outcome.before)
    severity = "unknown" if isinstance(outcome.error, NotAsked) else "critical"
    notices = sorted((*host.notices, Notice(severity, str(outcome.error))), key=lambda each: rank(each.severity))
    decision = host.decision._replace(why=str(outcome.error), done=False)
    return host._replace(decision=decision, notices=tuple(notices), verdict=highest(notices))


def _with_hosts(fleet: FleetVerdict, hosts: list[HostVerdict]) -> FleetVerdict:
    verdicts = [fleet.verdict, *(each.verdict for each in hosts)]
    return fleet._replace(hosts=tuple(hosts), verdict=worst(verdicts))
