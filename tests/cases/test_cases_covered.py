"""Which public cases are here, by what they are about; none is left out without a reason that stands beside it.

The numbers are those under which the cases were collected; they are not consecutive. `not_shown` of a case says why it
cannot be one here: nothing is asked that could answer so, or it takes processes, which the simulator and the lab have.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cases.conftest import Row

COVERED = {
    "host lists": "C01 C02 C05 C06",
    "drain policy": "H02 H03 H04 H06 H07 H08 H09 H11 H12 H13 H14",
    "nvidia-smi": "A01 A02 A03 A04 A05 A07 A08 A09 A10 A11 A12 A14 A16 A17 A18 A19 A20 A22 A23 A25",
    "scontrol and sinfo": (
        "B01 B02 B04 B05 B06 B08 B09 B10 B11 B12 B13 B14 B15 B17 B19 B20 B21 B22 B23 B24 B26 B27 D21"
    ),
    "the control daemon": "E01 E02 E03 E05 E09 E14 E15 E16 E17 E18 E19 E23 E24 E26 E27",
    "logs": "A18 E06 E07 E11 E12 E13 E22 E32 E33 I01 I02 I04 I06 I08 I09 I11 I12",
    "resets": "A04 A05 A08 A19 A20 A22 E09 E21 E29 E30 E31 F01 F03 F04 F05 F06 F07 F08 F10 F11 F12 G18",
}
# No line of MPS's logs is read (E07, E11 to E13, E33); no GPU is reset (F01, F04, F05, F08, F10); an order of steps, a
# process that nothing ends and a job that is killed take processes (E21, E30, F06, F07, F11, G18).
NOT_SHOWN = {
    "E07", "E11", "E12", "E13", "E21", "E30", "E33",
    "F01", "F04", "F05", "F06", "F07", "F08", "F10", "F11", "G18",
}  # fmt: skip
PROSE = {"source", "evidence", "about", "left_out", "not_shown"}
EVERY = sorted({each for ids in COVERED.values() for each in ids.split()})


@pytest.mark.parametrize("number", EVERY)
def test_a_case_is_here_with_its_source_and_rows_or_a_reason(every_case: dict[str, Row], number: str) -> None:
    case = every_case[number]
    rows = {kind: case[kind] for kind in set(case) - PROSE}

    assert {"source", "evidence", "about"} <= set(case)
    assert all(rows.values())
    if number in NOT_SHOWN:
        assert not rows
        assert len(case["not_shown"].split()) > 5
    else:
        assert rows
        assert "not_shown" not in case


def test_what_is_shown_nowhere_is_known(every_case: dict[str, Row]) -> None:
    bare = {number for number, case in every_case.items() if not set(case) - PROSE}

    assert bare & set(EVERY) == NOT_SHOWN


def test_every_list_of_rows_has_a_test_that_takes_it(every_case: dict[str, Row]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    taken = {name for text in texts for name in re.findall(r"\bdef test_\w+\(\s*(\w+): (?:Row|str)\b", text)}

    assert {kind for case in every_case.values() for kind in case} - PROSE <= taken
