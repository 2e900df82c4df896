"""What `scontrol show nodes` says, as values: the text of Slurm 20.11 to 26.05, in its many-line or one-line form.

Field names and their order are those of slurm_sprint_node_table in Slurm's src/api/node_info.c. The text carries no
quoting: OS, Comment, Extra and Reason may hold spaces, "=", JSON and line ends. A record that can be read in two ways
is a problem of that node, never a guess; a node that is named twice is a problem too, since a value of one node (its
slurmd reports OS and Version) could otherwise pose as the record of another. The other nodes are not lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple

from mpsfleet.show import show
from mpsfleet.slurm import gres as gres_room
from mpsfleet.slurm import states
from mpsfleet.slurm import tres as tres_room
from mpsfleet.slurm.names import is_literal
from mpsfleet.slurm.records import RecordError, fields_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mpsfleet.slurm.gres import Gres
    from mpsfleet.slurm.records import Record
    from mpsfleet.slurm.states import NodeState
    from mpsfleet.slurm.tres import Tres

_NULLS = frozenset({"", "(null)", "null", "none", "n/a", "n/s", "unknown"})  # as spelled by one version or another
_BRACKET = re.compile(r"(?P<text>.*?) ?\[(?P<user>[^\[\]]+)@(?P<time>[^@\[\]]*)\]", re.DOTALL)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")


class Reason(NamedTuple):
    """Why a node is drained or down; user and time are None where scontrol printed none, or not as an ISO time."""

    text: str  # line ends as "\n"
    user: str | None
    time: str | None  # ISO, in the controller's local time


@dataclass(frozen=True)
class Node:
    """One node as slurmctld sees it. Texts are as written; None where Slurm says there is none."""

    name: str
    state: NodeState
    hostname: str | None = None
    address: str | None = None
    version: str | None = None
    os: str | None = None
    reason: Reason | None = None
    gres: tuple[Gres, ...] = ()
    gres_used: str | None = None
    gres_used_parsed: tuple[Gres, ...] | None = None  # None too where the text is not understood
    partitions: tuple[str, ...] = ()
    comment: str | None = None
    extra: str | None = None
    boot_time: str | None = None
    slurmd_start_time: str | None = None
    next_state: str | None = None
    reservation: str | None = None
    configured: tuple[Tres, ...] | None = None  # CfgTRES; of these two () says nothing, and None is not understood
    allocated: tuple[Tres, ...] | None = None  # AllocTRES


class Problem(NamedTuple):
    """A record that could not be read; `node` is None where it has no readable name."""

    node: str | None
    field: str | None
    sentence: str


class NodeTable(NamedTuple):
    """All nodes that could be read, in Slurm's order, and the problems of those that could not."""

    nodes: tuple[Node, ...]
    problems: tuple[Problem, ...]

    def node(self, name: str) -> Node | None:
        """Give the node of that literal name, None where there is none."""
        return next((each for each in self.nodes if each.name == name), None)


def parse(text: str) -> NodeTable:
    """Read the answer of `scontrol [-o] show nodes` or `show node NAME`. Never raises."""
    records, strays = records_of(text)
    problems = [Problem(None, None, f"scontrol printed a line outside any node: {show(each)}") for each in strays]
    return table_of(((each.name, partial(_read, each)) for each in records), problems)


def table_of(records: Iterable[tuple[str, Callable[[], Node]]], problems: list[Problem]) -> NodeTable:
    """Put records together: each by its name, with what reads it or raises RecordError; no name counts twice."""
    nodes: dict[str, Node] = {}
    seen: dict[str, int] = {}
    unread = list(problems)
    for name, read in records:
        seen[name] = seen.get(name, 0) + 1
        try:
            nodes[name] = read()
        except RecordError as error:
            named = name if is_literal(name) else None
            sentence = f"the record of node {show(name)} is not understood: {error}"
            unread.append(Problem(named, error.field, sentence))
    repeated = {name: times for name, times in seen.items() if times > 1}
    kept = [each for each in unread if each.node is None or each.node not in repeated]
    kept += [
        Problem(name, "NodeName", f"scontrol printed node {show(name)} {times} times")
        for name, times in repeated.items()
    ]
    return NodeTable(tuple(each for name, each in nodes.items() if name not in repeated), tuple(kept))


def _read(record: Record) -> Node:
    fields = fields_of(record)
    return node_of(record.name, fields, _reason(fields.get("Reason")))


def node_of(name: str, fields: dict[str, str], reason: Reason | None) -> Node:
    """Give meaning to a record's fields, which bear the names of scontrol's text. Raises RecordError."""
    if not is_literal(name):
        raise RecordError("NodeName", "NodeName is not one node's name")
    used = _value(fields, "GresUsed")
    return Node(
        name=name,
        state=_state(fields),
        hostname=_value(fields, "NodeHostName"),
        address=_value(fields, "NodeAddr"),
        version=_value(fields, "Version"),
        os=_value(fields, "OS"),
        reason=reason,
        gres=_gres(fields),
        gres_used=used,
        gres_used_parsed=_gres_used(used),
        partitions=tuple(each for each in (_value(fields, "Partitions") or "").split(",") if each),
        comment=_value(fields, "Comment"),
        extra=_value(fields, "Extra"),
        boot_time=_time(fields, "BootTime"),
        slurmd_start_time=_time(fields, "SlurmdStartTime"),
        next_state=_value(fields, "NextState"),
        reservation=_value(fields, "ReservationName"),
        configured=_tres(_value(fields, "CfgTRES")),
        allocated=_tres(_value(fields, "AllocTRES")),
    )


def is_null(value: str) -> bool:
    """Tell whether a text is one of the words by which a version of Slurm says that there is nothing."""
    return value.strip(" ").lower() in _NULLS


def _value(fields: dict[str, str], key: str) -> str | None:
    value = fields.get(key, "").strip(" ")
    return None if is_null(value) else value


def _time(fields: dict[str, str], key: str) -> str | None:
    value = _value(fields, key)
    return value if value is not None and _TIME.fullmatch(value) else None


def _state(fields: dict[str, str]) -> NodeState:
    word = fields.get("State", "").strip(" ")
    if not word:
        raise RecordError("State", "it has no State")
    try:
        return states.parse(word)
    except ValueError as error:
        raise RecordError("State", f"State: {show(error)}") from error


def _gres(fields: dict[str, str]) -> tuple[Gres, ...]:
    text = _value(fields, "Gres")
    try:
        return () if text is None else gres_room.parse(text)
    except gres_room.GresError as error:
        raise RecordError("Gres", f"Gres: {show(error)}") from error


def _gres_used(text: str | None) -> tuple[Gres, ...] | None:
    try:  # read for information alone, so a form not known costs this value and not the node
        return None if text is None else gres_room.parse(text)
    except gres_room.GresError:
        return None


def _tres(text: str | None) -> tuple[Tres, ...] | None:
    try:  # for information alone, as above
        return () if text is None else tres_room.parse(text)
    except tres_room.TresError:
        return None


def _reason(value: str | None) -> Reason | None:
    """Split `text [user@time]`; scontrol puts the bracket after the first line of a reason of several lines."""
    if value is None or is_null(value):
        return None
    first, newline, rest = value.partition("\n")
    match = _BRACKET.fullmatch(first.rstrip(" "))
    if match is None:
        return Reason(value, None, None)
    time = match.group("time")
    return Reason(match.group("text") + newline + rest, match.group("user"), time if _TIME.fullmatch(time) else None)
