"""The ledger: what mpsfleet drained and gave back, when and why, and how often in a row each node was found failing.

Values and their JSON; `ledger_file` keeps them. Slurm's own reasons stay the truth about which nodes are drained: what
the ledger lacks is taken from them (`reconciled`), so that a lost ledger costs the counts and nothing else.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import codes
from mpsfleet.show import show
from mpsfleet.slurm import reasons
from mpsfleet.slurm.drains import our_reason
from mpsfleet.slurm.names import is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.reasons import DrainReason

SCHEMA = 1
DRAINED, FOUND, UNDRAINED, RELEASED = "drained", "found", "undrained", "released"
WHATS = (DRAINED, FOUND, UNDRAINED, RELEASED)
BYS = ("verdict", "command", "slurm")
MOST_EVENTS = 50  # of one node; the oldest are dropped
MOST_NODES = 20_000
MOST_TIMES = 10_000
_WORDS = 400  # characters of evidence
_LATEST = 4_102_444_800.0  # 2100-01-01: a time beyond it is no time of ours
_WORD = re.compile(r"[a-z][a-z0-9-]{0,63}")


class LedgerError(ValueError):
    """What the ledger's file holds is no ledger; a clause that says how."""


class Event(NamedTuple):
    """Something that became of a node. FOUND: the drain was there and not in the ledger. RELEASED: others ended it."""

    at: float  # seconds since 1970
    what: str  # of WHATS
    reason: str  # the whole reason in Slurm, "" where there is none
    words: str = ""  # the evidence: the finding's sentence
    by: str = "verdict"  # of BYS


class Entry(NamedTuple):
    """What is known of one node. A count in a row ends with the first audit that says otherwise."""

    failing: int = 0  # audits in a row with a finding that drains
    well: int = 0  # audits in a row without anything critical or unknown, while the node is drained by us
    at: float = 0.0  # of the last audit that counted
    stamp: int = 0  # of the last publication that counted, so that none counts twice; 0 for none
    overruled: bool = False  # others ended or changed our drain, and no audit since has found the node well
    events: tuple[Event, ...] = ()

    @property
    def is_empty(self) -> bool:
        """There is nothing to keep."""
        return not (self.failing or self.well or self.events)

    @property
    def is_drained(self) -> bool:
        """By the ledger, the node is drained by us."""
        return bool(self.events) and self.events[-1].what in (DRAINED, FOUND)

    def with_event(self, event: Event) -> Entry:
        """Give the entry with one more event; both counts begin anew."""
        events = (*self.events, event)[-MOST_EVENTS:]
        return self._replace(failing=0, well=0, overruled=event.what == RELEASED, events=events)

    def drains_since(self, then: float) -> tuple[Event, ...]:
        """Give the drains for a finding at or after a time. A reset's drain, which a person asks for, is none."""
        return tuple(
            each
            for each in self.events
            if each.what in (DRAINED, FOUND) and each.at >= then and not _is_of_a_reset(each.reason)
        )


class Ledger(NamedTuple):
    """The entries by node name. `cluster` is the cluster whose nodes they are."""

    cluster: str
    entries: Mapping[str, Entry] = {}

    def entry(self, node: str) -> Entry:
        """Give a node's entry, an empty one where there is none."""
        return self.entries.get(node, Entry())

    def with_entries(self, changed: Mapping[str, Entry]) -> Ledger:
        """Give the ledger with some entries replaced; empty ones are dropped."""
        merged = {**self.entries, **changed}
        return self._replace(entries={name: each for name, each in merged.items() if not each.is_empty})


