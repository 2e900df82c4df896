"""The hosts' reports as the nodes published them in Slurm, for a controller that asks no node. Pure.

Each node with GPUs is a host of its own name. What it published is as old as it says: a node that fell silent is
unknown after a while, and one whose clock is ahead is unknown at once, since its age cannot be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet import codes
from mpsfleet.slurm import publication
from mpsfleet.slurm.reports import Finding, HostReport, Report
from mpsfleet.slurm.states import Base

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node, NodeTable
    from mpsfleet.slurm.publication import Entry, Publication

OLDEST_S = 8 * 3600  # a steady node publishes anew within 6.5 hours
AHEAD_S = 600
_GPU_GRES = ("gpu", "mps", "shard")
_PROGRAM = "published"


def reports(table: NodeTable, now: float) -> tuple[HostReport, ...]:
    """Give a report for each node with GPUs that is in service by plan, and for each that could not be read."""
    unread = [each.node for each in table.problems if each.node is not None]
    told = tuple(_report(each, now) for each in table.nodes if _is_expected(each))
    return (*told, *(HostReport(name, name, None, "slurmctld's answer about it is not understood") for name in unread))


def _is_expected(node: Node) -> bool:
    """Tell whether the node should be publishing: one that power saving has off, or that is not there yet, is not."""
    has_gpus = any(each.name in _GPU_GRES for each in node.gres)
    return has_gpus and not node.state.is_power and node.state.base is not Base.FUTURE


def _report(node: Node, now: float) -> HostReport:
    found = next((each for each in map(_parsed, (node.extra, node.comment)) if each is not None), None)
    if found is None:
        error = "it has published nothing in its Extra or Comment in Slurm (see HealthCheckProgram)"
        return HostReport(node.name, node.name, None, error)
    age_s = now - found.time
    if age_s > OLDEST_S:
        error = f"what it published is {age_s / 3600:.0f} hours old (see HealthCheckProgram)"
        return HostReport(node.name, node.name, None, error)
    if age_s < -AHEAD_S:
        error = f"what it published is of {-age_s / 60:.0f} minutes from now: one of the two clocks is wrong"
        return HostReport(node.name, node.name, None, error)
    findings = tuple(_finding(each) for each in found.entries)
    report = Report(node.name, found.verdict, _PROGRAM, findings)
    return HostReport(node.name, node.name, report, times=found.seen, stamp=found.time)


def _parsed(text: str | None) -> Publication | None:
    return None if text is None else publication.parse(text)


def _finding(entry: Entry) -> Finding:
    """Give the finding that an entry stands for; its sentence is the code's meaning, as the node's own is not told."""
    code = codes.BY_NAME.get(entry.code)
    about = "" if entry.gpu is None else f"GPU {entry.gpu}: "
    meaning = code.meaning if code is not None else "A finding of another version of the program."
    remedy = code.remedy if code is not None else "Audit the node: `mpsfleet node audit`."
    subject = "" if entry.gpu is None else f"gpu {entry.gpu}"
    return Finding(entry.code, entry.severity, subject, f"{about}{meaning}", entry.origin, (), remedy)
