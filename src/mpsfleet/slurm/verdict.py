"""The fleet's verdict: what the nodes report, joined with what Slurm believes, and which nodes are to be drained.

Pure. A drain follows only from a critical finding whose code drains (codes.py) and whose origin is the node; from a
report whose own name is the node's; on a node that Slurm knows and that may be drained. Unknown drains nothing: not a
host without a report, not garbage, not a Slurm that could not be asked.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple, Optional, Tuple, Union

from mpsfleet import codes
from mpsfleet.codes import SEVERITIES
from mpsfleet.slurm import drains, nodes
from mpsfleet.slurm.commands import Unreadable
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.gres import count_of
from mpsfleet.slurm.nodes import Node, NodeTable
from mpsfleet.slurm.reasons import MOST_GPU, DrainReason
from mpsfleet.slurm.reports import Finding, Garbage, HostReport, Report
from mpsfleet.slurm.show import show

INFO = "info"  # a line for a person that does not count in the verdict
_GPU = re.compile(r"gpu ?([0-9]{1,3})\b", re.IGNORECASE)
_INDEX = re.compile(r"[0-9]{1,3}")


class SlurmView(NamedTuple):
    """What Slurm answered, once for the whole fleet; `error` says why it cannot be used."""

    cluster: Optional[str]
    table: NodeTable
    error: Optional[str] = None


class Notice(NamedTuple):
    """One sentence about a host; `severity` is one of codes.SEVERITIES or INFO."""

    severity: str
    sentence: str
    remedy: str = ""


class Decision(NamedTuple):
    """What is to be done to the host's node, why, and whether it was done."""

    action: Action  # DRAIN or NONE
    why: str
    reason: Optional[DrainReason] = None
    done: bool = False


class HostVerdict(NamedTuple):
    """One host: how it is, what is to be said, and what is to be done."""

    host: str
    node: Optional[str]
    verdict: str
    notices: Tuple[Notice, ...]
    decision: Decision
    slurm: Optional[Node] = None

    @property
    def message(self) -> str:
        """The sentence of the worst notice."""
        worst = [each.sentence for each in self.notices if each.severity == self.verdict]
        return worst[0] if worst else "Nothing was found."


class FleetVerdict(NamedTuple):
    """The fleet. The verdict is the worst of its hosts; a Slurm not asked, or no host at all, is unknown."""

    verdict: str
    slurm: SlurmView
    hosts: Tuple[HostVerdict, ...]


def judge(reports: tuple[HostReport, ...], slurm: SlurmView, who: str | None) -> FleetVerdict:
    """Join reports and Slurm's nodes. Equal inputs give an equal verdict; `who` is the name our drains bear."""
    claims: dict[str, list[str]] = {}
    for each in reports:
        claims.setdefault(each.node or "", []).append(each.host)
    names = [each.host for each in reports]
    twice = {each for each in names if names.count(each) > 1} if len(set(names)) < len(names) else set()
    hosts = tuple(_host(each, slurm, who, claims[each.node or ""], each.host in twice) for each in reports)
    worst = [each.verdict for each in hosts] or ["unknown"]
    if slurm.error is not None:
        worst.append("unknown")
    return FleetVerdict(highest(worst), slurm, hosts)


def highest(severities: list[str]) -> str:
    """Give the worst severity; INFO does not count."""
    return max((each for each in severities if each != INFO), key=SEVERITIES.index, default="ok")


def _host(
    given: HostReport, slurm: SlurmView, who: str | None, claimants: list[str], is_twice: bool
) -> HostVerdict:
    notices = list(_map_notices(given, claimants, is_twice))
    is_mapped = not notices
    notices += _report_notices(given)
    node = slurm.table.node(given.node) if is_mapped and given.node is not None else None
    if slurm.error is None and is_mapped and given.node is not None:
        notices += _drift(given.host, given.node, slurm.table, is_clean=highest([n.severity for n in notices]) == "ok")
    decision = _decide(given, slurm, node, who, is_mapped)
    notices.sort(key=lambda each: -SEVERITIES.index(each.severity) if each.severity != INFO else 1)
    verdict = highest([each.severity for each in notices])
    return HostVerdict(given.host, given.node, verdict, tuple(notices), decision, node)


def _map_notices(given: HostReport, claimants: list[str], is_twice: bool) -> list[Notice]:
    """Say what is wrong with the inventory's own map; then the host is unknown and its report means nothing."""
    fix = "Set mps_slurm_node_name for each host in the inventory."
    if is_twice:
        return [Notice("unknown", "The reports name this host more than once.", "Run the audit again.")]
    if given.node is None:
        return [Notice("unknown", "The inventory gives this host no Slurm node name.", fix)]
    if not nodes.is_literal(given.node):
        return [Notice("unknown", f"{show(given.node)} is not the literal name of one Slurm node.", fix)]
    if len(claimants) > 1:
        return [Notice("unknown", f"{len(claimants)} inventory hosts claim the Slurm node {given.node}.", fix)]
    return []


