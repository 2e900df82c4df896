"""What `scontrol --json show nodes` says, as the same values that the text gives: a pure reader of JSON.

Field names are those of Slurm's data parsers v0.0.39 to v0.0.45 (NODE in src/plugins/data_parser/*/parsers.c), seen on
24.11.5 and 26.05.5. What changed between versions is taken as it comes: a state is a list of words, or a word beside
`state_flags`; a number is plain, or `{"set", "infinite", "number"}`; nothing is null, "", "N/A" or a number that stands
for none. JSON quotes what a node reports about itself, so that no value of one node can pose as another's record.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple, cast

from mpsfleet.show import show
from mpsfleet.slurm.nodes import Problem, Reason, is_null, node_of, table_of
from mpsfleet.slurm.records import RecordError
from mpsfleet.slurm.states import Base

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node, NodeTable

ToIso = Callable[[int], "str | None"]  # seconds since 1970 as the controller's local time, None where there is none

# The text's name of a field, and JSON's; all of them texts that are nothing but informative.
_TEXTS = (
    ("NodeAddr", "address"),
    ("NodeHostName", "hostname"),
    ("Version", "version"),
    ("OS", "operating_system"),
    ("GresUsed", "gres_used"),
    ("CfgTRES", "tres"),
    ("AllocTRES", "tres_used"),
    ("Comment", "comment"),
    ("Extra", "extra"),
    ("ReservationName", "reservation"),
)
_TIMES = (("BootTime", "boot_time"), ("SlurmdStartTime", "slurmd_start_time"))
# The option by Slurm's version; from 23.11 it pins a data parser, so that the shape stays when Slurm is updated. 24.11
# ships v0.0.40 to 42, 26.05 v0.0.42 to 45. A version that is not here is read as text.
_OPTIONS = {
    (23, 2): "--json",
    (23, 11): "--json=v0.0.40",
    (24, 5): "--json=v0.0.40",
    (24, 11): "--json=v0.0.42",
    (25, 5): "--json=v0.0.42",
    (25, 11): "--json=v0.0.42",
    (26, 5): "--json=v0.0.42",
}
_VERSION = re.compile(r"slurm[a-z-]* ([0-9]{2})\.([0-9]{2})\.[0-9]+")
_NO_STATE = "INVALID"  # what next_state_after_reboot holds where none is set
_BASES = frozenset(each.value for each in Base if each is not Base.UNSAID)
# NO_VAL and INFINITE of slurm.h in 16, 32 and 64 bits; -1 and -2 where they were taken for signed.
_NO_NUMBERS = frozenset(2**bits - less for bits in (0, 16, 32, 64) for less in (1, 2) if bits) | {-1, -2}


class NotJsonError(ValueError):
    """The answer as a whole is no JSON of Slurm's; one sentence, without the answer's own words."""


class Answer(NamedTuple):
    """What was read, and what Slurm itself called an error (which then is all that can be relied on)."""

    table: NodeTable
    errors: tuple[str, ...]


def option_for(version: str) -> str | None:
    """Give scontrol's option for JSON of a known shape, by what `scontrol --version` says; None: read its text."""
    match = _VERSION.match(version)
    return None if match is None else _OPTIONS.get((int(match.group(1)), int(match.group(2))))


