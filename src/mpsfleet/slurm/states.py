"""A node's state in Slurm as a value: one base state and a set of flags.

`scontrol show nodes` prints `BASE+FLAG+FLAG`; DRAIN is a flag and never a base. sinfo, and scontrol up to 20.11, mark
some flags by a sign after the base (`DOWN*`). Which words there are, and what each allows, says state_table. A flag
that is not known is kept: it forbids every step that changes the node.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from mpsfleet.show import show
from mpsfleet.slurm.state_table import BASES, BY_NAME, FLAGS, JOB, ROWS, Step, sign, spelled

DRAIN = "DRAIN"
COMPLETING = "COMPLETING"
NOT_RESPONDING = "NOT_RESPONDING"
INVALID_REG = "INVALID_REG"
FAIL = "FAIL"
MAINTENANCE = "MAINTENANCE"
KNOWN_FLAGS = frozenset(row.name for row in FLAGS)
REBOOT_FLAGS = frozenset(each for each in KNOWN_FLAGS if each.startswith("REBOOT_"))
POWER_FLAGS = frozenset(each for each in KNOWN_FLAGS if each.startswith("POWER"))
# What says nothing against any step: where the node comes from, and what the scheduler plans with it.
HARMLESS_FLAGS = frozenset(row.name for row in FLAGS if all(row.allows(step) for step in Step))

_LONG = {word: row.name for row in FLAGS for word in spelled(row)}
_SIGNS = {mark: row.name for row in FLAGS for mark in [sign(row)] if mark is not None}
_PLACE = {row.name: place for place, row in enumerate(ROWS)}
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
    **{word: (Base[row.name], frozenset()) for row in BASES for word in spelled(row)},
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
        """DRAIN with nothing of a job left: the node may be worked on, unless a flag says otherwise (work_obstacle)."""
        return self.is_drain and self.base is Base.IDLE and COMPLETING not in self.flags

    @property
    def work_obstacle(self) -> str | None:
        """Why the node is not worked on though it is drained and idle, as words after "The node"; None where it may."""
        why = obstacle(self, Step.RESET)
        return None if why == JOB else why

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


def obstacle(state: NodeState, step: Step) -> str | None:
    """Say why a node in this state is left alone, as words after "The node"; None where the step is allowed.

    It is, where the base and every flag are known to allow it. What is not known is still asked (Step.CONTACT): that
    changes nothing, and a silence that nothing explains is told. JOB is said only where nothing else stands against it.
    """
    rows = [BY_NAME[each] for each in (state.base.value, *state.flags) if each in BY_NAME]
    forbidding = sorted((row for row in rows if not row.allows(step)), key=lambda row: _PLACE[row.name])
    why = next((row.why for row in forbidding if row.why != JOB), None)
    if why is None and step is not Step.CONTACT:
        if state.unknown_flags:
            return f"has a state that this program does not know ({show(', '.join(state.unknown_flags), 60)})"
        if state.base is Base.UNSAID:
            return "is in a state that allows no such step"
    return why if why is not None or not forbidding else JOB


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
