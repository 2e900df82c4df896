# SPDX-License-Identifier: Apache-2.0

"""What a verdict comes to for the person who runs the play."""

from __future__ import annotations

from typing import Any

from ansible_collections.mpsfleet.mps.plugins.plugin_utils import outcome


def host(name: str, verdict: str, message: str = "No daemon runs.") -> dict[str, Any]:
    """A host of the reports input."""
    found = [] if verdict == "ok" else [{"code": "daemon-absent", "severity": verdict, "message": message}]
    return {"host": name, "node": name, "report": {"verdict": verdict, "findings": found}, "error": None}


def silent(name: str, error: str) -> dict[str, Any]:
    return {"host": name, "node": name, "report": None, "error": error}


def answer(*verdicts: str) -> dict[str, Any]:
    """A program's answer with one host n1, n2 … for each verdict."""
    hosts = [
        {"host": f"n{number}", "node": f"n{number}", "verdict": each, "message": ""}
        for number, each in enumerate(verdicts, 1)
    ]
    return {
        "verdict": max(verdicts, key=outcome.VERDICTS.index),
        "changed": False,
        "hosts": hosts,
        "slurm": {"asked": True, "cluster": "lab", "error": None},
        "lines": ["n1: ok"],
    }


def test_without_slurm_the_nodes_own_verdicts_are_told() -> None:
    hosts = [host("n1", "ok"), host("n2", "critical"), host("n3", "ok"), silent("n4", "unreachable: no route")]

    local = outcome.local_answer(hosts, "no group")

    assert local["lines"] == [
        "slurm: unknown: Slurm could not be asked: no group",
        "n2: critical: daemon-absent: No daemon runs.",
        "n4: unknown: unreachable: no route",
        "n1,n3: ok",
    ]
    assert local["verdict"] == "critical"


def test_without_slurm_a_fleet_that_is_well_is_unknown() -> None:
    local = outcome.local_answer([host("n1", "ok")], "no group")

    result = outcome.registered_result(local, {})

    assert (result["verdict"], result["failed"]) == ("unknown", True)
    assert result["msg"] == "all 1 hosts are well by their own reports; Slurm could not be asked: no group"


def test_a_fleet_that_is_well_does_not_fail() -> None:
    result = outcome.registered_result(answer("ok", "warn"), {})

    assert "failed" not in result
    assert result["counts"] == {"ok": 1, "warn": 1}
    assert [each["host"] for each in result["hosts"]] == ["n2"]


def test_the_failing_sentence_names_the_hosts_the_worst_first() -> None:
    result = outcome.registered_result(answer("unknown", "ok", "critical"), {})

    assert result["msg"] == "2 of 3 hosts are not well: n3 (critical), n1 (unknown)"


def test_the_failing_sentence_does_not_name_a_thousand_hosts() -> None:
    result = outcome.registered_result(answer(*["critical"] * 1000), {})

    assert result["msg"].endswith("n20 (critical) and 980 more")


def test_what_was_asked_for_and_not_done_fails_a_host_that_is_well() -> None:
    problems = {"n1": "it was not reset", "n2": "it was not reset"}

    result = outcome.registered_result(answer("ok", "ok", "ok"), problems)

    assert result["msg"] == "2 of 3 hosts are not well: n1 (not done), n2 (not done)"
    assert outcome.printed_lines(answer("ok"), problems) == ["n1: ok", "n1,n2: not done: it was not reset"]
