# SPDX-License-Identifier: Apache-2.0

"""What an acting verb answered, as a module's result."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.mpsfleet.mps.plugins.module_utils import acting

SICK = {
    "verdict": "critical",
    "findings": [
        {"code": "daemon-absent", "severity": "critical", "message": "No daemon runs", "remedy": "Reset it."},
        {"code": "directory-missing", "severity": "critical", "message": "No directory.", "remedy": "Reset it."},
        {"code": "percentage-differs", "severity": "warn", "message": "It is 10."},
    ],
}


def answer(**changed: Any) -> dict[str, Any]:
    unchanged = {"changed": False, "changes": [], "messages": [], "refused": None, "failed": None, "report": None}
    return {**unchanged, "dry_run": False, "waiting": [], "skipped": None, **changed}


def test_nothing_to_do_changes_nothing_and_does_not_fail() -> None:
    result = acting.acting_result(answer(), is_judged=True, is_refusal_told=False)

    assert (result["changed"], result.get("failed", False)) == (False, False)


def test_a_refusal_fails_with_its_sentence() -> None:
    result = acting.acting_result(answer(refused="A job is on the node."), is_judged=True, is_refusal_told=False)

    assert result["failed"]
    assert result["msg"] == result["refused"] == "A job is on the node."


def test_a_refusal_that_is_told_does_not_fail() -> None:
    result = acting.acting_result(answer(refused="The node is not drained."), is_judged=False, is_refusal_told=True)

    assert "failed" not in result
    assert result["refused"] == "The node is not drained."


CHANGE = {"what": "/etc/x", "action": "replace", "detail": "new"}


@pytest.mark.parametrize(("is_check", "words"), [(False, "All else was done."), (True, "All else would be done.")])
def test_a_daemon_that_waits_to_be_stopped_fails_and_keeps_what_was_changed(is_check: bool, words: str) -> None:
    said = answer(
        refused="x runs on as it is", waiting=["x"], changed=True, changes=[CHANGE], report=SICK, dry_run=is_check
    )

    result = acting.acting_result(said, is_judged=not is_check, is_refusal_told=False)

    assert (result["failed"], result["changed"], result["changes"]) == (True, True, [CHANGE])
    assert (result["waiting"], result["report"]) == (["x"], SICK)
    assert result["msg"] == f"x runs on as it is. {words}"


def test_a_daemon_that_waits_does_not_fail_where_the_node_will_be_drained_for_it() -> None:
    said = answer(refused="x runs on as it is", waiting=["x"], changed=True, changes=[CHANGE], dry_run=True)

    result = acting.acting_result(said, is_judged=False, is_refusal_told=False, is_drained_for=True)

    assert "failed" not in result
    assert (result["waiting"], result["refused"]) == (["x"], "x runs on as it is")


def test_any_other_refusal_fails_also_where_the_node_would_be_drained() -> None:
    said = answer(refused="NVIDIA's control program is not installed", dry_run=True)

    assert acting.acting_result(said, is_judged=False, is_refusal_told=False, is_drained_for=True)["failed"]


def test_a_node_without_a_gpu_is_skipped_and_says_why() -> None:
    result = acting.acting_result(answer(skipped="this node has no NVIDIA GPU"), is_judged=True, is_refusal_told=False)

    assert (result["skipped"], result["changed"]) == (True, False)
    assert result["msg"] == "this node has no NVIDIA GPU"
    assert "failed" not in result


@pytest.mark.parametrize("is_check", [True, False])
def test_a_failure_always_fails(is_check: bool) -> None:
    result = acting.acting_result(
        answer(failed="The unit did not start."), is_judged=not is_check, is_refusal_told=is_check
    )

    assert result["msg"] == "The unit did not start."


def test_a_node_that_is_still_sick_fails_with_its_findings() -> None:
    result = acting.acting_result(answer(changed=True, report=SICK), is_judged=True, is_refusal_told=False)

    assert result["failed"]
    assert result["msg"] == (
        "It was done, and the node is still critical. "
        "daemon-absent: No daemon runs. Reset it. directory-missing: No directory."
    )


@pytest.mark.parametrize("verdict", ["ok", "warn"])
def test_a_node_that_is_well_does_not_fail(verdict: str) -> None:
    assert "failed" not in acting.acting_result(
        answer(report={"verdict": verdict, "findings": []}), is_judged=True, is_refusal_told=False
    )


def test_a_sick_node_does_not_fail_where_it_is_not_judged_as_after_a_removal() -> None:
    assert "failed" not in acting.acting_result(answer(report=SICK), is_judged=False, is_refusal_told=True)


def test_contents_are_in_the_diff_and_not_in_the_changes() -> None:
    change = {"what": "/etc/x", "action": "replace", "detail": "new", "before": "a\n", "after": "b"}

    assert acting.acting_result(answer(changes=[change]), is_judged=True, is_refusal_told=False)["changes"] == [
        {"what": "/etc/x", "action": "replace", "detail": "new"}
    ]
    assert acting.diffs([change]) == [
        {"before_header": "/etc/x", "after_header": "/etc/x", "before": "a\n", "after": "b\n"}
    ]


def test_a_change_without_contents_is_one_line_of_the_diff() -> None:
    change = {"what": "nvidia-mps.service", "action": "start", "detail": "it is inactive"}

    assert acting.diffs([change]) == [{"prepared": "start nvidia-mps.service: it is inactive\n"}]
