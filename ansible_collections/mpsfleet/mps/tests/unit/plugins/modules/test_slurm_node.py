# SPDX-License-Identifier: Apache-2.0

"""The words that slurm_node gives to the program."""

from __future__ import annotations

from typing import Any

from ansible_collections.mpsfleet.mps.plugins.modules.slurm_node import words_for


def parameters(**changed: Any) -> dict[str, Any]:
    return {"name": "n1", "state": "drained", "code": "reset", "wait": None, "cluster": None, **changed}


def test_a_drain_names_its_code() -> None:
    assert words_for(parameters(), is_check=False) == ("slurm", "drain", "n1", "--code", "reset", "--json")


def test_a_drain_waits_where_asked_to_also_for_no_time() -> None:
    assert words_for(parameters(wait=0), is_check=False)[5:7] == ("--wait", "0")


def test_an_undrain_has_neither_code_nor_wait() -> None:
    words = words_for(parameters(state="undrained", wait=60, cluster="lab"), is_check=False)

    assert words == ("slurm", "undrain", "n1", "--cluster", "lab", "--json")


def test_check_mode_is_the_programs_dry_run() -> None:
    assert words_for(parameters(), is_check=True)[-1] == "--dry-run"


def test_no_cluster_and_an_empty_one_are_the_same() -> None:
    assert words_for(parameters(cluster=""), is_check=False) == words_for(parameters(), is_check=False)
