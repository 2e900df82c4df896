"""The whole fleet's drift: every report beside every node of Slurm's, the most severe first. Pure.

Without reports only what Slurm itself says is looked at: there is no inventory then, and nothing of the nodes. A host
whose report cannot be used is a problem and no drift.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.show import show
from mpsfleet.slurm import drift, drift_gres, drift_names
from mpsfleet.slurm.drift_kinds import KINDS, Drift
from mpsfleet.slurm.drift_kinds import drift as case
from mpsfleet.slurm.notices import INFO, rank, worst
from mpsfleet.slurm.verdict import unusable, usable_report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mpsfleet.slurm.drift import Registry
    from mpsfleet.slurm.nodes import NodeTable
    from mpsfleet.slurm.reports import HostReport

_ORDER = {each.word: place for place, each in enumerate(KINDS)}


class Problem(NamedTuple):
    """What could not be compared, and why; `host` is None where it is about no single one."""

    host: str | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence if self.host is None else f"{self.host}: {self.sentence}"


class Compared(NamedTuple):
    """What came of it. The verdict is the worst of the drifts; a problem makes it at least unknown."""

    verdict: str
    drifts: tuple[Drift, ...]
    problems: tuple[Problem, ...]
    looked_at: int  # hosts, or without reports nodes, that were looked at


def compare(
    table: NodeTable,
    reports: tuple[HostReport, ...] | None,
    wanted: Collection[str] = (),
    cluster: str | None = None,
) -> Compared:
    """Compare; `wanted` are names of nodes or hosts, and none means all. The order of the reports changes nothing.

    `cluster` is the nodes'; a host that the inventory has in another one is a problem, and not compared.
    """
    others = [each for each in reports or () if cluster is not None and each.cluster not in (None, cluster)]
    reports = None if reports is None else tuple(each for each in reports if each not in others)
    drifts = [*(_alone(table) if reports is None else _reported(table, reports))]
    problems = [Problem(each.node, f"{show(each.sentence, 300)}.") for each in table.problems]
    problems += _problems(table, reports or ())
    problems += [Problem(each.host, f"The inventory has it in cluster {show(each.cluster)}.") for each in others]
    names = {each.name for each in table.nodes} if reports is None else {each.host for each in (*reports, *others)}
    if wanted:
        known = {each.name for each in table.nodes} | names
        drifts = [each for each in drifts if each.host in wanted or each.node in wanted]
        nodes = {each.host: each.node for each in reports or ()}
        problems = [each for each in problems if each.host is None or {each.host, nodes.get(each.host)} & set(wanted)]
        problems += [Problem(each, "Neither Slurm nor the reports name it.") for each in sorted({*wanted} - known)]
        names = {each for each in names if each in wanted or nodes.get(each) in wanted}
    told = [each.severity for each in drifts if each.severity != INFO] + ["unknown"] * bool(problems)
    return Compared(worst(told), tuple(sorted(drifts, key=_place)), tuple(sorted(set(problems), key=str)), len(names))


def _place(each: Drift) -> tuple[int, int, int, str, str]:
    return rank(each.severity), _ORDER[each.kind], -1 if each.gpu is None else each.gpu, each.host, each.sentence


def _alone(table: NodeTable) -> Iterator[Drift]:
    for node in table.nodes:
        for each in drift.registration(node):
            yield each._replace(host=node.name, node=node.name)


def _reported(table: NodeTable, reports: tuple[HostReport, ...]) -> Iterator[Drift]:
    claims = collections.Counter(each.node for each in reports)
    times = collections.Counter(each.host for each in reports)
    used = [usable_report(each) for each in reports]
    known = drift.registry(table, claims, [each.mps for each in used if each is not None])
    for given, report in zip(reports, used):
        unmapped = drift_names.unmapped(given.node, claims[given.node])
        if times[given.host] > 1:
            continue  # a problem
        if unmapped is not None:
            yield unmapped._replace(host=given.host)
        elif given.node is not None:
            yield from drift.of_host(given.host, given.node, known, report)
    yield from _not_audited(known, claims)


def _not_audited(known: Registry, claims: Collection[str | None]) -> Iterator[Drift]:
    for node in known.by_name.values():
        names = drift_gres.shared_names(node)
        if names and node.name not in claims and not drift.is_planned(node):
            sentence = f"Slurm has gres/{' and gres/'.join(names)} on the node, and no host of the inventory is it."
            mend = "Add it to the group gpu_nodes of the inventory, or set mps_slurm_node_name of the host that it is."
            yield case("not-audited", sentence, mend)._replace(host=node.name, node=node.name)


def _problems(table: NodeTable, reports: tuple[HostReport, ...]) -> Iterator[Problem]:
    """Say of which hosts nothing is known; one that is out of reach on purpose is none of them."""
    by_name = {each.name: each for each in table.nodes}
    times = collections.Counter(each.host for each in reports)
    for given in reports:
        node = by_name.get(given.node or "")
        why = unusable(given)
        report = usable_report(given)
        if times[given.host] > 1:
            yield Problem(given.host, "The reports name this host more than once. Run the audit again.")
        elif node is None or drift.is_planned(node):
            continue  # told as unknown-node, or nothing to be said
        elif why is not None:
            yield Problem(given.host, f"{why.sentence} {why.remedy}")
        elif report is not None and report.mps is None:
            sentence = "The report does not tell what of MPS is on the node, so that is not compared."
            yield Problem(given.host, f"{sentence} Mend its configuration, or deploy this version of mpsfleet there.")
