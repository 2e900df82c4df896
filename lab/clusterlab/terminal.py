"""What the lab says while it works: one line per step on stderr, stdout stays free for answers."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"lab: {line}", file=sys.stderr, flush=True)
