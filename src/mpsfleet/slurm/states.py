"""A node's state in Slurm as a value: one base state and a set of flags.

`scontrol show nodes` prints `BASE+FLAG+FLAG`; DRAIN is a flag and never a base. sinfo, and scontrol up to 20.11, mark
some flags by a sign after the base (`DOWN*`). The words are those of node_states, node_state_flags and
node_state_string in Slurm's src/common/slurm_protocol_defs.c, 22.05.8 and 24.11.5. A flag that is not known is kept:
it forbids every action.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

DRAIN = "DRAIN"
COMPLETING = "COMPLETING"
NOT_RESPONDING = "NOT_RESPONDING"
INVALID_REG = "INVALID_REG"
FAIL = "FAIL"
MAINTENANCE = "MAINTENANCE"
REBOOT_FLAGS = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT_CANCEL"})
POWER_FLAGS = frozenset({"POWER_DOWN", "POWER_UP", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DRAIN"})
# What says nothing against a drain: where the node comes from, and what the scheduler plans with it.
HARMLESS_FLAGS = frozenset(
    {"CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "DYNAMIC", "RESERVED", "PLANNED", "BLOCKED", "PERFCTRS"},
)
KNOWN_FLAGS = (
    frozenset({DRAIN, COMPLETING, NOT_RESPONDING, INVALID_REG, FAIL, MAINTENANCE, "RESUME"})
    | REBOOT_FLAGS
    | POWER_FLAGS
    | HARMLESS_FLAGS
)

_LONG = {"MAINT": MAINTENANCE, "REBOOT": "REBOOT_REQUESTED", "POWER": "POWERED_DOWN", "NO_RESPOND": NOT_RESPONDING}
_SIGNS = {
    "*": NOT_RESPONDING,
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "$": MAINTENANCE,
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "!": "POWER_DOWN",
    "-": "PLANNED",
}
_SHAPE = re.compile(r"([A-Za-z?][A-Za-z0-9_]*)([*~#%$@^!-]*)((?:\+[A-Za-z?][A-Za-z0-9_]*)*)(\+?)")


class Base(enum.Enum):
    """What the node does. UNSAID: the word names a mixture (`DRAINED`, `MAINT`) that hides the base."""

    ALLOCATED = "ALLOCATED"
    DOWN = "DOWN"
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    IDLE = "IDLE"
    MIXED = "MIXED"
    UNKNOWN = "UNKNOWN"
    UNSAID = "UNSAID"


# Words that stand where a base stands: full ones, sinfo's short ones, and mixtures with the flags they imply.
_BASES: dict[str, tuple[Base, frozenset[str]]] = {
    **{each.value: (each, frozenset()) for each in Base if each is not Base.UNSAID},
    "ALLOC": (Base.ALLOCATED, frozenset()),
    "MIX": (Base.MIXED, frozenset()),
    "FUTR": (Base.FUTURE, frozenset()),
    "UNK": (Base.UNKNOWN, frozenset()),
    "DRAINED": (Base.UNSAID, frozenset({DRAIN})),
    "DRAIN": (Base.UNSAID, frozenset({DRAIN})),
    "DRAINING": (Base.UNSAID, frozenset({DRAIN})),
    "DRNG": (Base.UNSAID, frozenset({DRAIN})),
    "COMPLETING": (Base.UNSAID, frozenset({COMPLETING})),
    "COMP": (Base.UNSAID, frozenset({COMPLETING})),
    "FAIL": (Base.UNSAID, frozenset({FAIL})),
    "FAILING": (Base.UNSAID, frozenset({FAIL})),
    "FAILG": (Base.UNSAID, frozenset({FAIL})),
    "MAINT": (Base.UNSAID, frozenset({MAINTENANCE})),
    "REBOOT": (Base.UNSAID, frozenset({"REBOOT_REQUESTED"})),
    "BOOT": (Base.UNSAID, frozenset({"REBOOT_REQUESTED"})),
    "INVAL": (Base.UNSAID, frozenset({INVALID_REG})),
    "RESERVED": (Base.IDLE, frozenset({"RESERVED"})),
    "RESV": (Base.IDLE, frozenset({"RESERVED"})),
    "PLANNED": (Base.IDLE, frozenset({"PLANNED"})),
    "PLND": (Base.IDLE, frozenset({"PLANNED"})),
    "PERFCTRS": (Base.IDLE, frozenset({"PERFCTRS"})),
}


@dataclass(frozen=True)
class NodeState:
    """`base` and `flags` as read, and `raw`, the word itself."""

    base: Base
    flags: frozenset[str]
    raw: str

    @property
    def is_drain(self) -> bool:
        """Slurm places no new job on the node, whether jobs are still on it or not."""
        return DRAIN in self.flags

    @property
    def has_jobs(self) -> bool:
        """A job is on the node or being cleaned up. True too where the base is not said: none cannot be claimed."""
        return self.base in (Base.ALLOCATED, Base.MIXED, Base.UNSAID) or COMPLETING in self.flags

    @property
    def drained(self) -> bool:
        """DRAIN with nothing of a job left: the only state in which the node may be worked on."""
        return self.is_drain and self.base is Base.IDLE and COMPLETING not in self.flags

    @property
    def draining(self) -> bool:
        """DRAIN, and jobs still on the node."""
        return self.is_drain and self.has_jobs

    @property
    def responding(self) -> bool:
        """The node's slurmd answers slurmctld."""
        return NOT_RESPONDING not in self.flags

    @property
    def is_maintenance(self) -> bool:
        """The node is in a maintenance reservation."""
        return MAINTENANCE in self.flags

    @property
    def is_reboot(self) -> bool:
        """A reboot was asked for, or is under way."""
        return bool(self.flags & REBOOT_FLAGS)

    @property
    def is_power(self) -> bool:
        """Power saving has the node off, or is switching it."""
        return bool(self.flags & POWER_FLAGS)

    @property
    def unknown_flags(self) -> tuple[str, ...]:
        """The flags this program does not know, sorted."""
        return tuple(sorted(self.flags - KNOWN_FLAGS))


def parse(word: str) -> NodeState:
    """Read one state word of scontrol or sinfo. Raises ValueError where it is not one; unknown flags are kept."""
    match = _SHAPE.fullmatch(word)
    if match is None:
        raise ValueError(f"{word[:60]!r} is not a node state")
    name, signs, rest, open_end = match.groups()
    known = _BASES.get(name.upper())
    # A word that is not known may hide anything: kept as a flag, so that it forbids every action.
    base, implied = known if known is not None else (Base.UNSAID, frozenset({_long(name)}))
    flags = implied | {_SIGNS[each] for each in signs} | {_long(each) for each in rest.split("+") if each}
    if open_end:  # sinfo's `alloc+`
        flags |= {COMPLETING}
    return NodeState(base, frozenset(flags), word)


def _long(word: str) -> str:
    return _LONG.get(word.upper(), word.upper())
