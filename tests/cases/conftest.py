"""The public cases as data: one TOML file a group, one table a case, and in it lists of rows, a list for each test.

A test that names a list as its argument (`expand`) is run once for each of its rows, whatever case they stand in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli

Row = dict[str, Any]
FOLDER = Path(__file__).parent
PROSE = ("source", "evidence", "about", "left_out", "not_shown")  # of a case; all else is a list of rows
FILES = tuple(sorted(FOLDER.glob("*.toml")))
CASES: dict[str, Row] = {
    name: case for path in FILES for name, case in tomli.loads(path.read_text(encoding="utf-8")).items()
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = {kind for case in CASES.values() for kind in case if kind not in PROSE}
    for kind in kinds & set(metafunc.fixturenames):
        rows = [
            pytest.param(row, id=f"{name}-{number}")
            for name, case in sorted(CASES.items())
            for number, row in enumerate(case.get(kind, ()), 1)
        ]
        metafunc.parametrize(kind, rows)


@pytest.fixture(scope="session")
def cases() -> dict[str, Row]:
    return CASES
