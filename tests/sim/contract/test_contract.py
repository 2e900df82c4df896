"""The contract between NVIDIA's control daemon and the simulated one: every fact holds for both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from contract import facts_answers, facts_files, facts_life, facts_servers
from contract.facts import FACTS, Fact
from contract.implementations import ALWAYS, IMPLEMENTATIONS, REQUIRE_VARIABLE, NotHere, control_binary

if TYPE_CHECKING:
    from contract.subject import Subject

ROOMS = (facts_life, facts_files, facts_answers, facts_servers)  # importing them fills FACTS


@pytest.mark.parametrize("fact", FACTS, ids=lambda each: each.show.__name__)
def test_contract(fact: Fact, subject: Subject) -> None:
    fact.show(subject)


def test_where_the_lab_is_required_nvidias_daemon_was_asked() -> None:
    if not os.environ.get(REQUIRE_VARIABLE):
        pytest.skip(f"{REQUIRE_VARIABLE} is not set")
    try:
        control_binary(next(each for each in IMPLEMENTATIONS if each.is_real and each.version == ALWAYS))
    except NotHere as error:
        pytest.fail(str(error))
