"""A fake Slurm at the door, for all tests of this folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mpsfleet.slurm import cli
from mpsfleet.slurm.commands import Caller, Scontrol

ROOT = Caller(0, 0, {})
SOUND = Path(__file__).with_name("cases") / "lint"
FAKE = Path(__file__).with_name("fake_scontrol.py")


class FakeSlurm:
    """A directory with a scontrol that keeps a small cluster in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        program = directory / "scontrol"
        program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text(encoding='utf-8')}", encoding="utf-8")
        program.chmod(0o755)
        self.write(name="lab", mode="", nodes={})

    def write(self, **changes: Any) -> None:
        cluster = {**self.cluster(), **changes}
        (self.directory / "cluster.json").write_text(json.dumps(cluster), encoding="utf-8")

    def cluster(self) -> dict[str, Any]:
        path = self.directory / "cluster.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def add(self, name: str, state: str = "IDLE", reason: str | None = None, **more: Any) -> None:
        nodes = self.cluster()["nodes"]
        self.write(nodes={**nodes, name: {"state": state, "reason": reason, **more}})

    def node(self, name: str) -> tuple[str, str | None]:
        node = self.cluster()["nodes"][name]
        return node["state"], node["reason"]

    def calls(self) -> list[dict[str, Any]]:
        path = self.directory / "calls.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def updates(self) -> list[list[str]]:
        return [each["words"] for each in self.calls() if each["words"][0] == "update"]

    def door(self, timeout_s: float = 10.0, caller: Caller | None = None) -> Scontrol:
        return Scontrol((str(self.directory),), timeout_s, caller or Caller(0, 0, {}))


class Lint:
    """`mpsfleet slurm lint` on a folder with the sound files of the cases."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        for name in ("slurm.conf", "gres.conf"):
            (folder / name).write_text((SOUND / name).read_text(encoding="utf-8"), encoding="utf-8")

    def run(self, *words: str, caller: Caller = ROOT, root: str = "") -> tuple[int, str, str]:
        """Give exit status and both streams."""
        status = cli.main(["lint", *words], Scontrol((), caller=caller), root)
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err


@pytest.fixture
def lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lint:
    return Lint(tmp_path, capsys)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path)
