"""What the nodes report, read as the words of strangers: bounded, of exactly the expected shape, or garbage.

A report that is too large, too deep, not JSON, or not of schema 1 to the letter is garbage for its own node, which is
then unknown; the other nodes' reports stand. Nothing of a report's content is quoted in what is said about garbage.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from mpsfleet.codes import SEVERITIES
from mpsfleet.errors import MpsfleetError
from mpsfleet.slurm import presence
from mpsfleet.slurm.pieces import Piece, PiecesError, members

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mpsfleet.slurm.presence import Presence

REPORT_LIMIT = 1024 * 1024  # characters of one report; a sick node's is about 8 kB
INPUT_LIMIT = 256 * 1024 * 1024  # characters of all of them
MOST_HOSTS = 20_000
MOST_FINDINGS = 128
_DEEPEST = 8
_MOST_BRACKETS = 1000  # two for each finding, and room
_ORIGINS = ("node", "user", "either")
_REPORT_KEYS = frozenset({"schema", "verdict", "node", "program", "findings"})
_LATER_KEYS = frozenset({"mps"})  # which a node's older program does not tell
_FINDING_KEYS = frozenset({"code", "severity", "subject", "message", "origin", "evidence", "remedy"})
_HOST_KEYS = frozenset({"host", "node", "report", "error"})


class ReportsError(MpsfleetError):
    """The reports as a whole cannot be read (exit status 3)."""


class Finding(NamedTuple):
    """One finding as the node tells it: text to show, and two words of fixed sets."""

    code: str
    severity: str  # of codes.SEVERITIES
    subject: str
    message: str
    origin: str  # "node" | "user" | "either"
    evidence: tuple[tuple[str, str], ...]
    remedy: str


class Report(NamedTuple):
    """One node's report. `node` is what it calls itself, for comparison only."""

    node: str
    verdict: str
    program: str
    findings: tuple[Finding, ...]
    mps: Presence | None = None  # None: nothing told


class Garbage(NamedTuple):
    """Why a report was not used; a sentence part without any of its content."""

    why: str


class HostReport(NamedTuple):
    """One host of the inventory: its Slurm node name by the inventory's map, and its report or why there is none."""

    host: str
    node: str | None
    report: Report | Garbage | None
    error: str | None = None
    cluster: str | None = None  # the inventory's cluster of the host, None where it names none
    times: int = 1  # how often in a row the node itself found it so
    stamp: int = 0  # when the node published it, seconds since 1970; 0 where it was asked just now


def read(text: str) -> tuple[HostReport, ...]:
    """Read {"schema": 1, "hosts": […]}. Raises ReportsError where that frame is broken; a bad report is Garbage."""
    if len(text) > INPUT_LIMIT:
        raise ReportsError(f"The reports are larger than {INPUT_LIMIT} characters together; nothing was read.")
    try:
        frame = _named(members(text))
        if set(frame) != {"schema", "hosts"} or not _is_one(_load(text, frame["schema"])):
            raise ReportsError('The reports must be one object {"schema": 1, "hosts": [...]}; nothing was read.')
        places = list(members(text, frame["hosts"].start, frame["hosts"].end))
        if len(places) > MOST_HOSTS:
            raise ReportsError(f"The reports name more than {MOST_HOSTS} hosts; nothing was read.")
        return tuple(_host(text, each, number) for number, each in enumerate(places, 1))
    except (PiecesError, _BadJsonError) as error:
        raise ReportsError(f"The reports are not one JSON object: {error}.") from None


def parse_report(text: str) -> Report | Garbage:
    """Read one node's report from its JSON text."""
    if len(text) > REPORT_LIMIT:
        return Garbage(f"it is larger than {REPORT_LIMIT} characters")
    try:
        for number, part in enumerate(
            members(text), 1
        ):  # before it is parsed: a parser builds first and complains later
            if number > len(_REPORT_KEYS | _LATER_KEYS) or part.depth > _DEEPEST or part.brackets > _MOST_BRACKETS:
                return Garbage("it has more parts, or parts within parts, than a report can have")
        return _report(_loads(text))
    except (PiecesError, _BadJsonError) as error:
        return Garbage(f"it is not sound JSON ({error})")


