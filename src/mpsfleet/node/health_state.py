"""What the health check remembers from one run to the next: /run/mpsfleet/health.json, which only root reads.

A file that is not as it was written, or not root's, is as none: the count begins anew, and what was found is published
once more.
"""

from __future__ import annotations

import json
import os

from mpsfleet.node.host import files, locks
from mpsfleet.slurm import publication
from mpsfleet.slurm.publication import Entry, Publication
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

STATE = f"{locks.STATE}/health.json"
REPORT = f"{locks.STATE}/report.json"
REFRESH_S = 6 * 3600
_JITTER_S = 1800  # of the above, by the node's name
_CAP = 65536
_MODE = 0o600
_STEADY = 3  # this many equal health checks are published one by one


class State(NamedTuple):
    """What is known after a health check."""

    now: Publication | None = None  # what it found
    published: Publication | None = None  # what Slurm was told last; or would have been, where the place is taken
    is_taken: bool = False  # somebody else's text is there
    reset_at: int = 0  # when daemons were last asked to be put right, in seconds since 1970
    is_drained: bool = False  # this finding has been answered by a drain of our own

    def after(self, verdict: str, entries: tuple[Entry, ...], time: int) -> State:
        """Return the state after a health check that came to this."""
        found = Publication(verdict, 1, time, entries)
        if self.now is None or not found.is_as(self.now):
            return self._replace(now=found, is_drained=False)
        return self._replace(now=found._replace(seen=min(self.now.seen + 1, publication.MOST_SEEN)))

    def is_due(self, node: str) -> bool:
        """Tell whether Slurm is to be told: of a change, until it has been seen three times, and then every six hours.

        Hours and up to thirty minutes more by the node's name, so that nodes that booted together part.
        """
        if self.now is None or self.published is None or not self.now.is_as(self.published):
            return self.now is not None
        if self.published.seen < min(self.now.seen, _STEADY):
            return True
        return not 0 <= self.now.time - self.published.time < REFRESH_S + jitter_s(node)


def jitter_s(node: str) -> int:
    """Return a number of seconds, from 0 to half an hour, that is always the same for a node of this name."""
    from zlib import crc32

    return crc32(node.encode()) % (_JITTER_S + 1)


def read(host: Host) -> State:
    """Return what was kept; an empty state where there is nothing that can be used."""
    path = host.path(STATE)
    try:
        if files.own_mode(path, host.owner_uid) != _MODE:
            return State()
        kept = json.loads(files.read(path, _CAP))
        return State(
            publication.parse(kept["now"]),
            publication.parse(kept["published"]),
            kept["is_taken"] is True,
            int(kept["reset_at"]),
            kept["is_drained"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return State()


def keep(host: Host, state: State) -> None:
    """Keep a state for the next run."""
    texts = {"now": _text(state.now), "published": _text(state.published)}
    rest = {"is_taken": state.is_taken, "reset_at": state.reset_at, "is_drained": state.is_drained}
    _publish(host, STATE, json.dumps({"schema": 1, **texts, **rest}))


def keep_report(host: Host, report: str) -> None:
    """Keep the report of a health check, one line of JSON."""
    _publish(host, REPORT, f"{report}\n")


def _publish(host: Host, path: str, content: str) -> None:
    folder = locks.state_directory(host)
    files.publish(os.path.join(folder, os.path.basename(path)), content.encode(), _MODE)


def _text(value: Publication | None) -> str:
    return "" if value is None else publication.text(value)
