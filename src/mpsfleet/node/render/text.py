"""Reports and outcomes as text: the verdict, then one sentence a finding, and what to do."""

from __future__ import annotations

from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.model import Change, Outcome, Report


def report(value: Report) -> str:
    """Return a report for a person, most severe finding first."""
    lines = [f"{show(value.node)}: {value.verdict}"]
    for each in value.findings:
        lines.append(f"  {each.severity}: {each.code}: {each.message}")
        if each.evidence:
            lines.append(f"    seen: {', '.join(f'{key} {value}' for key, value in each.evidence)}")
        lines.append(f"    to do: {each.remedy}")
    return "\n".join(lines)


def outcome(value: Outcome) -> str:
    """Return what an acting verb did, or would do, for a person."""
    lines = []
    for each in value.changes:
        done = "would " if value.dry_run else ""
        lines.append(f"{done}{change(each)}")
    lines += [show(each, 400) for each in value.messages]
    if value.refused:
        what = "refused" if value.changes else "refused, nothing was changed"
        lines.append(f"{what}: {show(value.refused, 400)}")
    elif value.failed:
        lines.append(f"failed: {show(value.failed, 400)}")
    elif value.skipped:
        lines.append(show(value.skipped, 400))
    elif not value.changes:
        lines.append(f"nothing to {value.verb}: the node is as it should be")
    if value.report is not None:
        lines.append(report(value.report))
    return "\n".join(lines)


def change(value: Change) -> str:
    """Return one change as a line."""
    return f"{show(value.action)} {show(value.what)}: {show(value.detail, 300)}"