class _BadJsonError(ValueError):
    """Not JSON as this program takes it; the message holds no content."""


def _host(text: str, place: Piece, number: int) -> HostReport:
    parts = _named(members(text, place.start, place.end))
    if not _HOST_KEYS <= set(parts) <= _HOST_KEYS | {"cluster"}:
        raise ReportsError(f"Host number {number} of the reports must have host, node, report and error.")
    host, node, error = (_load(text, parts[key]) for key in ("host", "node", "error"))
    cluster = _load(text, parts["cluster"]) if "cluster" in parts else None
    if not isinstance(host, str) or not host:
        raise ReportsError(f"Host number {number} of the reports has no name.")
    if not isinstance(node, (str, type(None))) or not isinstance(error, (str, type(None))):
        raise ReportsError(f"Host number {number} of the reports has a node or an error that is no text.")
    if not isinstance(cluster, (str, type(None))):
        raise ReportsError(f"Host number {number} of the reports has a cluster that is no text.")
    body = text[parts["report"].start : parts["report"].end].strip()
    report: Report | Garbage | None = None
    if body.startswith('"') and len(body) <= 2 * REPORT_LIMIT:  # the node's own output, passed on unread
        report = parse_report(str(_loads(body)))
    elif body != "null":
        report = parse_report(body)
    return HostReport(host, node, report, error, cluster or None)


def _report(value: object) -> Report | Garbage:
    if not isinstance(value, dict) or set(value) - _LATER_KEYS != _REPORT_KEYS:
        return Garbage("it does not have the members of a report")
    if not _is_one(value["schema"]):
        return Garbage("its schema is not 1, so the node runs another version of the program")
    texts = [value[key] for key in ("verdict", "node", "program")]
    found = value["findings"]
    if not all(isinstance(each, str) for each in texts) or not isinstance(found, list):
        return Garbage("a member has the wrong type")
    if len(found) > MOST_FINDINGS:
        return Garbage(f"it has more than {MOST_FINDINGS} findings")
    findings = [_finding(each) for each in found]
    sound = tuple(each for each in findings if each is not None)
    if len(sound) != len(findings):
        return Garbage("a finding does not have the shape of a finding")
    verdict, node, program = texts
    if verdict != max((each.severity for each in sound), key=SEVERITIES.index, default="ok"):
        return Garbage("its verdict is not that of its worst finding")
    try:
        return Report(node, verdict, program, sound, presence.read(value.get("mps")))
    except presence.PresenceError as error:
        return Garbage(str(error))


def _finding(value: object) -> Finding | None:
    if not isinstance(value, dict) or set(value) != _FINDING_KEYS:
        return None
    evidence = value["evidence"]
    texts = {key: value[key] for key in _FINDING_KEYS - {"evidence"}}
    if not isinstance(evidence, dict) or not all(isinstance(each, str) for each in texts.values()):
        return None
    if texts["severity"] not in SEVERITIES or texts["origin"] not in _ORIGINS:
        return None
    if not all(isinstance(each, (str, int, float, type(None))) for each in evidence.values()):
        return None
    return Finding(evidence=tuple(sorted((key, str(each)) for key, each in evidence.items())), **texts)


def _named(pieces: Iterable[Piece]) -> dict[str, Piece]:
    found: dict[str, Piece] = {}
    for piece in pieces:
        key = _loads(piece.key) if piece.key is not None else None
        if not isinstance(key, str) or key in found:
            raise _BadJsonError("a name is missing or there twice")
        found[key] = piece
    return found


def _load(text: str, piece: Piece) -> object:
    if piece.depth or piece.end - piece.start > REPORT_LIMIT:
        raise _BadJsonError("a plain value is expected where there is none")
    return _loads(text[piece.start : piece.end])


def _is_one(value: object) -> bool:
    return type(value) is int and value == 1


def _loads(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _BadJsonError(f"{error.msg}, at character {error.pos}") from None
    except (RecursionError, ValueError) as error:
        raise error if isinstance(error, _BadJsonError) else _BadJsonError("a value is out of bounds") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _BadJsonError("a name is there twice")
    return result


def _no_constant(_word: str) -> NoReturn:
    raise _BadJsonError("NaN and Infinity are not JSON")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise _BadJsonError("a number is out of bounds")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
