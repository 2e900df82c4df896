"""A simulated fleet whose owner has no name in /etc/passwd, as in many containers: its owner is its root all the same."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rehearsal import LIMIT_S, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

UID = 54321
PYTHON = "/usr/bin/python3"  # a system's, which every user may run
SETPRIV = ("/usr/bin/setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")


def can_be_somebody_else() -> bool:
    asked = (
        *SETPRIV,
        PYTHON,
        "-c",
        f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r}); import mpsfleet.cli",
    )
    try:
        return os.geteuid() == 0 and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a directory of the owner's, reached by everybody, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="mpsf.") as folder:
        os.chown(folder, UID, UID)
        yield Path(folder)


@pytest.mark.skipif(not can_be_somebody_else(), reason="takes root, setpriv and a Python and a checkout for everybody")
def test_it_is_drained_and_given_back(home: Path) -> None:
    own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PYTHONPATH": str(REPOSITORY / "src")}

    def sim(*words: str) -> str:
        command = (*SETPRIV, PYTHON, "-m", "mpsfleet", "sim", *words)
        done = subprocess.run(
            command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    sim("up", "1", "--terse")
    try:
        sim("exec", "ctl", "mpsfleet", "slurm", "drain", "n1", "--code", "reset", "--cluster", "sim")
        drained = sim("exec", "ctl", "sinfo", "-R")
        sim("exec", "ctl", "mpsfleet", "slurm", "undrain", "n1", "--cluster", "sim")
        given_back = sim("exec", "ctl", "sinfo", "-R")
    finally:
        sim("down")
    assert "mpsfleet: reset      root" in drained
    assert "mpsfleet: " not in given_back
