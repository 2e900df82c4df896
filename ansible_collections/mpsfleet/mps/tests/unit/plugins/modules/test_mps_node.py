# SPDX-License-Identifier: Apache-2.0

"""The words that mps_node and mps_reset give to the program."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.mpsfleet.mps.plugins.modules import mps_node, mps_reset


def reset(**changed: Any) -> dict[str, Any]:
    return {"any_drain": False, "gpus": [], "others": False, **changed}


def test_a_configuration_is_read_from_standard_input() -> None:
    words = mps_node.words_for({"state": "applied", "config": ""}, is_check=False)

    assert words == ("node", "apply", "--json", "--config", "-")


def test_a_removal_reads_no_configuration() -> None:
    words = mps_node.words_for({"state": "removed", "config": "schema = 1"}, is_check=True)

    assert words == ("node", "remove", "--json", "--dry-run")


@pytest.mark.parametrize(("state", "verb"), [("quiesced", "quiesce"), ("unquiesced", "unquiesce")])
def test_work_on_the_driver_reads_no_configuration(state: str, verb: str) -> None:
    words = mps_node.words_for({"state": state, "config": "schema = 1"}, is_check=False)

    assert words == ("node", verb, "--json")


def test_a_reset_is_of_the_whole_node() -> None:
    assert mps_reset.words_for(reset(), is_check=False) == ("node", "reset", "--json")


def test_a_reset_of_some_gpus_names_each() -> None:
    words = mps_reset.words_for(reset(gpus=[0, 2], others=True), is_check=True)

    assert words == ("node", "reset", "--json", "--dry-run", "--gpu", "0", "--gpu", "2", "--others")
