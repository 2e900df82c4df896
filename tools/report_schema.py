"""The JSON Schemas (draft 2020-12) of a report and of an outcome, as `./dev docs` publishes them, and their check."""

from __future__ import annotations

import functools
import json
from typing import Any

from mpsfleet.codes import SEVERITIES
from mpsfleet.node.judge.presence import MOST
from mpsfleet.node.model import SCHEMA, Change, Finding, Mps, Outcome

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ORIGINS = ("node", "user", "either")
VERBS = ("apply", "reset", "quiesce", "unquiesce", "remove", "prepare", "acknowledge")
_LINE = r"^[^\u0000-\u001f\u007f]*$"
_CODE = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
Schema = dict[str, Any]


def report() -> Schema:
    """Return the schema of what `mpsfleet node audit --json` prints."""
    return {
        "$schema": DRAFT,
        "$id": f"urn:mpsfleet:report:{SCHEMA}",
        "title": "Report of a node",
        "description": "What `mpsfleet node audit --json` prints, on one line.",
        **_object(_report_members()),
        "$defs": {"finding": _finding()},
    }


def outcome() -> Schema:
    """Return the schema of what an acting command prints with `--json`."""
    members: Schema = {
        "schema": {"const": SCHEMA},
        "verb": {"enum": list(VERBS)},
        "node": _text(80, "the node's name in Slurm, as it calls itself"),
        "dry_run": {"type": "boolean"},
        "changed": {"type": "boolean", "description": "whether anything was changed, or with dry_run would be"},
        "changes": {"type": "array", "items": {"$ref": "#/$defs/change"}, "description": "in order"},
        "refused": _sentence("why nothing was changed, or with `waiting` why not all was"),
        "waiting": {
            "type": "array",
            "items": {"type": "string"},
            "description": "units still to be stopped",
        },
        "failed": _sentence("why it is not in effect"),
        "skipped": _sentence("why there is nothing to do on this node"),
        "messages": {"type": "array", "items": {"type": "string"}},
        "report": {"anyOf": [{"$ref": "#/$defs/report"}, {"type": "null"}], "description": "the audit after it"},
    }
    change: Schema = {
        "what": {"type": "string"},
        "action": {"type": "string", "pattern": "^[a-z][a-z ]*$"},
        "detail": {"type": "string"},
        "before": {"type": ["string", "null"], "description": "a file's text before, where it is one"},
        "after": {"type": ["string", "null"]},
    }
    return {
        "$schema": DRAFT,
        "$id": f"urn:mpsfleet:outcome:{SCHEMA}",
        "title": "Outcome of an acting command",
        "description": "What `mpsfleet node apply|reset|quiesce|unquiesce|remove|prepare --json` prints, on one line.",
        **_object(members),
        "$defs": {"change": _object(change), "finding": _finding(), "report": _object(_report_members())},
    }


def text(schema: Schema) -> str:
    """Return a schema as its file's text."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def require(document: Schema) -> None:
    """Check a report or an outcome. AssertionError that names the member, for tests."""
    validator, worst = _validators()["verb" in document], ""
    for error in validator.iter_errors(document):
        worst = worst or f"{error.json_path}: {error.message}"
    verdict = document.get("verdict")
    found = [each["severity"] for each in document.get("findings", ())] if not worst else []
    if found != sorted(found, key=SEVERITIES.index, reverse=True):
        worst = "$.findings: not most severe first"
    if not worst and "verb" not in document and verdict != (found[0] if found else "ok"):
        worst = f"$.verdict: {verdict} is not the severity of the worst finding"
    if worst:
        which = "outcome" if "verb" in document else "report"
        raise AssertionError(f"not as docs/reference/{which}.schema.json: {worst}")


@functools.cache
def _validators() -> tuple[Any, Any]:
    import jsonschema  # type: ignore[import-untyped]  # only what tests need; the program does without

    for each in (report(), outcome()):
        jsonschema.Draft202012Validator.check_schema(each)
    return jsonschema.Draft202012Validator(report()), jsonschema.Draft202012Validator(outcome())


def _report_members() -> Schema:
    return {
        "schema": {"const": SCHEMA, "description": "a changed form has another number"},
        "verdict": {"enum": list(SEVERITIES), "description": "the severity of the worst finding; ok without one"},
        "node": _text(80, "the node's name in Slurm, as it calls itself"),
        "program": {"type": "string", "pattern": r"^\d+\.\d+", "description": "the version of mpsfleet that asked"},
        "findings": {
            "type": "array",
            "items": {"$ref": "#/$defs/finding"},
            "maxItems": 128,
            "description": "most severe first",
        },
        "mps": {
            "anyOf": [_mps(), {"type": "null"}],
            "description": "what of MPS is on the node; null where there was nothing to judge against",
        },
    }


def _mps() -> Schema:
    number: Schema = {"type": "integer", "minimum": 0, "maximum": 65536}
    count: Schema = {**number, "type": ["integer", "null"]}
    instance = {"type": "string", "maxLength": 16, "pattern": "^(node|[0-9]*)$"}
    members: Schema = {
        "instances": _rows(
            [instance, {"type": ["boolean", "null"]}],
            "each control daemon that should be, and whether jobs can use it; null: not certain either way",
        ),
        "gpus": _rows(
            [
                {"type": "integer", "minimum": -1, "maximum": 65536},
                _text(48, ""),
                instance,
                {**count, "type": "integer"},
            ],
            "each GPU: minor number (-1: not told), model, the daemon that serves it, how many jobs are recorded on it",
        ),
        "found": {**count, "description": "whole GPUs that nvidia-smi shows; null: not told, or one is split by MIG"},
        "jobs": {**count, "description": "records of jobs with GPUs; null: not read"},
    }
    return _object(members)


def _rows(cells: list[Schema], description: str) -> Schema:
    row = {"type": "array", "prefixItems": cells, "items": False, "minItems": len(cells)}
    return {"type": "array", "items": row, "maxItems": MOST, "description": description}


def _finding() -> Schema:
    members: Schema = {
        "code": {"type": "string", "pattern": _CODE, "description": "a finding code; never reused for another meaning"},
        "severity": {"enum": [each for each in SEVERITIES if each != "ok"]},
        "subject": _text(80, "what it is about: the node, a daemon, a directory, a GPU"),
        "message": _text(400, "one sentence, equal on all nodes that have the same trouble"),
        "origin": {"enum": list(ORIGINS), "description": "who can cause it"},
        "evidence": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
            "additionalProperties": _text(160, ""),
            "description": "what differs from node to node: process numbers, states",
        },
        "remedy": _text(400, "one sentence: what a person can do"),
    }
    return _object(members)


def _object(members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _text(longest: int, description: str) -> Schema:
    named = {"description": description} if description else {}
    return {"type": "string", "maxLength": longest, "pattern": _LINE, **named}


def _sentence(description: str) -> Schema:
    return {"type": ["string", "null"], "description": f"{description}, or null"}


def fields() -> dict[str, tuple[str, ...]]:
    """Return the members that the program's own values have, for the test that holds them to the schema."""
    return {"finding": Finding._fields, "change": Change._fields, "outcome": Outcome._fields, "mps": Mps._fields}
