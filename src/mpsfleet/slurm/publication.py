"""What a node publishes of its health in Slurm: one JSON object with one key, in its Extra or its Comment. Pure.

`{"mpsfleet":"1 critical 4 1790000000 daemon-wedged:c:e:2,gpu-xid-logged:w:e"}` says: format 1; the verdict; how many
health checks in a row came to just that; when the last of them was, in seconds since 1970; and the findings, the most
severe first, each with its code, its severity (w, u, c), its origin (n, u, e) and the GPU's index where it names one.
Slurm from 23.11 on reads Extra as JSON where a site has jobs choose nodes by it; one key of ours leaves that possible.
"""

from __future__ import annotations

import re

from mpsfleet import codes
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_SEEN = 999
MOST_ENTRIES = 8
LONGEST = 800  # characters of a whole text; ours have at most 680
_SEVERITIES = {"w": "warn", "u": "unknown", "c": "critical"}
_ORIGINS = {"n": "node", "u": "user", "e": "either"}
_ENTRY = r"[a-z][a-z0-9-]{0,63}:[wuc]:[nue](?::(?:0|[1-9][0-9]{0,2}))?"
_WHOLE = re.compile(
    r'\{"mpsfleet":"1 (ok|warn|unknown|critical) ([1-9][0-9]{0,2}) (0|[1-9][0-9]{0,10}) '
    rf'(-|{_ENTRY}(?:,{_ENTRY}){{0,{MOST_ENTRIES - 1}}})"\}}'
)
_OURS = re.compile(r'\{"mpsfleet":"[ -!#-\[\]-~]{0,700}"\}')  # printable ASCII but the quote and the backslash
_GPU = re.compile(r"(?:daemon )?gpu ?([0-9]{1,3})\b", re.IGNORECASE)
_INDEX = re.compile(r"[0-9]{1,3}")


class Entry(NamedTuple):
    """One finding, as far as it is published."""

    code: str
    severity: str  # "warn" | "unknown" | "critical"
    origin: str  # "node" | "user" | "either"
    gpu: int | None = None


class Publication(NamedTuple):
    """What a node says of itself. `text()` and `parse()` are each other's inverse."""

    verdict: str  # "ok" without entries, else the severity of the first
    seen: int  # 1 to 999
    time: int  # seconds since 1970
    entries: tuple[Entry, ...] = ()

    def is_as(self, other: Publication | None) -> bool:
        """Tell whether the other says the same of the node, be it of another time."""
        return other is not None and (self.verdict, self.entries) == (other.verdict, other.entries)


def chosen(found: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the findings that are published: each once, the most severe first, then in the order of codes.py."""
    place = {code: number for number, code in enumerate(codes.BY_NAME)}

    def rank(each: Entry) -> tuple[int, int, int, str]:
        gpu = -1 if each.gpu is None else each.gpu
        return -codes.SEVERITIES.index(each.severity), place.get(each.code, len(place)), gpu, each.origin

    return tuple(sorted(set(found), key=rank))[:MOST_ENTRIES]


def gpu_of(subject: str, evidence: Iterable[tuple[str, str]]) -> int | None:
    """Read the GPU's index from a finding's subject ("gpu2", "daemon gpu2") or its evidence; else there is none."""
    match = _GPU.match(subject)
    words = [match.group(1)] if match else [value for key, value in evidence if key in ("gpu", "index")]
    numbers = [int(each) for each in words if _INDEX.fullmatch(each)]
    return numbers[0] if numbers else None


def text(value: Publication) -> str:
    """Return the text that Slurm keeps."""
    words = ",".join(_word(each) for each in value.entries) or "-"
    return f'{{"mpsfleet":"1 {value.verdict} {value.seen} {value.time} {words}"}}'


def _word(entry: Entry) -> str:
    gpu = "" if entry.gpu is None else f":{entry.gpu}"
    return f"{entry.code}:{entry.severity[0]}:{entry.origin[0]}{gpu}"


def parse(given: str) -> Publication | None:
    """Read such a text; None for any other. A code that is not known here is kept. Never raises."""
    match = _WHOLE.fullmatch(given) if len(given) <= LONGEST else None
    if match is None:
        return None
    verdict, seen, time, words = match.groups()
    found = () if words == "-" else tuple(_entry(each.split(":")) for each in words.split(","))
    if verdict != max((each.severity for each in found), key=codes.SEVERITIES.index, default="ok"):
        return None
    return Publication(verdict, int(seen), int(time), found)


def _entry(words: list[str]) -> Entry:
    code, severity, origin, *gpu = words
    return Entry(code, _SEVERITIES[severity], _ORIGINS[origin], int(gpu[0]) if gpu else None)


def is_ours(given: str) -> bool:
    """Tell whether a text is one that mpsfleet wrote, in this format or that of another version."""
    return _OURS.fullmatch(given) is not None
