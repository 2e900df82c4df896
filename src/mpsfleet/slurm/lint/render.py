"""Findings and wanted lines as text for a person, `FILE:LINE: …`, or as JSON of schema 1."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mpsfleet.show import show
from mpsfleet.slurm.hostlist import compact
from mpsfleet.slurm.lint import wanted
from mpsfleet.slurm.lint.findings import SEVERITIES, Finding, verdict

if TYPE_CHECKING:
    from mpsfleet.slurm.lint.gres_conf import GresConf
    from mpsfleet.slurm.lint.slurm_conf import SlurmConf
    from mpsfleet.slurm.lint.told import Told

SCHEMA = 1
MOST_FINDINGS = 500  # printed; a file that is no slurm.conf has one for each line
_WORDS = {"ok": "note", "warn": "warning", "unknown": "unknown", "critical": "critical"}
_MESSAGE = 400


def lines(
    told: tuple[Told, ...], findings: tuple[Finding, ...], changed: tuple[wanted.Change, ...] | None
) -> list[str]:
    """Give a line for each finding, the worst first, then the wanted lines, then a line that sums up."""
    rows = [_line(each) for each in findings[:MOST_FINDINGS]]
    if len(findings) > MOST_FINDINGS:
        rows.append(f"{len(findings) - MOST_FINDINGS} further findings are not shown.")
    if changed is not None:
        rows += ["", *_wanted(changed), ""]
    counts = Counter(each.severity for each in findings)
    found = (
        ", ".join(f"{counts[each]} {_WORDS[each]}" for each in reversed(SEVERITIES) if counts[each]) or "no findings"
    )
    return [*rows, f"{sum(len(each.names) for each in told)} node(s): {found}; verdict {verdict(findings)}."]


def _line(finding: Finding) -> str:
    where = f"{show(finding.place.file)}:{finding.place.line}" if finding.place.line else show(finding.place.file)
    nodes = f" ({show(compact(finding.nodes))})" if finding.nodes else ""
    message = show(finding.message, _MESSAGE)
    return f"{where}: {_WORDS[finding.severity]}: {message}{nodes}. {finding.remedy} [{finding.code}]"


def _wanted(changed: tuple[wanted.Change, ...]) -> list[str]:
    if not changed:
        return ["slurm.conf is as wanted; no line is to be changed."]
    told = [show(each, 2 * _MESSAGE) for each in wanted.as_diff(changed).split("\n")]
    return [
        "Lines of slurm.conf for its owner to change:",
        *told,
        "In this order, so that no node is drained:",
        *wanted.ORDER,
    ]


def as_json(
    conf: SlurmConf,
    gres: GresConf | None,
    told: tuple[Told, ...],
    findings: tuple[Finding, ...],
    changed: tuple[wanted.Change, ...] | None,
) -> dict[str, object]:
    """Give all as one object; `changes` is null where nothing was wanted."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(findings),
        "slurm_conf": show(conf.path),
        "gres_conf": show(gres.path) if gres else None,
        "nodes": sum(len(each.names) for each in told),
        "findings": [_object(each) for each in findings[:MOST_FINDINGS]],
        "changes": None if changed is None else [_change(each) for each in changed],
        "order": [] if not changed else list(wanted.ORDER),
        "lines": lines(told, findings, changed),
    }


def _object(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "file": show(finding.place.file),
        "line": finding.place.line or None,
        "nodes": show(compact(finding.nodes)),
        "message": show(finding.message, _MESSAGE),
        "remedy": finding.remedy,
    }


def _change(change: wanted.Change) -> dict[str, object]:
    return {
        "file": show(change.place.file) if change.place else None,
        "line": change.place.line if change.place else None,
        "before": show(change.before, 2 * _MESSAGE),
        "after": show(change.after, 2 * _MESSAGE),
    }
