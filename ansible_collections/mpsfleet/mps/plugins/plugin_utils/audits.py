# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was registered for each host, as the reports that the program judges.

A registered result comes from a node, and a node may be compromised: everything in it is checked by type, length and
word before it is passed on, and a report that fails is that host's error alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable

SCHEMA = 1
VERDICTS = ("ok", "warn", "unknown", "critical")  # in rising order
ORIGINS = ("node", "user", "either")
FINDINGS_LIMIT = 64
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,8}")
_CODE_LIMIT = 64
_PREAMBLE = re.compile(r"(Task failed: )?(.{0,300} (over|via) ssh: )?")  # Ansible's words before ssh's own
_ROWS = {"instances": (str, bool), "gpus": (int, str, str, int)}  # of `mps`, by the kinds of their cells
_COUNTS = ("found", "jobs")
_ROWS_LIMIT = 64
_CELL_LIMIT = 48  # characters
_NUMBER_LIMIT = 65536
_TEXTS = {"subject": 160, "message": 400, "remedy": 400}  # field → characters kept


class InvalidReport(Exception):
    """A node's report is not what the program prints. One sentence."""


def host_entry(host: str, node: str, registered: Any, cluster: str = "") -> dict[str, Any]:
    """Return one host of the program's reports input, for what `mps_audit` registered (None where nothing was).

    Exactly one of `report` and `error` is null. `cluster`: the inventory's, "" where it names none.
    """
    report, error = _report_or_error(registered)
    return {"host": host, "node": node, "report": report, "error": error, "cluster": cluster or None}


def _report_or_error(registered: Any) -> tuple[dict[str, Any] | None, str | None]:
    if not isinstance(registered, Mapping):
        return None, "it was not audited in this run"
    if registered.get("unreachable"):
        said = _PREAMBLE.sub("", _one_line(registered.get("msg", "")))
        return None, f"unreachable: {printable(said, 300)}"
    if registered.get("skipped"):
        return None, "its audit was skipped"
    if not registered.get("report"):
        said = registered.get("error") or registered.get("msg") or "it sent no report"
        return None, printable(_one_line(said), 400)
    try:
        return trimmed_report(registered["report"]), None
    except InvalidReport as error:
        return None, f"its report is not valid: {error}"


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def trimmed_report(report: Any) -> dict[str, Any]:
    """Return the report with what a verdict needs and no more; at most `FINDINGS_LIMIT` findings, the worst first.

    Evidence stays with the node: it is the bulk of a report. InvalidReport where a field is missing or of another kind.
    """
    if not isinstance(report, Mapping) or report.get("schema") != SCHEMA or isinstance(report["schema"], bool):
        message = f"it is not of schema {SCHEMA}"
        raise InvalidReport(message)
    findings = report.get("findings")
    if not isinstance(findings, list):
        message = "it has no list of findings"
        raise InvalidReport(message)
    found = [_finding(each) for each in findings]
    found.sort(key=lambda each: -VERDICTS.index(each["severity"]))
    return {
        "schema": SCHEMA,
        "verdict": _word(report, "verdict", VERDICTS),
        "node": _text(report, "node", 255),
        "program": _text(report, "program", 40),
        "findings": found[:FINDINGS_LIMIT],
        "mps": _mps(report.get("mps")),
    }


def _mps(value: Any) -> dict[str, Any] | None:
    """Return what a report tells of MPS on its node, None where it tells nothing, as an older program does."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {*_ROWS, *_COUNTS}:
        message = "mps does not have its members"
        raise InvalidReport(message)
    rows = {name: _rows(value[name], kinds) for name, kinds in _ROWS.items()}
    return {**rows, **{name: None if value[name] is None else _cell(value[name], int) for name in _COUNTS}}


def _rows(value: Any, kinds: tuple[type, ...]) -> list[list[Any]]:
    if not isinstance(value, list) or len(value) > _ROWS_LIMIT:
        message = f"mps holds no list of at most {_ROWS_LIMIT} rows"
        raise InvalidReport(message)
    if not all(isinstance(row, list) and len(row) == len(kinds) for row in value):
        message = "a row of mps has another length"
        raise InvalidReport(message)
    return [[_cell(cell, kind) for cell, kind in zip(row, kinds)] for row in value]


def _cell(value: Any, kind: type) -> Any:
    """Return a cell: a short text, a number within bounds, or true, false and null."""
    if kind is str and isinstance(value, str):
        return printable(value, _CELL_LIMIT)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= _NUMBER_LIMIT:
        return int(value)
    if kind is bool and (value is None or isinstance(value, bool)):
        return value
    message = "mps holds a value of another kind"
    raise InvalidReport(message)


def _finding(finding: Any) -> dict[str, Any]:
    if not isinstance(finding, Mapping):
        message = "a finding is not an object"
        raise InvalidReport(message)
    code = _text(finding, "code", _CODE_LIMIT)
    if not _CODE.fullmatch(code):
        message = f"{code!r} is no finding's code"
        raise InvalidReport(message)
    return {
        "code": code,
        "severity": _word(finding, "severity", VERDICTS),
        "origin": _word(finding, "origin", ORIGINS),
        **{name: _text(finding, name, limit) for name, limit in _TEXTS.items()},
        "evidence": {},
    }


def _word(values: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = values.get(name)
    for each in known:
        if value == each:
            return each
    message = f"{name} is none of {', '.join(known)}"
    raise InvalidReport(message)


def _text(values: Mapping[str, Any], name: str, limit: int) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        message = f"{name} is not a text"
        raise InvalidReport(message)
    return printable(value, limit)