def iso_of(seconds: int) -> str | None:
    """Give a time since 1970 as scontrol's text has it: local time, ISO, without a zone; None for no possible time."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return None


def parse(text: str, to_iso: ToIso) -> Answer:
    """Read the answer of `scontrol --json show nodes` or `show node NAME`.

    Raises NotJsonError where standard output is not one JSON object with `nodes`: empty, cut off, or led by a message.
    A node that is not understood is a problem of that node alone.
    """
    if not text.strip():
        raise NotJsonError("the answer is empty")
    try:
        answer = json.loads(text)
    except RecursionError:
        raise NotJsonError("its brackets are nested too deeply") from None
    except ValueError as error:
        where = f" (character {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise NotJsonError(f"the answer is not JSON from its first character to its last{where}") from None
    if not isinstance(answer, dict) or "nodes" not in answer:
        raise NotJsonError("the answer is no object with `nodes`")
    return Answer(_table(answer["nodes"], to_iso), _errors(answer.get("errors")))


def _table(nodes: object, to_iso: ToIso) -> NodeTable:
    """Read the nodes: an array, or a map from names as other commands of Slurm have it."""
    if isinstance(nodes, dict):
        nodes = [{"name": name, **each} if isinstance(each, dict) else each for name, each in nodes.items()]
    if not isinstance(nodes, list):
        raise NotJsonError("`nodes` is no array")
    records, problems = [], []
    for number, each in enumerate(nodes):
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str):
            records.append((name, partial(_node, name, each, to_iso)))
        else:
            problems.append(Problem(None, "name", f"node {number} of scontrol's JSON has no name"))
    return table_of(records, problems)


def _errors(errors: object) -> tuple[str, ...]:
    """Give what Slurm says went wrong, each as one text."""
    if not errors:
        return ()
    told = []
    for each in errors if isinstance(errors, list) else [errors]:
        words = [each.get(key) for key in ("error", "description")] if isinstance(each, dict) else [each]
        told.append(": ".join(str(word) for word in words if word) or "an error without a word")
    return tuple(told)


def _node(name: str, node: dict[str, object], to_iso: ToIso) -> Node:
    fields = {text: _informative(node.get(key)) for text, key in _TEXTS}
    fields.update({text: _time(node.get(key), to_iso) or "" for text, key in _TIMES})
    fields["State"] = _state(node)
    fields["Gres"] = _text(node, "Gres", "gres")
    fields["Partitions"] = ",".join(_words(node.get("partitions")))
    fields["NextState"] = "+".join(each for each in _words(node.get("next_state_after_reboot")) if each != _NO_STATE)
    return node_of(name, fields, _reason(node, to_iso))


def _state(node: dict[str, object]) -> str:
    """Give the state as the text writes it, `BASE+FLAG`, whatever JSON's order and capitals."""
    given = [node.get("state"), node.get("state_flags") or []]
    words = [word for each in given for word in (each if isinstance(each, list) else [each])]
    if not node.get("state") or not all(isinstance(each, str) for each in words):
        raise RecordError("State", "`state` is neither a word nor a list of words")
    found = list(dict.fromkeys(part.upper() for word in words for part in str(word).split("+") if part))
    bases = [each for each in found if each in _BASES]
    if len(bases) > 1:
        raise RecordError("State", f"`state` names {show(' and '.join(bases), 80)} at once")
    return "+".join([*bases, *(each for each in found if each not in bases)])


def _reason(node: dict[str, object], to_iso: ToIso) -> Reason | None:
    """Give the reason; without a time the text prints no user either, and none is claimed here."""
    text = _text(node, "Reason", "reason")
    if is_null(text):
        return None
    when = _time(node.get("reason_changed_at"), to_iso)
    user = _informative(node.get("reason_set_by_user"))
    return Reason(text, user if when is not None and not is_null(user) else None, when)


def _text(node: dict[str, object], field: str, key: str) -> str:
    """Give a text on which decisions rest; one of another type is a problem of the node and not nothing."""
    value = node.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordError(field, f"`{key}` is not a text")
    return value


def _informative(value: object) -> str:
    """Give a text that only informs, or several as one; of any other type, nothing."""
    return value if isinstance(value, str) else ",".join(_words(value))


def _words(value: object) -> list[str]:
    """Give the words of a list, or of a text with commas between them."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list):
        return []
    return [each.strip() for each in value if isinstance(each, str) and not is_null(each)]


def _time(value: object, to_iso: ToIso) -> str | None:
    """Give a time in any of the shapes of a number; 0 and the numbers that stand for none give None."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        value = members.get("number") if members.get("set", True) and not members.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or value in _NO_NUMBERS:
        return None
    return to_iso(value)
