"""Drain reasons as values: `mpsfleet: CODE` or `mpsfleet: CODE gpuN`, built from fixed words and nothing else.

A reason is ours only as a whole. Slurm appends to reasons (` : reboot issued`), and people add to them; what somebody
else had a hand in is somebody else's, whatever it starts with.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mpsfleet import codes
from mpsfleet.errors import UsageError
from mpsfleet.show import show

TAG = "mpsfleet:"
MOST_GPU = 999
# What UNDRAIN leaves in place of our reason. slurmctld clears the reason of a node that comes back, but not on 24.11
# without accounting; a drain of its own ("Prolog error") would then keep our old reason and pass for ours.
GIVEN_BACK = "undrained by mpsfleet"
_WHOLE = re.compile(r"mpsfleet: ([a-z][a-z0-9-]{0,63})(?: gpu(0|[1-9][0-9]{0,2}))?")

# Codes that were renamed, old name to new: a drain written under the old name stays ours. Never delete a line.
ALIASES: dict[str, str] = {}


class DrainReason(NamedTuple):
    """One of our reasons. `str()` is the text that Slurm stores."""

    code: str
    gpu: int | None = None

    def __str__(self) -> str:
        """Give the reason's whole text."""
        return f"{TAG} {self.code}" if self.gpu is None else f"{TAG} {self.code} gpu{self.gpu}"


def build(code: str, gpu: int | None = None) -> DrainReason:
    """Build the reason for a drain. Raises UsageError for a code that drains no node, or no possible GPU index."""
    if code not in codes.DRAIN_WORDS:
        why = "never drains a node" if code in codes.BY_NAME else "is no finding code"
        raise UsageError(f"{show(code, 60)} {why}; codes that do: {', '.join(sorted(codes.DRAIN_WORDS))}.")
    if gpu is not None and not 0 <= gpu <= MOST_GPU:
        raise UsageError(f"GPU index {gpu} is not between 0 and {MOST_GPU}.")
    return DrainReason(code, gpu)


def parse(text: str) -> DrainReason | None:
    """Read a whole reason; None where it is not ours, word for word. An old name gives the code's present one."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    code = ALIASES.get(match.group(1), match.group(1))
    if code not in codes.BY_NAME and code not in codes.DRAIN_WORDS:
        return None
    return DrainReason(code, None if match.group(2) is None else int(match.group(2)))
