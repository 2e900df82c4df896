"""The drain budget: how many nodes may be out of service by mpsfleet's own doing at once.

Pure. A fault that all nodes share, a bad upgrade or a check that is wrong must not take a cluster out of service, so
what is over the budget is told and not done, and a person decides. It is counted from Slurm's own drains that bear a
whole reason of ours: there is no record that could be lost or be behind. The drains of an hour are counted too, since a
fault that moves on from node to node would never fill the other two. Recovery is never bound by any of them.
"""

from __future__ import annotations

import collections
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import codes
from mpsfleet.show import show
from mpsfleet.slurm.drains import Action, our_reason

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.verdict import FleetVerdict, HostVerdict

_LIMIT = re.compile(r"([0-9]{1,6})(%?)")
_DIGITS = re.compile(r"([0-9]+)")
_ALL_PERCENT = 100
_GPU_GRES = ("gpu", "mps", "shard")
_WHOLE = None  # the cluster, beside the partitions' names


class Limit(NamedTuple):
    """At most so many nodes, or so many in a hundred, rounded up, and then at least `least`."""

    number: int
    is_percent: bool = False
    least: int = 0

    def of(self, nodes: int) -> int:
        """Give the limit among that many nodes."""
        return max(-(-nodes * self.number // 100), self.least) if self.is_percent else self.number


class Budget(NamedTuple):
    """The limits for the cluster and for each partition; nodes are those with GPUs in Slurm's books."""

    cluster: Limit = Limit(25, is_percent=True, least=3)
    partition: Limit = Limit(50, is_percent=True, least=3)
    hour: Limit = Limit(25, is_percent=True, least=3)  # drains in an hour, of the cluster's GPU nodes


USUAL = Budget()


def limit(text: str) -> Limit:
    """Read `N` or `P%`. Raises ValueError with a phrase that says what is wrong."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{show(text, 60)} is neither a number of nodes nor a percentage such as 25%")
    number, is_percent = int(match.group(1)), bool(match.group(2))
    if is_percent and number > _ALL_PERCENT:
        raise ValueError(f"{show(text, 60)} is more than 100%")
    return Limit(number, is_percent)


def within(fleet: FleetVerdict, budget: Budget = USUAL, in_hour: int = 0) -> FleetVerdict:
    """Keep the drains for which there is room and turn each other one into a decision against it, with its reason.

    Who comes first does not depend on the reports' order: it is by code, as codes.py has them, and then by name (n2
    before n10).
    `in_hour`: how many drains there were within the hour.
    """
    counted = [each for each in fleet.slurm.table.nodes if any(gres.name in _GPU_GRES for gres in each.gres)]
    nodes = collections.Counter(place for each in counted for place in _places(each))
    spent = collections.Counter(
        place for each in fleet.slurm.table.nodes if our_reason(each) is not None for place in _places(each)
    )
    decided: dict[str, HostVerdict] = {}
    order = partial(_order, {code: place for place, code in enumerate(codes.BY_NAME)})
    for host in sorted((each for each in fleet.hosts if each.decision.action is Action.DRAIN), key=order):
        places = _places(host.slurm) if host.slurm is not None else (_WHOLE,)
        full = next((each for each in places if spent[each] >= _limit_of(each, budget).of(nodes[each])), "")
        if full != "":
            why = _why(full, spent[full], _limit_of(full, budget).of(nodes[full]))
        elif in_hour >= budget.hour.of(nodes[_WHOLE]):
            why = _why_hour(in_hour, budget.hour.of(nodes[_WHOLE]))
        else:
            spent.update(places)
            in_hour += 1
            continue
        decided[host.host] = host._replace(decision=host.decision._replace(action=Action.NONE, why=why, reason=None))
    return fleet._replace(hosts=tuple(decided.get(each.host, each) for each in fleet.hosts))


def _places(node: Node) -> tuple[str | None, ...]:
    return (_WHOLE, *dict.fromkeys(node.partitions))


def _limit_of(place: str | None, budget: Budget) -> Limit:
    return budget.cluster if place is _WHOLE else budget.partition


def _order(places: dict[str, int], host: HostVerdict) -> tuple[int, list[tuple[int, str]], str]:
    code = host.decision.reason.code if host.decision.reason else ""
    return places.get(code, len(places)), _natural(host.host), host.host


def _natural(name: str) -> list[tuple[int, str]]:
    """Give what sorts n2 before n10: texts, and numbers by their length and then by their digits."""
    parts = _DIGITS.split(name)
    digits = [each.lstrip("0") for each in parts[1::2]]
    return [key for text, number in zip(parts, [*digits, ""]) for key in ((0, text), (len(number), number))]


def _why(place: str | None, spent: int, most: int) -> str:
    nodes = "the cluster's GPU nodes" if place is _WHOLE else f"the GPU nodes of partition {show(place, 60)}"
    option = "max_drained" if place is _WHOLE else "max_drained_partition"
    return (
        f"The budget is spent: of {nodes}, mpsfleet keeps at most {most} drained at once, and has {spent} drained or "
        f"about to be. Find what they have in common, mend it and undrain; or raise mps_{option}."
    )


def _why_hour(spent: int, most: int) -> str:
    return (
        f"The budget is spent: mpsfleet drains at most {most} of the cluster's GPU nodes in an hour, and has drained "
        f"{spent} or is about to. Find what they have in common; or raise mps_max_drained_hour."
    )
