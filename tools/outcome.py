"""How a step ends: passed, failed or skipped, with the reason, and the closing line of a test runner."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY = Path(__file__).resolve().parent.parent
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# pytest's last line, e.g. `=== 3 failed, 356 passed in 3.58s ===`, coloured or not
_CLOSING = re.compile(r"^=+ .*\d+ (passed|failed|error|skipped|deselected).* in [\d.]+s.*=+$")


class Outcome(NamedTuple):
    """What came of a step."""

    status: str
    note: str = ""  # why it failed or was skipped
    closing: str = ""  # the test runner's own last line
    exit_code: int = 0

    @property
    def why(self) -> str:
        """The note, as it follows a status."""
        return f"  ({self.note})" if self.note else ""


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path = REPOSITORY) -> Outcome:
    """Run a command, showing what it says as it comes; its exit code says whether the step passed."""
    print(f"$ {' '.join(command)}", flush=True)
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        last: deque[str] = deque(maxlen=5)
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last.append(line.strip())
    closing = next((line for line in reversed(last) if _CLOSING.match(line)), "")
    if process.returncode:
        return Outcome(FAILED, f"exit code {process.returncode}", closing, process.returncode)
    return Outcome(PASSED, "", closing)
