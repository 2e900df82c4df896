"""The policy over a verdict: when a node that fails is drained, when one that is well again is given back, and by whom.

Pure: a verdict, the ledger and the time go in; decisions, each with its reason, and the ledger with its counts come
out. Equal inputs give equal decisions.

- A drain waits until the node was found failing often enough in a row: twice for what one look can see wrongly
  (codes.TWICE), once for the rest. An audit without an answer neither counts nor ends the row.
- A node is given back by us alone where it was drained by us for a finding, nothing of a job is on it, and audits in a
  row found nothing critical and nothing unknown. After the second drain in a week it stays out half an hour longer, and
  twice as long with each further one.
- The third drain in a week hands the node over: its reason is then `flapping`, and a person gives it back.
- A node whose drain somebody else ended or changed while it failed is left to them until an audit finds it well.
- The budget (see `budget`) holds drains back, and never a node's way back.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import codes
from mpsfleet.slurm import budget, drains, ledger
from mpsfleet.slurm.budget import USUAL, Budget
from mpsfleet.slurm.drains import Action, our_reason
from mpsfleet.slurm.verdict import FAILING, UNASKED, WELL, Audit, Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mpsfleet.slurm.ledger import Entry, Ledger
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.verdict import FleetVerdict, HostVerdict

STRIKE_S = 7 * 86400.0  # drains within it count together
HOLD_S = 1800.0  # longer out of service after the second of them; doubles with each further one
ROW_S = 7 * 86400.0  # audits further apart are not in a row
HOUR_S = 3600.0


class Policy(NamedTuple):
    """What a site may choose."""

    budget: Budget = USUAL
    after: int | None = None  # failing audits in a row before a drain; None: by the code
    well: int = 2  # audits in a row, all well, before a node is given back
    strikes: int = 3  # drains in a week that hand a node over to a person; 0: never


def weigh(
    fleet: FleetVerdict, kept: Ledger, policy: Policy, who: str | None, now: float
) -> tuple[FleetVerdict, Ledger]:
    """Give the verdict as the policy has it, and the ledger as Slurm and these audits have it.

    `who`: the user whose drains are ours; `now`: seconds since 1970. Where Slurm could not be asked nothing changes.
    """
    if fleet.slurm.error is not None:
        return fleet, kept
    nodes = fleet.slurm.table.nodes
    since = {each.name: at for each in nodes if (at := _set_at(each)) is not None}
    kept = ledger.reconciled(kept, nodes, now, since)
    entries: dict[str, Entry] = {}
    hosts: list[HostVerdict] = []
    for host in fleet.hosts:
        if host.slurm is None:  # not known to Slurm, or not told which node it is
            hosts.append(host)
            continue
        name = host.slurm.name
        entries[name] = entry = _counted(kept.entry(name), host.audit, host.slurm, now)
        hosts.append(host._replace(decision=_decided(host, entry, policy, who, now)))
    kept = kept.with_entries(entries)
    weighed = fleet._replace(hosts=tuple(hosts))
    return budget.within(weighed, policy.budget, drained_within(kept, nodes, since, now - HOUR_S)), kept


def drained_within(kept: Ledger, nodes: Iterable[Node], since: dict[str, float], then: float) -> int:
    """Give how many drains for a finding there were at or after a time, by Slurm's reasons and by the ledger."""
    ours = {each.name for each in nodes if (reason := our_reason(each)) is not None and reason.code != codes.RESET}
    # A reason without a time counts: it cannot be shown to be old.
    now_out = {name for name in ours if since.get(name, then) >= then}
    by_ledger = {name: len(each.drains_since(then)) for name, each in kept.entries.items()}
    return sum(max(by_ledger.get(name, 0), int(name in now_out)) for name in now_out | set(by_ledger))


