"""Judge the kernel log's fatal events. By itself it is a hint: only what nvidia-smi confirms is the node's fault."""

from __future__ import annotations

from mpsfleet.node.gpu_facts import bus_of
from mpsfleet.node.judge.gpus import subject_of, trouble
from mpsfleet.node.kernel_facts import MEANINGS, Event
from mpsfleet.node.model import Finding, Unreadable, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts, Gpu

_SUBJECT = "kernel log"


def judge(facts: Facts, _desired: Desired) -> tuple[Finding, ...]:
    """Return a finding for each GPU with fatal events that nobody has acknowledged."""
    log = facts.kernel
    if log is None:
        return ()
    if isinstance(log, Unreadable):
        message = f"whether the driver logged a fatal error is not known: {log.reason}"
        return (finding("probe-failed", _SUBJECT, message),)
    buses = tuple(dict.fromkeys(each.bus for each in log.events))
    found = [_of_gpu(facts, bus, tuple(each for each in log.events if each.bus == bus)) for bus in buses]
    if not log.complete:
        message = "the kernel log was not read to its end in time: it grows faster than it is read"
        found.append(finding("probe-failed", _SUBJECT, message))
    return tuple(found)


def _of_gpu(facts: Facts, bus: str, events: tuple[Event, ...]) -> Finding:
    card = next((each for each in _cards(facts) if bus and bus_of(each.bus_id) == bus), None)
    row = next((each for each in facts.gpus.gpus if bus and _is_at(each, bus, card)), None)
    subject, named = _name(bus, row, card)
    what = ", ".join(describe(each) for each in events)
    last = max(events, key=lambda each: each.sequence)
    confirmed = _confirmed(facts, bus, row)
    if confirmed:
        message = f"the kernel log has {what} of {named}, which nvidia-smi confirms: it {confirmed}"
        return finding("gpu-xid", subject, message, bus=bus, records=_records(events), text=last.text)
    shows = "which nvidia-smi shows as well" if row is not None else "of which nvidia-smi tells nothing"
    message = f"the kernel log has {what} of {named}, {shows}; when it is seen to, run `mpsfleet node acknowledge`"
    return finding("gpu-xid-logged", subject, message, bus=bus, records=_records(events), text=last.text)


def describe(event: Event) -> str:
    """Return an event in words."""
    if not event.xid:
        return "a fatal error of the driver's unified memory (a reboot is asked for)"
    meaning = MEANINGS.get(event.xid, "")
    return f"Xid {event.xid} ({meaning})" if meaning else f"Xid {event.xid}"


def _records(events: tuple[Event, ...]) -> int:
    return sum(each.records for each in events)


def _cards(facts: Facts) -> tuple[Card, ...]:
    return () if facts.cards is None or isinstance(facts.cards, Unreadable) else facts.cards


def _is_at(row: Gpu, bus: str, card: Card | None) -> bool:
    """Tell whether a row is the GPU at a bus id; where the row has a token in its place, by the record's UUID."""
    return bus_of(row.bus_id) == bus or (card is not None and row.uuid == card.uuid)


def _name(bus: str, row: Gpu | None, card: Card | None) -> tuple[str, str]:
    """Return subject and name of the GPU at a bus id, by nvidia-smi or else by the record of the deploy."""
    if not bus:
        return "GPUs", "all GPUs"
    if row is not None:
        return subject_of(row), f"GPU {show(row.number, 8)}"
    return (f"GPU {bus}", f"the GPU at {bus}") if card is None else (f"gpu{card.index}", f"GPU {card.index}")


def _confirmed(facts: Facts, bus: str, row: Gpu | None) -> str:
    """Return how nvidia-smi confirms that a GPU of this node is in trouble; "" where it does not."""
    gpus = facts.gpus
    if row is not None:
        code, clause = trouble(row)
        return clause if code else ""
    if not bus or not _is_of_this_node(facts, bus):
        return ""
    if gpus.outcome == "timeout" and gpus.state == "D":
        return "hangs in the driver"
    return "is not shown" if gpus.outcome in ("ok", "none-found") else ""


def _is_of_this_node(facts: Facts, bus: str) -> bool:
    """Tell whether the driver, or the record of the deploy, knows a GPU at this bus id."""
    log = facts.kernel
    known = log.buses if log is not None and not isinstance(log, Unreadable) else ()
    return bus in known or any(bus_of(each.bus_id) == bus for each in _cards(facts))
