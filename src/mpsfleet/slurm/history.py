"""`mpsfleet slurm history`: what the ledger knows of nodes, as lines for a person or as JSON of schema 1."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mpsfleet.show import show
from mpsfleet.slurm import ledger
from mpsfleet.slurm.lines import SCHEMA
from mpsfleet.slurm.policy import STRIKE_S

if TYPE_CHECKING:
    from mpsfleet.slurm.ledger import Entry, Event, Ledger

_WORDS = {
    ledger.DRAINED: "drained",
    ledger.FOUND: "found drained by mpsfleet, and taken over from Slurm",
    ledger.UNDRAINED: "given back",
    ledger.RELEASED: "no longer drained by mpsfleet: somebody else ended or changed the drain",
}


def text(kept: Ledger, nodes: tuple[str, ...], now: float) -> list[str]:
    """Give the lines of these nodes, or of all in the ledger; a node without an entry is said to have none."""
    lines: list[str] = []
    for name in nodes or sorted(kept.entries):
        entry = kept.entries.get(name)
        if entry is None:
            lines.append(f"{show(name)}: nothing is known of it")
            continue
        lines.append(f"{show(name)}: {_summary(entry, now)}")
        lines += [f"  {_line(each)}" for each in entry.events]
    return lines or ["nothing was drained yet"]


def _summary(entry: Entry, now: float) -> str:
    drains = len(entry.drains_since(now - STRIKE_S))
    parts = [f"{drains} {'drain' if drains == 1 else 'drains'} in the last 7 days"]
    if entry.failing:
        parts.append(f"failing in {_last(entry.failing)}")
    if entry.well:
        parts.append(f"well in {_last(entry.well)}")
    return "; ".join(parts)


def _last(times: int) -> str:
    return "its last audit" if times == 1 else f"its last {times} audits"


def _line(event: Event) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    reason = f" ({show(event.reason)})" if event.reason else ""
    by = ", by command" if event.by == "command" else ""
    return f"{when}  {_WORDS[event.what]}{reason}{by}" + (f": {show(event.words, 400)}" if event.words else "")


def as_json(kept: Ledger, nodes: tuple[str, ...], now: float) -> dict[str, object]:
    """Give the entries as one object; times are seconds since 1970."""
    named = nodes or tuple(sorted(kept.entries))
    return {"schema": SCHEMA, "cluster": show(kept.cluster), "nodes": [_node(kept, each, now) for each in named]}


def _node(kept: Ledger, name: str, now: float) -> dict[str, object]:
    entry = kept.entry(name)
    return {
        "node": show(name),
        "drains_in_week": len(entry.drains_since(now - STRIKE_S)),
        "failing": entry.failing,
        "well": entry.well,
        "events": [
            {
                "at": each.at,
                "what": each.what,
                "reason": show(each.reason),
                "words": show(each.words, 400),
                "by": each.by,
            }
            for each in entry.events
        ],
    }
