"""The fleet's verdict: what the nodes report, joined with what Slurm believes, and which nodes are to be drained.

Pure. A drain follows only from a critical finding whose code drains (codes.py) and whose origin is the node; from a
report whose own name is the node's; on a node that Slurm knows and that may be drained. Unknown drains nothing: not a
host without a report, not garbage, not a Slurm that could not be asked.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import codes
from mpsfleet.show import show
from mpsfleet.slurm import drains, drift, drift_names
from mpsfleet.slurm.commands import Unreadable
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.nodes import Node, NodeTable
from mpsfleet.slurm.notices import INFO, Notice, highest, rank, worst
from mpsfleet.slurm.publication import gpu_of
from mpsfleet.slurm.reports import Finding, Garbage, HostReport, Report
from mpsfleet.slurm.state_table import Step
from mpsfleet.slurm.states import obstacle

if TYPE_CHECKING:
    from mpsfleet.slurm.drift import Registry
    from mpsfleet.slurm.reasons import DrainReason

FAILING, WELL, UNWELL, UNASKED = "failing", "well", "unwell", "unasked"


class SlurmView(NamedTuple):
    """What Slurm answered, once for the whole fleet; `error` says why it cannot be used."""

    cluster: str | None
    table: NodeTable
    error: str | None = None


class Decision(NamedTuple):
    """What is to be done to the host's node, why, and whether it was done."""

    action: Action  # DRAIN, UNDRAIN or NONE
    why: str
    reason: DrainReason | None = None  # to be written, or of the drain to be ended
    done: bool = False


class Audit(NamedTuple):
    """What a host's report counts for: a finding that drains, nothing critical or unknown, other trouble, no answer."""

    state: str = UNASKED  # FAILING, WELL, UNWELL or UNASKED
    words: str = ""  # the sentence of what drains
    times: int = 1  # how often in a row the node itself found it so
    stamp: int = 0  # when the node published it, seconds since 1970; 0 where it was asked just now


class HostVerdict(NamedTuple):
    """One host: how it is, what is to be said, and what is to be done."""

    host: str
    node: str | None
    verdict: str
    notices: tuple[Notice, ...]
    decision: Decision
    slurm: Node | None = None
    audit: Audit = Audit()
    is_off: bool = False  # not heard of, and in a state of Slurm's in which none is expected to answer

    @property
    def message(self) -> str:
        """The sentence of the worst notice."""
        told = [each.sentence for each in self.notices if self.is_off or each.severity == self.verdict]
        return told[0] if told else "Nothing was found."


class FleetVerdict(NamedTuple):
    """The fleet. The verdict is the worst of its hosts; a Slurm not asked, or no host at all, is unknown."""

    verdict: str
    slurm: SlurmView
    hosts: tuple[HostVerdict, ...]
    troubles: tuple[str, ...] = ()  # what kept the run from acting, sentences


def judge(reports: tuple[HostReport, ...], slurm: SlurmView, who: str | None) -> FleetVerdict:
    """Join reports and Slurm's nodes. Equal inputs give an equal verdict; `who` is the name our drains bear."""
    claims = collections.Counter(each.node for each in reports if not _is_elsewhere(each, slurm))
    names = collections.Counter(each.host for each in reports)
    used = [usable_report(each) for each in reports]
    known = drift.registry(slurm.table, claims, [each.mps for each in used if each is not None])
    hosts = tuple(_host(each, slurm, known, who, (names[each.host], claims[each.node])) for each in reports)
    verdicts = [each.verdict for each in hosts] or ["unknown"]
    return FleetVerdict(worst(verdicts if slurm.error is None else [*verdicts, "unknown"]), slurm, hosts)


def _host(given: HostReport, slurm: SlurmView, known: Registry, who: str | None, times: tuple[int, int]) -> HostVerdict:
    doubts = _elsewhere_notices(given, slurm) or _map_notices(given, *times)
    name = given.node if not doubts else None
    node = known.by_name.get(name) if name is not None else None
    is_off = node is not None and given.error is not None and obstacle(node.state, Step.CONTACT) is not None
    told = doubts or (_off_notices(given, node) if node is not None and is_off else _report_notices(given))
    if slurm.error is None and name is not None:
        is_clean = highest(told) == "ok" and not is_off
        told += drift.notices(given.host, name, known, usable_report(given), is_clean=is_clean)
    decision = _decide(given, slurm, node, who, is_mapped=name is not None)
    told.sort(key=lambda each: rank(each.severity))
    return HostVerdict(given.host, given.node, highest(told), tuple(told), decision, node, _audit(given, name), is_off)


def _audit(given: HostReport, name: str | None) -> Audit:
    report = usable_report(given) if name is not None else None
    if report is None:
        return Audit()
    cause = draining_finding(report)
    if cause is not None:
        return Audit(FAILING, cause[0].message, given.times, given.stamp)
    state = {"ok": WELL, "warn": WELL, "unknown": UNASKED}.get(report.verdict, UNWELL)
    return Audit(state, "", given.times, given.stamp)


def _is_elsewhere(given: HostReport, slurm: SlurmView) -> bool:
    return given.cluster is not None and slurm.cluster is not None and given.cluster != slurm.cluster


