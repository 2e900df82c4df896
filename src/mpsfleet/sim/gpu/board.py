"""What GPUs nodes have, as one writes it down: `a100:4` or `a100:2+t4:2` is a node's board, commas part the nodes.

The simulated fleet and the lab (lab/) both read it here, so that n1 has the same GPUs in both.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from mpsfleet.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_GPUS = 16
_NAMESPACE = uuid.UUID("8f0b6b1e-6d0a-4c53-9d6a-0d9f3f1b7a10")
_BUSES = (0x07, 0x0B, 0x48, 0x4C, 0x88, 0x8B, 0xC8, 0xCB)  # as on an eight-GPU A100 board; further ones count on
_PART = re.compile(r"([a-z0-9]+):([0-9]{1,3})")


class Kind(NamedTuple):
    """A model of GPU: Slurm's type of it, NVIDIA's name, its memory, whether it knows MIG, its compute capability."""

    type: str
    name: str
    memory_mib: int
    has_mig: bool
    compute_capability: str


KINDS = (
    Kind("a100", "NVIDIA A100-SXM4-40GB", 40960, True, "8.0"),
    Kind("h100", "NVIDIA H100 80GB HBM3", 81559, True, "9.0"),
    Kind("v100", "Tesla V100-SXM2-32GB", 32768, False, "7.0"),
    Kind("t4", "Tesla T4", 15360, False, "7.5"),
)


class Board(NamedTuple):
    """The GPUs of one node, in nvidia-smi's order."""

    kinds: tuple[Kind, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Slurm's types of them, each once."""
        return tuple(dict.fromkeys(each.type for each in self.kinds))

    def minors(self, kind: str = "") -> tuple[int, ...]:
        """Return the device minor numbers in nvidia-smi's order, of one type or of all.

        The driver numbers GPUs as it finds them, nvidia-smi by their bus. On an eight-GPU A100 machine the two differ:
        GPUs 0 to 3 are /dev/nvidia2, 3, 0 and 1. So they do here on a board of several types.
        """
        count = len(self.kinds)
        shift = count // 2 if len(self.types) > 1 else 0
        return tuple((index + shift) % count for index, each in enumerate(self.kinds) if kind in ("", each.type))

    def __str__(self) -> str:
        counts = [(kind, sum(each.type == kind for each in self.kinds)) for kind in self.types]
        return "+".join(f"{kind}:{count}" for kind, count in counts) or "0"


def boards(text: str, nodes: int) -> tuple[Board, ...]:
    """Return the board of each of the nodes; one entry stands for all. UsageError says what is wrong with the text."""
    entries = [_board(each) for each in text.replace(" ", "").split(",")]
    if len(entries) == 1:
        return tuple(entries * nodes)
    if len(entries) != nodes:
        raise UsageError(f"--gpus {text} is for {len(entries)} nodes, and there are {nodes}: one entry each, or one")
    return tuple(entries)


def _board(text: str) -> Board:
    """Read one node's entry; a number alone counts A100s."""
    known = {each.type: each for each in KINDS}
    kinds: list[Kind] = []
    for part in (f"a100:{text}" if text.isdecimal() else text).split("+"):
        found = _PART.fullmatch(part)
        if found is None or found[1] not in known:
            raise UsageError(
                f"--gpus {text}: a node has a number of GPUs or TYPE:N+TYPE:N, TYPE one of {', '.join(known)}"
            )
        kinds += [known[found[1]]] * int(found[2])
    if len(kinds) > MOST_GPUS:
        raise UsageError(f"--gpus {text}: a node has at most {MOST_GPUS} GPUs")
    return Board(tuple(kinds))


def said(entries: Iterable[Board]) -> str:
    """Return boards as `--gpus` takes them; one entry where all are alike."""
    words = [str(each) for each in entries]
    return words[0] if len(set(words)) == 1 else ",".join(words)


def fresh(node: str, board: Board, driver_version: str) -> dict[str, Any]:
    """Return the state of a node whose GPUs are all well; the UUIDs follow from its name.

    `tool` is how nvidia-smi itself does (ok, hanging, mismatch, no-driver); a GPU's `state` is ok, lost, reset, missing
    or error.
    """
    return {
        "schema": 1,
        "tool": "ok",
        "driver_version": driver_version,
        "gpus": [
            {
                "uuid": f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}",
                "bus_id": f"00000000:{_BUSES[index] if index < len(_BUSES) else 0xD0 + index:02X}:00.0",
                "minor": minor,
                "name": kind.name,
                "memory_mib": kind.memory_mib,
                "compute_capability": kind.compute_capability,
                "mig": "Disabled" if kind.has_mig else "[N/A]",
                "compute_mode": "Default",
                "persistence_mode": "Enabled",
                "state": "ok",
            }
            for index, (kind, minor) in enumerate(zip(board.kinds, board.minors()))
        ],
    }