def usable_report(given: HostReport) -> Report | None:
    """Give the report that decisions may rest on: there, sound, without an error, and about the mapped node."""
    report = given.report
    return report if isinstance(report, Report) and given.error is None and report.node == given.node else None


def _report_notices(given: HostReport) -> list[Notice]:
    again = "Audit the node again; look at how it is reached."
    if given.error is not None:
        return [Notice("unknown", f"The node could not be asked: {show(given.error)}.", again)]
    if given.report is None:
        return [Notice("unknown", "There is no report of the node, and no error either.", again)]
    if isinstance(given.report, Garbage):
        return [Notice("unknown", f"The node's report is not used: {given.report.why}.", "Look at what runs there.")]
    if given.report.node != given.node:
        sentence = f"The report is of a node that calls itself {show(given.report.node, 60)}, so it is not used."
        return [Notice("unknown", sentence, "Set mps_slurm_node_name to the name in the node's node.toml.")]
    return [_notice(each) for each in given.report.findings if each.severity != "ok"]


def _notice(finding: Finding) -> Notice:
    """Show a finding; what to do about a known code is our own sentence and not the node's."""
    known = codes.BY_NAME.get(finding.code)
    remedy = known.remedy if known is not None else show(finding.remedy)
    return Notice(finding.severity, f"{show(finding.message)} [{show(finding.code, 60)}]", remedy)


def _drift(host: str, name: str, table: NodeTable, *, is_clean: bool) -> list[Notice]:
    """Compare the map and Slurm's registration: the node is known, readable, and has something that MPS serves."""
    node = table.node(name)
    if node is None:
        problem = table.problem(name)
        if problem is not None:
            return [Notice("unknown", f"Slurm's answer about the node is not used: {problem.sentence}.")]
        near = _nearest(host, name, table)
        hint = f" (perhaps {near})" if near else ""
        return [Notice("unknown", f"slurmctld knows no node {name}.", f"Set mps_slurm_node_name of {host}{hint}.")]
    found: list[Notice] = []
    has_mps, has_shard = count_of(node.gres, "mps"), count_of(node.gres, "shard")
    if not has_mps and not has_shard:
        sentence = "Slurm gives the node no gres/mps and no gres/shard, so no job can ask it for MPS."
        found.append(Notice("warn", sentence, "Add mps to the node's Gres in slurm.conf and gres.conf."))
    elif not has_mps:
        found.append(Notice(INFO, "Slurm gives the node gres/shard and no gres/mps."))
    if is_clean and drains.our_reason(node) is not None:
        left = f"Nothing was found, and the node is still drained by mpsfleet ({drains.our_reason(node)})."
        found.append(Notice(INFO, left, "Give it back with `mpsfleet slurm undrain NODE`."))
    return found


def _nearest(host: str, name: str, table: NodeTable) -> str | None:
    """Guess which Slurm node an inventory host is: by the host name slurmd runs under, else by likeness."""
    short = {host, name, host.split(".")[0]}
    for node in table.nodes:
        if short & {node.hostname, node.address, (node.hostname or "").split(".")[0] or None}:
            return node.name
    return next(iter(difflib.get_close_matches(name, [each.name for each in table.nodes], 1)), None)


def draining_finding(report: Report) -> tuple[Finding, int | None] | None:
    """Give the finding that drains, with its GPU's index: the first by the order of codes.py, then of the GPUs."""
    place = {code: number for number, code in enumerate(codes.BY_NAME)}
    causes = [
        (place[each.code], -1 if (gpu := _gpu(each)) is None else gpu, number, each)
        for number, each in enumerate(report.findings)
        if each.severity == "critical" and each.origin == "node" and each.code in place
        if codes.BY_NAME[each.code].drain
    ]
    if not causes:
        return None
    _, gpu, _, finding = min(causes, key=lambda each: each[:3])
    return finding, None if gpu < 0 else gpu


def _gpu(finding: Finding) -> int | None:
    """Read the GPU's index from the subject ("gpu 2") or the evidence; anything else names none."""
    match = _GPU.match(finding.subject)
    words = [match.group(1)] if match else [value for key, value in finding.evidence if key in ("gpu", "index")]
    numbers = [int(each) for each in words if _INDEX.fullmatch(each)]
    return numbers[0] if numbers and numbers[0] <= MOST_GPU else None


def _decide(
    given: HostReport, slurm: SlurmView, node: Node | None, who: str | None, is_mapped: bool
) -> Decision:
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


def view_of(cluster: Union[str, Unreadable], table: Union[NodeTable, Unreadable], wanted: str | None) -> SlurmView:
    """Put Slurm's answers together; a cluster other than the wanted one is not used."""
    nothing = NodeTable((), ())
    if isinstance(cluster, Unreadable):
        return SlurmView(None, nothing, cluster.reason)
    if wanted is not None and cluster != wanted:
        return SlurmView(cluster, nothing, f"This is cluster {show(cluster)} and not {show(wanted)}.")
    if isinstance(table, Unreadable):
        return SlurmView(cluster, nothing, table.reason)
    return SlurmView(cluster, table)
