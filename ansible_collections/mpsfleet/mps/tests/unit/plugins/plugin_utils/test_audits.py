# SPDX-License-Identifier: Apache-2.0

"""What was registered for a host, as the report that is judged."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.mpsfleet.mps.plugins.plugin_utils import audits


def finding(**changed: Any) -> dict[str, Any]:
    return {
        "code": "daemon-absent",
        "severity": "critical",
        "subject": "daemon node",
        "message": "No daemon runs.",
        "origin": "node",
        "evidence": {"key": "value"},
        "remedy": "Reset it.",
        **changed,
    }


def report(*findings: Any, **changed: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "verdict": "critical",
        "node": "n1",
        "program": "0.1.0",
        "findings": list(findings),
        "mps": {"instances": [["0", True], ["1", None]], "gpus": [[0, "a100", "0", 1]], "found": 2, "jobs": None},
        **changed,
    }


def test_a_report_keeps_its_findings_and_loses_the_evidence() -> None:
    trimmed = audits.trimmed_report(report(finding()))

    assert trimmed == report(finding(evidence={}))


def test_the_worst_findings_are_kept_where_there_are_too_many() -> None:
    many = [finding(severity="warn") for _each in range(100)]

    trimmed = audits.trimmed_report(report(*many, finding()))

    assert len(trimmed["findings"]) == audits.FINDINGS_LIMIT
    assert trimmed["findings"][0]["severity"] == "critical"


def test_text_that_would_move_a_cursor_is_escaped_and_cut() -> None:
    trimmed = audits.trimmed_report(report(finding(message="\x1b[2J\n\u202e" + "x" * 1000)))

    message = trimmed["findings"][0]["message"]
    assert message.startswith("\\x1b[2J\\n\\u202ex")
    assert len(message) == 400


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (None, "not of schema 1"),
        ([], "not of schema 1"),
        (report(schema=2), "not of schema 1"),
        (report(schema=True), "not of schema 1"),
        (report(findings=None), "no list of findings"),
        (report(findings="x"), "no list of findings"),
        (report(verdict="fine"), "verdict is none of"),
        (report(verdict=["ok"]), "verdict is none of"),
        (report(node=None), "node is not a text"),
        (report(node={"a": 1}), "node is not a text"),
        (report("x"), "a finding is not an object"),
        (report(finding(code="ALL; rm")), "is no finding's code"),
        (report(finding(code="")), "is no finding's code"),
        (report(finding(severity="fatal")), "severity is none of"),
        (report(finding(origin="me")), "origin is none of"),
        (report(finding(message=3)), "message is not a text"),
    ],
)
def test_a_report_of_another_shape_is_refused(broken: Any, words: str) -> None:
    with pytest.raises(audits.InvalidReport, match=words):
        audits.trimmed_report(broken)


def test_an_audited_host_has_a_report_and_no_error() -> None:
    entry = audits.host_entry("h1", "n1", {"report": report(), "error": None})

    assert (entry["host"], entry["node"], entry["report"]["verdict"], entry["error"]) == ("h1", "n1", "critical", None)


@pytest.mark.parametrize(
    ("registered", "error"),
    [
        (None, "it was not audited in this run"),
        ("text", "it was not audited in this run"),
        ({"unreachable": True, "msg": "Task failed: no route"}, "unreachable: no route"),
        (
            {
                "unreachable": True,
                "msg": 'Task failed: Data could not be sent to remote host "h". Make sure this host can be reached '
                "over ssh: ssh: connect to host h port 22: Connection refused\r\n",
            },
            "unreachable: ssh: connect to host h port 22: Connection refused",
        ),
        (
            {"unreachable": True, "msg": "Failed to connect to the host via ssh: root@h: Permission denied"},
            "unreachable: root@h: Permission denied",
        ),
        ({"unreachable": True}, "unreachable: "),
        ({"skipped": True}, "its audit was skipped"),
        ({"report": None, "error": "Python is too old."}, "Python is too old."),
        ({"failed": True, "msg": "boom"}, "boom"),
        ({}, "it sent no report"),
        ({"report": {}, "error": None}, "it sent no report"),
        ({"report": {"schema": 9}}, "its report is not valid: it is not of schema 1"),
    ],
)
def test_a_host_without_a_report_says_why(registered: Any, error: str) -> None:
    assert audits.host_entry("h1", "n1", registered) == {
        "host": "h1",
        "node": "n1",
        "report": None,
        "error": error,
        "cluster": None,
    }