def _set_at(node: Node) -> float | None:
    """Give when the node's reason was set; scontrol prints it in the controller's own local time."""
    if node.reason is None or node.reason.time is None:
        return None
    try:
        return datetime.fromisoformat(node.reason.time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _counted(entry: Entry, audit: Audit, node: Node, now: float) -> Entry:
    """Give the entry with this audit counted, once."""
    is_counted = bool(audit.stamp) and audit.stamp == entry.stamp
    is_older = bool(audit.stamp) and bool(entry.events) and audit.stamp < entry.events[-1].at
    if is_counted or is_older:
        return entry
    is_row = now - entry.at <= ROW_S
    failing, well = (entry.failing, entry.well) if is_row else (0, 0)
    if audit.state == FAILING:
        failing, well = max(failing + 1, audit.times), 0
    elif audit.state == WELL:
        failing, well = 0, max(well + 1, audit.times) if our_reason(node) is not None else 0
    elif audit.state == UNASKED:
        well = 0
    else:
        failing, well = 0, 0
    failing, well = min(failing, ledger.MOST_TIMES), min(well, ledger.MOST_TIMES)
    overruled = entry.overruled and audit.state != WELL
    return entry._replace(failing=failing, well=well, at=now, stamp=audit.stamp, overruled=overruled)


def _decided(host: HostVerdict, entry: Entry, policy: Policy, who: str | None, now: float) -> Decision:
    if host.decision.action is Action.DRAIN:
        return _drain(host.decision, entry, policy, now)
    if host.slurm is None or host.audit.state != WELL:
        return host.decision
    return _undrain(host.slurm, entry, policy, who, now) or host.decision


def _drain(decision: Decision, entry: Entry, policy: Policy, now: float) -> Decision:
    reason = decision.reason
    if reason is None:
        return decision
    if entry.overruled:
        why = (
            "Somebody ended or changed mpsfleet's drain of this node while it was failing, so it is left as they have "
        )
        why += "it until an audit finds it well. `mpsfleet slurm drain` drains it."
        return decision._replace(action=Action.NONE, why=why, reason=None)
    wanted = policy.after or (2 if reason.code in codes.TWICE else 1)
    if entry.failing < wanted:
        why = f"Found failing {_times(entry.failing)}; it is drained when {wanted} audits in a row find it so."
        return decision._replace(action=Action.NONE, why=why, reason=None)
    before = entry.drains_since(now - STRIKE_S)
    if policy.strikes and len(before) + 1 >= policy.strikes:
        why = f"{decision.why} It is drain number {len(before) + 1} in a week, this time for {reason.code}: only a "
        why += "person gives the node back."
        return decision._replace(why=why, reason=reason._replace(code=codes.FLAPPING))
    return decision


def _undrain(node: Node, entry: Entry, policy: Policy, who: str | None, now: float) -> Decision | None:
    """Decide on a node that is well; None where it is not drained by us for a finding, so that nothing is to be said.

    A reset's own drain belongs to the one who resets.
    """
    ours = our_reason(node)
    if ours is None or ours.code == codes.RESET:
        return None
    if not entry.is_drained:
        why = "Its reason is of a drain of mpsfleet's that is over, so the drain is somebody else's and is left alone."
        return Decision(Action.NONE, why)
    decided = drains.decide_undrain(node, who)
    if decided.action is not Action.UNDRAIN:
        return Decision(Action.NONE, decided.why)
    if ours.code == codes.FLAPPING:
        why = "It was drained too often, so a person is to find out why, and to give it back."
        return Decision(Action.NONE, f"{why} See `mpsfleet slurm history {node.name}`.")
    if entry.well < policy.well:
        why = f"Found well {_times(entry.well)}; it is given back when {policy.well} audits in a row find it so."
        return Decision(Action.NONE, why)
    recent = entry.drains_since(now - STRIKE_S)
    left = hold_s(len(recent)) - max(0.0, now - recent[-1].at) if recent else 0.0
    if left > 0:
        why = f"It was drained {_times(len(recent))} in a week, so it stays out {left / 60:.0f} minutes more."
        return Decision(Action.NONE, why)
    return Decision(Action.UNDRAIN, decided.why, ours)


def hold_s(strikes: int) -> float:
    """Give how long a node stays out of service after its last drain, in seconds: none after a first one."""
    return 0.0 if strikes < 2 else HOLD_S * 2.0 ** min(strikes - 2, 16)  # noqa: PLR2004  # from the second on


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
