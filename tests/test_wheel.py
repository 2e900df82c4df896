"""The pip package: its wheel carries the program as one file, so that a rehearsal needs nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mpsfleet import program

REPOSITORY = Path(__file__).resolve().parent.parent
NODE_TOML = 'schema = 1\n[slurm]\ncluster = "sim"\n[gpus]\nexpected = 4\n'

pytestmark = pytest.mark.slow


def run(*command: str | Path, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more  # no checkout's
    done = subprocess.run(
        [str(each) for each in command],
        input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, REPOSITORY)
    return next(folder.glob("mpsfleet-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `mpsfleet` of a fresh environment that has the wheel, and what it depends on."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin/mpsfleet"


def test_it_holds_the_very_file_that_a_checkout_builds(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "mpsfleet.pyz"
    run(sys.executable, REPOSITORY / "tools/build_pyz.py", "--output", target)
    assert zipfile.ZipFile(wheel).read(f"mpsfleet/{program.CARRIED}") == target.read_bytes()


def test_a_simulated_node_is_deployed_from_it_alone(installed: Path, wheel: Path, tmp_path: Path) -> None:
    carried = zipfile.ZipFile(wheel).read(f"mpsfleet/{program.CARRIED}")
    on_n1 = (installed, "sim", "exec", "n1", "mpsfleet")
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    run(installed, "sim", "up", "1", **runtime)
    try:
        run(*on_n1, "node", "apply", "--config", "-", stdin=NODE_TOML, **runtime)
        report = json.loads(run(*on_n1, "node", "audit", "--json", **runtime).stdout)
        running = json.loads(run(*on_n1, "--version", "--json", **runtime).stdout)
    finally:
        run(installed, "sim", "down", **runtime)
    assert (report["verdict"], report["node"]) == ("ok", "n1")
    assert running["digest"] == hashlib.sha256(carried).hexdigest()


def test_the_sources_stay_without_it(wheel: Path) -> None:
    assert wheel.exists()
    assert not (REPOSITORY / "src/mpsfleet" / program.CARRIED).exists()