def _elsewhere_notices(given: HostReport, slurm: SlurmView) -> list[Notice]:
    """Say so of a host of another cluster, whose node names may be the same; then nothing of it is joined."""
    if not _is_elsewhere(given, slurm):
        return []
    sentence = (
        f"The inventory has this host in cluster {show(given.cluster)}, and slurmctld is {show(slurm.cluster)}'s."
    )
    fix = "Run the play once for each cluster (--limit), each with its own mps_slurm_cluster and mps_slurm_controller."
    return [Notice("unknown", sentence, fix)]


def _map_notices(given: HostReport, named: int, claimed: int) -> list[Notice]:
    """Say what is wrong with the inventory's own map; then the host is unknown and its report means nothing.

    `named`: how often the reports name the host; `claimed`: how many hosts claim its node.
    """
    if named > 1:
        return [Notice("unknown", "The reports name this host more than once.", "Run the audit again.")]
    found = drift_names.unmapped(given.node, claimed)
    return [] if found is None else [found.notice]


def usable_report(given: HostReport) -> Report | None:
    """Give the report that decisions may rest on: there, sound, without an error, and about the mapped node."""
    report = given.report
    return report if isinstance(report, Report) and given.error is None and report.node == given.node else None


def _report_notices(given: HostReport) -> list[Notice]:
    why = unusable(given)
    if why is not None:
        return [why]
    report = usable_report(given)
    return [] if report is None else [_notice(each) for each in report.findings if each.severity != "ok"]


def unusable(given: HostReport) -> Notice | None:
    """Say why nothing can be concluded from what was given of a host; None where there is a report to rely on."""
    again = "Audit the node again; look at how it is reached."
    if given.error is not None:
        return Notice("unknown", f"The node could not be asked: {show(given.error)}.", again)
    if given.report is None:
        return Notice("unknown", "There is no report of the node, and no error either.", again)
    if isinstance(given.report, Garbage):
        return Notice("unknown", f"The node's report is not used: {given.report.why}.", "Look at what runs there.")
    if given.report.node != given.node:
        sentence = f"The report is of a node that calls itself {show(given.report.node, 60)}, so it is not used."
        return Notice("unknown", sentence, "Set mps_slurm_node_name to the name in the node's node.toml.")
    return None


def _off_notices(given: HostReport, node: Node) -> list[Notice]:
    """Power saving, a reboot or a time to come explains the silence: nothing is known, and nobody is to look for it."""
    state, error = show(node.state.raw, 80), show(given.error)
    return [Notice(INFO, f"The node is off by Slurm's own doing (state {state}), so it was not heard: {error}.")]


def _notice(finding: Finding) -> Notice:
    """Show a finding; what to do about a known code is our own sentence and not the node's."""
    known = codes.BY_NAME.get(finding.code)
    remedy = known.remedy if known is not None else show(finding.remedy)
    return Notice(finding.severity, f"{show(finding.message, 400).rstrip('.')} [{show(finding.code, 60)}].", remedy)


def draining_finding(report: Report) -> tuple[Finding, int | None] | None:
    """Give the finding that drains, with its GPU's index: the first by the order of codes.py, then of the GPUs."""
    if all(each.severity != "critical" for each in report.findings):
        return None
    place = {code: number for number, code in enumerate(codes.BY_NAME)}
    causes = [
        (place[each.code], -1 if (gpu := gpu_of(each.subject, each.evidence)) is None else gpu, number, each)
        for number, each in enumerate(report.findings)
        if each.severity == "critical" and each.origin == "node" and each.code in place
        if codes.BY_NAME[each.code].drain
    ]
    if not causes:
        return None
    _, gpu, _, finding = min(causes, key=lambda each: each[:3])
    return finding, None if gpu < 0 else gpu


def _decide(given: HostReport, slurm: SlurmView, node: Node | None, who: str | None, *, is_mapped: bool) -> Decision:
    report = usable_report(given)
    if report is None or not is_mapped:
        return Decision(Action.NONE, "The node's own state is unknown, and unknown drains nothing.")
    cause = draining_finding(report)
    if cause is None:
        return Decision(Action.NONE, _why_not(report))
    if slurm.error is not None:
        return Decision(Action.NONE, "Slurm could not be asked, so nothing is drained.")
    if node is None:
        return Decision(Action.NONE, "slurmctld knows no such node, or its answer about it is not understood.")
    decided = drains.decide_drain(node, cause[0].code, cause[1], who)
    action = Action.DRAIN if decided.action is Action.DRAIN else Action.NONE
    return Decision(action, decided.why, decided.reason)


def _why_not(report: Report) -> str:
    critical = [each for each in report.findings if each.severity == "critical"]
    if not report.findings:
        return "Nothing was found on the node."
    if not critical:
        return "No finding is critical."
    if any(each.code not in codes.BY_NAME for each in critical):
        return "No critical finding of a code known here calls for a drain."
    if any(codes.BY_NAME[each.code].drain for each in critical):
        return "What was found can be a user's doing, and that drains no node by itself."
    return "What was found is reported and drains no node."


def view_of(cluster: str | Unreadable, table: NodeTable | Unreadable, wanted: str | None) -> SlurmView:
    """Put Slurm's answers together; a cluster other than the wanted one is not used."""
    nothing = NodeTable((), ())
    if isinstance(cluster, Unreadable):
        return SlurmView(None, nothing, cluster.reason)
    if wanted is not None and cluster != wanted:
        return SlurmView(cluster, nothing, f"This is cluster {show(cluster)} and not {show(wanted)}.")
    if isinstance(table, Unreadable):
        return SlurmView(cluster, nothing, table.reason)
    return SlurmView(cluster, table)
