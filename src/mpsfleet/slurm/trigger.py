"""What becomes of a verdict's drains: carried out one by one, or marked as what would be done.

The only writer behind `trigger_drain`. Each node is read again right before its drain; once Slurm stops answering,
nothing more is tried.
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


def only_told(fleet: FleetVerdict, words: str) -> FleetVerdict:
    """Mark each drain as not done, for the reason given ("trigger_drain is off")."""
    return _with_hosts(fleet, [_told(each, f"Would drain ({words}).") for each in fleet.hosts])


def carry_out(fleet: FleetVerdict, door: Door, who: str | None) -> FleetVerdict:
    """Drain what the verdict decided to drain, and mark each decision as done or why not."""
    hosts: list[HostVerdict] = []
    has_lost_slurm = False
    for host in fleet.hosts:
        reason = host.decision.reason
        if host.decision.action is not Action.DRAIN or reason is None or host.node is None:
            hosts.append(host)
        elif has_lost_slurm:
            hosts.append(_told(host, "Not tried: Slurm ceased to answer before."))
        else:
            outcome = steps.drain(door, host.node, reason, Terms(who))
            has_lost_slurm = isinstance(outcome.error, NotAsked)
            hosts.append(_after(host, outcome))
    return _with_hosts(fleet, hosts)


def drained_count(fleet: FleetVerdict) -> int:
    """Give how many nodes were drained."""
    return sum(each.decision.done for each in fleet.hosts)


def to_drain_count(fleet: FleetVerdict) -> int:
    """Give how many nodes the verdict wants drained, done or not."""
    return sum(each.decision.action is Action.DRAIN for each in fleet.hosts)


def _told(host: HostVerdict, why: str) -> HostVerdict:
    if host.decision.action is not Action.DRAIN:
        return host
    return host._replace(decision=host.decision._replace(why=why, done=False))


def _after(host: HostVerdict, outcome: Outcome) -> HostVerdict:
    if outcome.error is None:
        done = outcome.action is Action.DRAIN
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
