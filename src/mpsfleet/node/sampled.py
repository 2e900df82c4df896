"""What one audit leaves for the next about servers: which daemons' servers ended early, and which were in FAULT.

One audit cannot see a crash loop: it would have to wait. So each one notes the kernel's count of what a daemon's ended
children cost, in one small file of root's beside the locks, in /run, which no reboot outlives. It is written only when
something has changed: an idle daemon's audits write it once.
"""

from __future__ import annotations

import json
import os

from mpsfleet.errors import Refused
from mpsfleet.node.host import files, locks
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

FILE = "servers.json"
SCHEMA = 1
KEPT_S = 3600.0
_STRIKES = 3
_CAP = 65536


class Sample(NamedTuple):
    """One control daemon and its servers at one audit."""

    pid: int
    start: int
    ended: int  # grows with each child of the daemon's that ends (procfs.ended_children)
    serves: bool  # a server of it has come beyond its start
    in_fault: tuple[tuple[int, int], ...] = ()  # pid and start of its servers in FAULT
    alive: tuple[tuple[int, int], ...] = ()  # of all its servers


class Noted(NamedTuple):
    """What is kept of one control daemon."""

    pid: int
    start: int
    ended: int
    strikes: tuple[float, ...] = ()  # seconds since the epoch
    faults: tuple[tuple[int, int, float], ...] = ()  # pid and start of a server, and when it was last seen in FAULT


def follow(before: Noted | None, sample: Sample, now: float) -> Noted:
    """Return what to keep after a sample. Pure.

    A strike: since the last audit a server has ended, and none has come beyond its start now. A server that MPS takes
    away for another user's clients has a successor, and one whose clients have all ended stays.
    """
    if before is None or before.start != sample.start:
        before = Noted(sample.pid, sample.start, sample.ended)
    strikes = tuple(each for each in before.strikes if 0 <= now - each <= KEPT_S)
    if sample.serves:
        strikes = ()
    elif sample.ended > before.ended:
        strikes = (*strikes, now)[-_STRIKES:]
    faults = {each[:2]: each[2] for each in before.faults if each[:2] in sample.alive and 0 <= now - each[2] <= KEPT_S}
    faults.update(dict.fromkeys(sample.in_fault, now))
    return Noted(sample.pid, sample.start, sample.ended, strikes, tuple((*key, when) for key, when in faults.items()))


def sampled(host: Host, samples: tuple[Sample, ...], unasked: frozenset[int], now: float) -> tuple[Noted, ...]:
    """Note the samples and return what is kept of each; of `unasked` daemons (by pid) all stays as it was."""
    before = {each.pid: each for each in _read(host)}
    kept = tuple(follow(before.get(each.pid), each, now) for each in samples)
    left = tuple(each for pid, each in before.items() if pid in unasked)
    if {each.pid: each for each in (*kept, *left)} != before:
        _write(host, (*kept, *left))
    return kept


def _read(host: Host) -> tuple[Noted, ...]:
    """Return what the last audit left; nothing where that is no plain file of ours (nothing is lost but time)."""
    try:
        values = json.loads(files.read(host.path(f"{locks.STATE}/{FILE}"), _CAP))
        if values["schema"] != SCHEMA:
            return ()
        return tuple(
            Noted(
                int(pid),
                int(start),
                int(ended),
                tuple(float(each) for each in strikes),
                tuple((int(server), int(began), float(when)) for server, began, when in faults),
            )
            for pid, start, ended, strikes, faults in values["daemons"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _write(host: Host, noted: tuple[Noted, ...]) -> None:
    content = json.dumps({"schema": SCHEMA, "daemons": noted}).encode()
    try:
        files.publish(os.path.join(locks.state_directory(host), FILE), content, 0o600)
    except (OSError, Refused):  # a read-only /run: the next audit begins anew
        return
