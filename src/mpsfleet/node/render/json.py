"""Reports and outcomes as JSON, schema 1. One line; ASCII only."""

from __future__ import annotations

import json

from mpsfleet import __version__
from mpsfleet.node.model import SCHEMA, Finding, Outcome, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def report(value: Report) -> str:
    """Return a report as one line of JSON."""
    return json.dumps(report_object(value), separators=(",", ":"))


def report_object(value: Report) -> dict[str, Any]:
    """Return a report as a JSON object."""
    return {
        "schema": SCHEMA,
        "verdict": value.verdict,
        "node": value.node,
        "program": __version__,
        "findings": [_finding(each) for each in value.findings],
        "mps": None if value.mps is None else value.mps._asdict(),
    }


def _finding(value: Finding) -> dict[str, Any]:
    return {**value._asdict(), "evidence": dict(value.evidence)}


def outcome(value: Outcome) -> str:
    """Return what an acting verb did as one line of JSON."""
    document = {
        "schema": SCHEMA,
        "verb": value.verb,
        "node": value.node,
        "dry_run": value.dry_run,
        "changed": any(each.action != "leave" for each in value.changes),
        "changes": [each._asdict() for each in value.changes],
        "refused": value.refused,
        "waiting": list(value.waiting),
        "failed": value.failed,
        "skipped": value.skipped,
        "messages": list(value.messages),
        "report": None if value.report is None else report_object(value.report),
    }
    return json.dumps(document, separators=(",", ":"))