def reconciled(ledger: Ledger, nodes: Iterable[Node], now: float, since: Mapping[str, float]) -> Ledger:
    """Give the ledger as Slurm's own reasons have it; `since`: when each node's reason was set, where that is known.

    A drain of ours that is not in the ledger is FOUND; one that is in it and no longer in Slurm was RELEASED by others.
    Slurm (24.11 without accounting) leaves a reason where a person resumes the node, and puts none of its own over it
    when it drains the node later: such a reason is older than the end of our drain, and the drain is not ours.
    A node that slurmctld does not name is left as it is: its record may just not have been readable.
    """
    changed: dict[str, Entry] = {}
    for node in nodes:
        ours, entry = our_reason(node), ledger.entry(node.name)
        text = node.reason.text if node.reason is not None else ""
        if ours is not None and not entry.is_drained:
            at = min(since.get(node.name, now), now)
            if entry.events and at < entry.events[-1].at:
                continue  # a drain of others that bears the reason of one of ours that is over
            changed[node.name] = entry.with_event(Event(at, FOUND, text, by="slurm"))
        elif ours is None and entry.is_drained:
            changed[node.name] = entry.with_event(Event(now, RELEASED, show(text), by="slurm"))
    return ledger.with_entries(changed)


def noted(ledger: Ledger, node: str, what: str, reason: DrainReason | None, event: tuple[float, str, str]) -> Ledger:
    """Give the ledger with what was done to a node; `event`: when, the evidence, and by which way."""
    at, words, by = event
    made = Event(at, what, "" if reason is None else str(reason), show(words, _WORDS), by)
    return ledger.with_entries({node: ledger.entry(node).with_event(made)})


def _is_of_a_reset(reason: str) -> bool:
    parsed = reasons.parse(reason)
    return parsed is not None and parsed.code == codes.RESET


def to_text(ledger: Ledger) -> str:
    """Give the ledger as one JSON object."""
    nodes = {name: _entry_json(each) for name, each in sorted(ledger.entries.items())}
    return json.dumps({"schema": SCHEMA, "cluster": ledger.cluster, "nodes": nodes}, separators=(",", ":"))


def _entry_json(entry: Entry) -> dict[str, object]:
    events = [[each.at, each.what, each.reason, each.words, each.by] for each in entry.events]
    return {**entry._asdict(), "events": events}


def from_text(text: str) -> Ledger:
    """Read what `to_text` wrote. Raises LedgerError for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise LedgerError("it is not JSON") from None
    if not isinstance(value, dict) or set(value) != {"schema", "cluster", "nodes"} or value["schema"] != SCHEMA:
        raise LedgerError(f"it is not a ledger of schema {SCHEMA}")
    cluster, nodes = value["cluster"], value["nodes"]
    if not isinstance(cluster, str) or not isinstance(nodes, dict) or len(nodes) > MOST_NODES:
        raise LedgerError("a member has the wrong type or size")
    return Ledger(cluster, {_name(name): _entry(name, each) for name, each in nodes.items()})


def _name(name: str) -> str:
    if not is_literal(name):
        raise LedgerError(f"{show(name, 60)} is no node's name")
    return name


def _entry(name: str, value: object) -> Entry:
    if not isinstance(value, dict) or set(value) != set(Entry._fields):
        raise LedgerError(f"the entry of {name} has not the members of one")
    counts = [value[key] for key in ("failing", "well", "stamp")]
    is_sound = all(type(each) is int and each >= 0 for each in counts) and isinstance(value["overruled"], bool)
    if not is_sound or not isinstance(value["events"], list):
        raise LedgerError(f"the entry of {name} has a member of the wrong type")
    events = tuple(_event(name, each) for each in value["events"][-MOST_EVENTS:])
    failing, well, stamp = counts
    at, overruled = _time(name, value["at"]), bool(value["overruled"])
    return Entry(min(failing, MOST_TIMES), min(well, MOST_TIMES), at, stamp, overruled, events)


def _event(name: str, value: object) -> Event:
    if not isinstance(value, list) or len(value) != len(Event._fields):
        raise LedgerError(f"an event of {name} has not the parts of one")
    at, *texts = value
    if not all(isinstance(each, str) for each in texts) or texts[0] not in WHATS or texts[3] not in BYS:
        raise LedgerError(f"an event of {name} is none that is known")
    return Event(_time(name, at), *texts)


def _time(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LATEST:
        raise LedgerError(f"a time of {name} is none")
    return float(value)
