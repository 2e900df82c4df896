# SPDX-License-Identifier: Apache-2.0

"""The words that slurm_lint gives to the program."""

from __future__ import annotations

from typing import Any

from ansible_collections.mpsfleet.mps.plugins.modules.slurm_lint import words_for

NAMES = ("slurm_conf", "gres_conf", "node", "gpus", "pipe_directory", "want", "shares")


def parameters(**changed: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "multi_user": False, "shared_gpus": {}, **changed}


def test_nothing_said_is_nothing_passed_on() -> None:
    assert words_for(parameters(slurm_conf="", shares=0), has_gpus=False) == ("slurm", "lint", "--json")


def test_a_value_is_never_taken_for_an_option() -> None:
    assert words_for(parameters(node="--json"), has_gpus=False)[-1] == "--node=--json"


def test_a_record_that_is_not_there_is_not_used() -> None:
    given = parameters(node="n1", gpus="/etc/mpsfleet/gpus.json")

    assert words_for(given, has_gpus=False) == ("slurm", "lint", "--json", "--node=n1")
    assert words_for(given, has_gpus=True)[-1] == "--gpus-json=/etc/mpsfleet/gpus.json"


def test_what_is_wanted_has_its_shares() -> None:
    words = words_for(parameters(want="shard", shares=8, multi_user=True), has_gpus=False)

    assert words[3:] == ("--want=shard", "--multi-user", "--shares=8")


def test_nodes_with_as_many_shared_gpus_are_one_word() -> None:
    words = words_for(parameters(shared_gpus={"n2": 1, "n1": 1, "n3": 4, "n4": 0}), has_gpus=False)

    assert words[3:] == ("--shared=1:n1,n2", "--shared=4:n3")
