"""Reports of strangers: what is taken, what is garbage for its own node, and what breaks the whole input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.slurm import pieces, reports
from mpsfleet.slurm.presence import Gpu, Instance, Presence
from mpsfleet.slurm.reports import Garbage, HostReport, Report, ReportsError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "code": "gpu-lost",
        "severity": "critical",
        "subject": "gpu2",
        "message": "GPU 2 is lost",
        "origin": "node",
        "evidence": {"uuid": "GPU-1"},
        "remedy": "Reboot.",
        **changes,
    }


def report(*findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    severities = [each.get("severity", "ok") for each in findings]
    order = ["ok", "warn", "unknown", "critical"]
    verdict = max(severities, key=lambda each: order.index(each) if each in order else 0, default="ok")
    return {"schema": 1, "verdict": verdict, "node": "n1", "program": "0.1.0", "findings": list(findings), **changes}


MPS = {"instances": [["node", True]], "gpus": [[0, "a100", "node", 1], [-1, "t4", "", 0]], "found": 2, "jobs": None}


def whole(*hosts: dict[str, Any]) -> str:
    return json.dumps({"schema": 1, "hosts": list(hosts)})


def host(value: object, name: str = "n1") -> dict[str, Any]:
    return {"host": name, "node": name, "report": value, "error": None}


def read_one(value: object) -> Report | Garbage | None:
    [given_host] = reports.read(whole(host(value)))
    return given_host.report


def test_a_report_is_read() -> None:
    read = read_one(report(finding()))
    assert isinstance(read, Report)
    assert (read.verdict, read.findings[0].code, read.findings[0].evidence) == (
        "critical",
        "gpu-lost",
        (("uuid", "GPU-1"),),
    )


def test_what_a_report_tells_of_mps_is_read() -> None:
    read = read_one(report(mps=MPS))
    assert isinstance(read, Report)
    daemon = Instance("node", serves=True)
    assert read.mps == Presence((daemon,), (Gpu(0, "a100", "node", 1), Gpu(-1, "t4", "", 0)), 2, None)
    assert [each.model for each in read.mps.under_mps] == ["a100"]


def test_a_report_that_tells_nothing_of_mps_is_read() -> None:
    assert read_one(report(mps=None)) == read_one(report())


def test_a_report_passed_on_as_text_is_read_the_same() -> None:
    assert read_one(json.dumps(report(finding()))) == read_one(report(finding()))


def test_a_host_without_a_report_has_its_error() -> None:
    text = whole({"host": "a", "node": None, "report": None, "error": "unreachable: timed out"})
    assert reports.read(text) == (HostReport("a", None, None, "unreachable: timed out"),)


GARBAGE = {
    "a list": [],
    "a number": 7,
    "no members": {},
    "a member missing": {key: value for key, value in report().items() if key != "program"},
    "a member too many": {**report(), "drain": True},
    "mps of another kind": report(mps=[]),
    "mps with a member too many": report(mps={**MPS, "drain": True}),
    "a daemon of another name": report(mps={**MPS, "instances": [["../0", True]]}),
    "a daemon that serves by number": report(mps={**MPS, "instances": [["node", 1]]}),
    "a daemon told twice": report(mps={**MPS, "instances": [["node", True], ["node", False]]}),
    "a GPU of a daemon that is not told": report(mps={**MPS, "instances": []}),
    "a GPU without jobs": report(mps={**MPS, "gpus": [[0, "a100", "node"]]}),
    "a GPU with a terrible name": report(mps={**MPS, "gpus": [[0, "a\x1b[2J", "node", 0]]}),
    "a GPU with a long name": report(mps={**MPS, "gpus": [[0, "a" * 49, "node", 0]]}),
    "a GPU of no number": report(mps={**MPS, "gpus": [[-2, "a100", "node", 0]]}),
    "more GPUs than a node holds": report(mps={**MPS, "gpus": [[0, "a100", "node", 0]] * 65}),
    "a count that is none": report(mps={**MPS, "found": True}),
    "a count out of bounds": report(mps={**MPS, "jobs": -1}),
    "another schema": report(schema=2),
    "a schema that is true": report(schema=True),
    "a schema that is text": report(schema="1"),
    "a node that is no text": report(node=["n1"]),
    "findings that are no list": report(findings={}),
    "a finding that is no object": report(findings=["x"]),
    "a finding with a member too many": report(finding(drain=True)),
    "a finding without a code": report({key: value for key, value in finding().items() if key != "code"}),
    "a severity that is none": report(finding(severity="fatal"), verdict="critical"),
    "an origin that is none": report(finding(origin="root")),
    "a message that is no text": report(finding(message=None)),
    "evidence that is a list": report(finding(evidence=[])),
    "evidence within evidence": report(finding(evidence={"a": {"b": "c"}})),
    "a verdict better than its findings": report(finding(), verdict="ok"),
    "a verdict worse than its findings": report(verdict="critical"),
    "a verdict that is none": report(verdict="fine"),
    "too many findings": report(*[finding()] * 129),
    "too many levels": report(finding(evidence={"a": [[[[[[[[[[]]]]]]]]]]})),
    "a text that is no JSON": "no JSON",
    "a text with two objects": json.dumps(report()) + json.dumps(report()),
    "a text with a banner": "Welcome\n" + json.dumps(report()),
}


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_not_a_report_to_the_letter_is_garbage(value: object) -> None:
    assert isinstance(read_one(value), Garbage)


RAW = {
    "a member twice": json.dumps(report())[:-1] + ', "verdict": "ok"}',
    "a member of a finding twice": json.dumps(report(finding())).replace('"code"', '"code": "x", "code"'),
    "NaN": json.dumps(report(finding(evidence={"a": 1}))).replace('"a": 1', '"a": NaN'),
    "Infinity": json.dumps(report(finding(evidence={"a": 1}))).replace('"a": 1', '"a": -Infinity'),
    "a number past all bounds": json.dumps(report(finding(evidence={"a": 1}))).replace('"a": 1', '"a": 1e999'),
    "digits without end": json.dumps(report(finding(evidence={"a": 1}))).replace('"a": 1', '"a": ' + "9" * 6000),
    "brackets without end": "[" * 100_000 + "]" * 100_000,
    "a megabyte of objects": "[" + "{}," * 400_000 + "{}]",
    "a control character in a text": json.dumps(report()).replace("0.1.0", "0.1\n.0"),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
def test_a_hostile_report_is_garbage_for_its_own_node_alone(raw: str) -> None:
    sound = [json.dumps(host(report(node=f"n{number}"), f"n{number}")) for number in range(63)]
    bad = f'{{"host": "bad", "node": "bad", "report": {raw}, "error": null}}'
    read = reports.read(f'{{"schema": 1, "hosts": [{", ".join([*sound[:30], bad, *sound[30:]])}]}}')
    assert [each.host for each in read if not isinstance(each.report, Report)] == ["bad"]
    assert len(read) == 64


def test_garbage_is_never_quoted() -> None:
    garbage = read_one("root:$6$secret:19000:0:99999:7:::")
    assert isinstance(garbage, Garbage)
    assert "secret" not in garbage.why


def test_surrogates_and_direction_marks_are_only_text() -> None:
    read = read_one(report(finding(message="\ud800 \u202e \x1b[31m")))
    assert isinstance(read, Report)


BROKEN = {
    "nothing": "",
    "no JSON": "root:$6$secret",
    "a list": "[]",
    "no hosts": '{"schema": 1}',
    "another schema": '{"schema": 2, "hosts": []}',
    "a schema that is true": '{"schema": true, "hosts": []}',
    "a member too many": '{"schema": 1, "hosts": [], "x": 1}',
    "hosts twice": '{"schema": 1, "hosts": [], "hosts": []}',
    "cut off": whole(host(report()))[:-5],
    "something after the end": whole() + " x",
    "brackets that do not match": '{"schema": 1, "hosts": [}]',
    "a host that is a list": '{"schema": 1, "hosts": [[]]}',
    "an empty host": '{"schema": 1, "hosts": [,]}',
    "a host without a name": whole({"host": "", "node": "n", "report": None, "error": None}),
    "a host with a member twice": '{"schema": 1, "hosts": [{"host": "a", "host": "b", "node": "n", "report": null, "error": null}]}',
    "a host with a member missing": '{"schema": 1, "hosts": [{"host": "a"}]}',
    "a node that is a list": whole({"host": "a", "node": ["n"], "report": None, "error": None}),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_frame_is_one_sentence_without_content(text: str) -> None:
    with pytest.raises(ReportsError) as caught:
        reports.read(text)
    assert caught.value.exit_code == 3
    assert "secret" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_reports_or_a_reports_error(text: str) -> None:
    with pytest.raises(ReportsError):
        reports.read(text)


@given(JSON)
def test_any_json_is_a_report_or_garbage(value: object) -> None:
    assert isinstance(read_one(value), (Garbage, type(None)))


@given(st.lists(JSON, max_size=5) | st.dictionaries(st.text(max_size=6), JSON, max_size=5), st.sampled_from([None, 1]))
def test_pieces_are_the_members_that_a_parser_finds(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = [(each.key, text[each.start : each.end]) for each in pieces.members(text)]
    if isinstance(value, dict):
        assert {json.loads(key): json.loads(part) for key, part in found if key is not None} == value
    else:
        assert [json.loads(part) for _, part in found] == value
