"""A report for Nagios, Icinga, Naemon or NRPE: one line with performance data, then a line a finding.

The form is that of the Monitoring Plugins: `MPS STATUS - sentence | label=value;warn;crit;min`. Labels are of a closed
set and values are numbers of our own, so that nothing a user can name makes a new time series. What the text itself
may not hold is the bar, which begins the performance data.
"""

from __future__ import annotations

from mpsfleet.node.model import Answers, Facts, Unreadable
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.model import Report

STATUS = {"ok": "OK", "warn": "WARNING", "critical": "CRITICAL", "unknown": "UNKNOWN"}
_MOST_LINES = 32  # of the long output; Nagios itself keeps some 8 kB
_UNDETERMINED = "U"


def report(value: Report, facts: Facts | None, seconds: float) -> str:
    """Return a report of one node; `facts` are None where there was nothing to judge against."""
    lines = [f"MPS {STATUS[value.verdict]} - {_plain(_sentence(value, facts))} | {performance(facts, seconds)}"]
    lines += [_plain(f"{each.severity}: {each.message} [{each.code}]") for each in value.findings[:_MOST_LINES]]
    if len(value.findings) > _MOST_LINES:
        lines.append(f"and {len(value.findings) - _MOST_LINES} more")
    return "\n".join(lines)


def failure(sentence: str) -> str:
    """Return what is said where the node could not be asked at all."""
    return f"MPS {STATUS['unknown']} - {_plain(show(sentence, 400))}"


def performance(facts: Facts | None, seconds: float) -> str:
    """Return the performance data: `U` where a number could not be had."""
    counts: dict[str, int | None] = {"daemons": None, "servers": None, "gpus": None}
    if facts is not None:
        said = [each.said for each in facts.instances]
        counts = {
            "daemons": None if isinstance(facts.daemons, Unreadable) else len(facts.daemons),
            "servers": sum(len(each.servers) for each in said if isinstance(each, Answers))
            if all(isinstance(each, Answers) for each in said)
            else None,
            "gpus": len(facts.gpus.gpus) if facts.gpus.outcome in ("ok", "none-found") else None,
        }
    words = [f"{label}={_UNDETERMINED if count is None else count};;;0" for label, count in counts.items()]
    return " ".join((*words, f"seconds={seconds:.3f}s;;;0"))


def _sentence(value: Report, facts: Facts | None) -> str:
    if value.findings:
        more = len(value.findings) - 1
        first = value.findings[0]
        return f"{first.message} [{first.code}]{f' and {more} more' if more else ''}"
    count = 0 if facts is None or isinstance(facts.daemons, Unreadable) else len(facts.daemons)
    return f"{count} control {'daemon' if count == 1 else 'daemons'}, as it should be"


def _plain(text: str) -> str:
    return text.replace("|", "/")
