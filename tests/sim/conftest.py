"""Fixtures: the program as one file, and a simulated fleet that is taken away whatever happens."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rehearsal import REPOSITORY, Rehearsal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("program") / "mpsfleet.pyz"
    command = [sys.executable, str(REPOSITORY / "tools" / "build_pyz.py"), "--output", str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return target


@pytest.fixture
def nothing_up(program: Path, tmp_path: Path) -> Iterator[Rehearsal]:
    """Give a place to start a fleet from, none being up."""
    rehearsal = Rehearsal(tmp_path, program)
    try:
        yield rehearsal
    finally:
        rehearsal.sim("down", code=None)


@pytest.fixture(scope="module")
def fleet(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """Start two nodes and deploy on n1."""
    rehearsal = Rehearsal(tmp_path_factory.mktemp("run"), program)
    try:
        rehearsal.sim("up", "2")
        rehearsal.apply("n1")
        yield rehearsal
    finally:
        rehearsal.sim("down", code=None)
