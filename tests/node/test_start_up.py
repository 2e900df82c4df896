"""The healthy path loads little: every module costs every audit of every node its start-up time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
TOO_DEAR = {
    "argparse",
    "subprocess",
    "dataclasses",
    "logging",
    "concurrent.futures",
    "asyncio",
    "ctypes",
    "difflib",
    "pathlib",
    "pwd",
    "tomllib",
}
SCRIPT = """
import sys
sys.path.insert(0, {source!r})
import mpsfleet.cli
import mpsfleet.node.audit
import mpsfleet.node.render.json
print(*sys.modules)
"""


def test_an_audit_loads_nothing_dear() -> None:
    command = (sys.executable, "-IS", "-c", SCRIPT.format(source=str(SOURCE)))

    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())

    assert "mpsfleet.node.probe" in loaded
    assert loaded & TOO_DEAR == set()
    assert {each for each in loaded if each.startswith("mpsfleet.slurm")} == set()
