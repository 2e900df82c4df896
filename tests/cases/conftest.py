"""The public cases as data: one TOML file a group, one table a case, and in it lists of rows, a list for each test.

A test that names a list as its argument (`expand`) is run once for each of its rows, whatever case they stand in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

Row = dict[str, Any]
FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "node"))  # the facts of a sound node, which the tests of a node build
PROSE = ("source", "evidence", "about", "left_out", "not_shown")  # of a case; all else is a list of rows
FILES = tuple(sorted(FOLDER.glob("*.toml")))
CASES: dict[str, Row] = {}
for _path in FILES:  # a case may stand in several groups, each with lists of its own
    for _name, _case in tomli.loads(_path.read_text(encoding="utf-8")).items():
        _before = CASES.setdefault(_name, {})
        for _kind, _rows in _case.items():
            _before[_kind] = _rows if _kind in PROSE else [*_before.get(_kind, ()), *_rows]


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
    """Give the cases of the groups about deploys, GRES and host lists."""
    files = (path for path in FILES if path.stem in ("deploying", "gres", "host_lists"))
    return {name: case for path in files for name, case in tomli.loads(path.read_text(encoding="utf-8")).items()}


@pytest.fixture(scope="session")
def every_case() -> dict[str, Row]:
    return CASES
