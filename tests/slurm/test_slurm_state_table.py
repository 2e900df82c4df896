"""The table of Slurm's states: every row, in the program's own decisions, and every set of flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.slurm import drains, states
from mpsfleet.slurm.drains import Action
from mpsfleet.slurm.nodes import Node, Reason
from mpsfleet.slurm.state_table import BASES, BY_NAME, FLAGS, ROWS, Row, Step, sign, spelled
from mpsfleet.slurm.states import Base

OURS = Reason("mpsfleet: reset", "root", None)
CHANGES = (Step.DRAIN, Step.UNDRAIN, Step.RESET)
BASE_WORDS = st.sampled_from([row.name for row in BASES])
FLAG_WORDS = st.sets(st.sampled_from([row.name for row in FLAGS]), max_size=5)
# What slurm_protocol_defs.c and the data parsers of 20.11 to 26.05 can print; JSON's REBOOT_CANCELED is REBOOT_CANCEL.
SLURMS_BASES = {"DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE", "UNKNOWN"}
SLURMS_FLAGS = """
    BLOCKED CLOUD COMPLETING DRAIN DYNAMIC_FUTURE DYNAMIC_NORM EXTERNAL FAIL INVALID_REG MAINTENANCE NOT_RESPONDING
    PERFCTRS PLANNED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_DRAIN POWER_UP REBOOT_CANCEL REBOOT_ISSUED
    REBOOT_REQUESTED RESERVED RESUME UNDRAIN
"""
# What may stand against a step. A row that comes to allow more must be taken from here by hand.
FORBIDS = {
    Step.DRAIN: "DOWN UNKNOWN ERROR FUTURE FAIL MAINTENANCE REBOOT_ISSUED REBOOT_REQUESTED REBOOT_CANCEL POWERED_DOWN "
    "POWERING_DOWN POWERING_UP POWER_UP POWER_DOWN POWER_DRAIN EXTERNAL NOT_RESPONDING INVALID_REG RESUME UNDRAIN DRAIN",
    Step.UNDRAIN: "DOWN UNKNOWN ERROR FUTURE ALLOCATED MIXED COMPLETING FAIL MAINTENANCE REBOOT_ISSUED REBOOT_REQUESTED "
    "REBOOT_CANCEL POWERED_DOWN POWERING_DOWN POWERING_UP POWER_UP POWER_DOWN POWER_DRAIN EXTERNAL NOT_RESPONDING "
    "INVALID_REG RESUME UNDRAIN",
    Step.RESET: "DOWN UNKNOWN ERROR FUTURE ALLOCATED MIXED COMPLETING REBOOT_ISSUED REBOOT_REQUESTED REBOOT_CANCEL "
    "POWERED_DOWN POWERING_DOWN POWERING_UP POWER_UP POWER_DOWN POWER_DRAIN EXTERNAL RESUME UNDRAIN",
    Step.CONTACT: "FUTURE REBOOT_ISSUED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_UP",
}


def node(*words: str) -> Node:
    state = states.parse("+".join(words))
    return Node("n1", state, reason=OURS if state.is_drain else None)


def is_done(step: Step, found: Node) -> bool:
    """Tell whether the program would take the step: by its own decision, or by what a reset waits for."""
    if step is Step.DRAIN:
        return drains.decide_drain(found, "daemon-absent", None, "root").action is Action.DRAIN
    if step is Step.UNDRAIN:
        return drains.decide_undrain(found, "root").action is Action.UNDRAIN
    return found.state.drained and found.state.work_obstacle is None


def test_the_table_has_every_state_that_slurm_prints() -> None:
    assert {row.name for row in BASES} == SLURMS_BASES == {each.value for each in Base} - {"UNSAID"}
    assert {row.name for row in FLAGS} == set(SLURMS_FLAGS.split()) == states.KNOWN_FLAGS


@pytest.mark.parametrize("step", Step)
def test_what_stands_against_a_step_is_what_is_written_here(step: Step) -> None:
    assert {row.name for row in ROWS if not row.allows(step)} == set(FORBIDS[step].split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("step", CHANGES)
def test_a_step_is_taken_where_the_row_allows_it(row: Row, step: Step) -> None:
    base = row.name if row in BASES else "IDLE"
    words = [base, *([row.name] if row in FLAGS else []), *(["DRAIN"] if step is not Step.DRAIN else [])]
    assert is_done(step, node(*words)) is row.allows(step)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_it_is_and_why_it_forbids(row: Row) -> None:
    assert row.meaning.endswith(".")
    assert bool(row.why) is not all(row.allows(step) for step in Step)
    for step in Step:
        why = states.obstacle(node(row.name if row in BASES else f"IDLE+{row.name}").state, step)
        assert why == (None if row.allows(step) else row.why)


@pytest.mark.parametrize("row", FLAGS, ids=lambda row: row.name)
def test_a_flags_other_words_and_its_sign_are_the_flag(row: Row) -> None:
    mark = sign(row)
    words = [f"IDLE+{word}" for word in spelled(row)] + ([f"IDLE{mark}"] if mark else [])
    assert all(states.parse(word).flags == {row.name} for word in words)


@pytest.mark.parametrize("row", BASES, ids=lambda row: row.name)
def test_a_bases_other_words_are_the_base(row: Row) -> None:
    assert all(states.parse(word).base.value == row.name for word in spelled(row))


def test_no_word_and_no_sign_means_two_states() -> None:
    words = [word for row in ROWS for word in (row.name, *row.also)]
    assert len(words) == len(set(words))


@given(BASE_WORDS, FLAG_WORDS)
def test_one_flag_that_forbids_is_enough(base: str, flags: set[str]) -> None:
    for step in CHANGES:
        words = flags - {"DRAIN"} if step is Step.DRAIN else flags | {"DRAIN"}
        allowed = all(BY_NAME[each].allows(step) for each in (base, *words))
        assert is_done(step, node(base, *sorted(words))) is allowed


@given(BASE_WORDS, FLAG_WORDS)
def test_a_node_is_off_where_one_of_its_states_says_so(base: str, flags: set[str]) -> None:
    off = [each for each in (base, *flags) if not BY_NAME[each].contact]
    assert (states.obstacle(node(base, *sorted(flags)).state, Step.CONTACT) is None) is not bool(off)


@given(BASE_WORDS, FLAG_WORDS, st.sampled_from(["BESPOKE", "QUANTUM", "?"]))
def test_a_flag_that_nobody_knows_forbids_every_change(base: str, flags: set[str], unknown: str) -> None:
    for step in CHANGES:
        words = flags - {"DRAIN"} if step is Step.DRAIN else flags | {"DRAIN"}
        assert not is_done(step, node(base, *sorted(words), unknown))
        assert states.obstacle(states.parse(f"IDLE+{unknown}"), step) is not None


@pytest.mark.parametrize("word", ["DRAINED", "DRNG", "MAINT", "FAILING", "COMP", "INVAL", "BOOT", "NEVER_SEEN"])
def test_a_word_that_hides_the_base_forbids_every_change(word: str) -> None:
    assert not any(is_done(step, node(word)) for step in CHANGES)
