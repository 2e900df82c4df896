"""Every state of a node that Slurm has a word for, and what may be done to a node in it: the one table of both.

The words are the base states and flags of Slurm 20.11 to 26.05: those of its manual pages (sinfo, scontrol), of
node_states and node_state_flags in src/common/slurm_protocol_defs.c, and of the data parsers, whose JSON knows a few
more. A step needs the base and every flag to allow it. A word that is not here allows nothing that changes a node.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Step(enum.Enum):
    """What is done to a node: draining it, giving it back, working on it while it is drained, asking it at all."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    RESET = "reset"
    CONTACT = "contact"


class Row(NamedTuple):
    """One base state or flag. `why` goes on after "The node", for each step that it forbids."""

    name: str
    drain: bool
    undrain: bool
    reset: bool
    contact: bool
    meaning: str  # one sentence, for documentation
    why: str = ""
    also: tuple[str, ...] = ()  # other words for it, and the sign by which sinfo and older scontrol mark it

    def allows(self, step: Step) -> bool:
        """Tell whether this state, by itself, allows the step."""
        return (self.drain, self.undrain, self.reset, self.contact)[_STEPS.index(step)]


_STEPS = tuple(Step)
JOB = "has a job on it"
_RESOURCES = "registered with other resources than slurm.conf gives it"
_REBOOT = "is to be rebooted or is rebooting"
_POWER = "is powered down, or is being powered up or down"
_CHANGING = "is in a state that allows no such step"

# In each group, what is told first stands first: of two rows that forbid a step, the upper one's sentence is said.
BASES = (
    Row(
        "DOWN", False, False, False, True, "The node is unavailable, and jobs that ran on it were ended.",
        "is DOWN: no job gets there, and bringing it back is not for mpsfleet to decide",
    ),
    Row(
        "UNKNOWN", False, False, False, True, "slurmctld has started, and the node has not registered yet.",
        "has not registered since slurmctld started, so its state is not known yet", ("UNK",),
    ),
    Row("ERROR", False, False, False, True, "The node is in an error of its own.", _CHANGING),
    Row("FUTURE", False, False, False, False, "slurm.conf has the node for a time to come.", _CHANGING, ("FUTR",)),
    Row("IDLE", True, True, True, True, "No job is on the node."),
    Row("ALLOCATED", True, False, False, True, "Jobs have the whole node.", JOB, ("ALLOC",)),
    Row("MIXED", True, False, False, True, "Jobs have a part of the node.", JOB, ("MIX",)),
)  # fmt: skip
FLAGS = (
    Row(
        "FAIL", False, False, True, True, "Somebody expects the node to fail soon and keeps jobs away.",
        "is in state FAIL, which somebody set",
    ),
    Row(
        "MAINTENANCE", False, False, True, True, "The node is in a reservation for maintenance.",
        "is in a maintenance reservation", ("MAINT", "$"),
    ),
    Row("REBOOT_ISSUED", False, False, False, False, "The node was told to reboot.", _REBOOT, ("^",)),
    Row(
        "REBOOT_REQUESTED", False, False, False, True, "The node reboots as soon as its jobs have ended.",
        _REBOOT, ("REBOOT", "@"),
    ),
    Row(
        "REBOOT_CANCEL", False, False, False, True, "A reboot that was asked for is being taken back.",
        _REBOOT, ("REBOOT_CANCELED", "CANCEL_REBOOT"),
    ),
    Row("POWERED_DOWN", False, False, False, False, "Power saving has the node off.", _POWER, ("POWER", "~")),
    Row("POWERING_DOWN", False, False, False, False, "Power saving switches the node off.", _POWER, ("%",)),
    Row("POWERING_UP", False, False, False, False, "Power saving switches the node on.", _POWER, ("#",)),
    Row("POWER_UP", False, False, False, False, "The node is to be switched on.", _POWER, ("POW_UP",)),
    Row("POWER_DOWN", False, False, False, True, "The node is to be switched off.", _POWER, ("POW_DN", "!")),
    Row("POWER_DRAIN", False, False, False, True, "The node is to be switched off once its jobs end.", _POWER),
    Row(
        "EXTERNAL", False, False, False, True, "No slurmd looks after the node (from 24.11).",
        "is external: no slurmd looks after it",
    ),
    Row(
        "NOT_RESPONDING", False, False, True, True, "slurmd on the node does not answer slurmctld.",
        "does not respond to slurmctld", ("NO_RESPOND", "*"),
    ),
    Row(
        "INVALID_REG", False, False, True, True, "The node registered with fewer resources than slurm.conf has.",
        _RESOURCES, ("INVAL",),
    ),
    Row("RESUME", False, False, False, True, "The node is being brought back (no lasting state).", _CHANGING),
    Row("UNDRAIN", False, False, False, True, "A drain is being taken back (no lasting state).", _CHANGING),
    Row(
        "DRAIN", False, True, True, True, "No new job gets on the node. A drain is never put over another one.",
        "is drained already",
    ),
    Row("BLOCKED", True, True, True, True, "A job that has its part of the network to itself keeps others away."),
    Row("CLOUD", True, True, True, True, "The node is one of a cloud, which comes up when it is needed."),
    Row(
        "DYNAMIC_FUTURE", True, True, True, True, "slurmd took one of slurm.conf's FUTURE nodes.", "", ("DYNAMIC",),
    ),
    Row("DYNAMIC_NORM", True, True, True, True, "slurmd brought the node's configuration along."),
    Row("PERFCTRS", True, True, True, True, "Network counters are in use on the node (older Slurm).", "", ("NPC",)),
    Row(
        "PLANNED", True, True, True, True, "The scheduler keeps the node for a job to come.", "", ("PLND", "-"),
    ),
    Row("RESERVED", True, True, True, True, "The node is in a reservation.", "", ("RESV", "RES")),
    Row("COMPLETING", True, False, False, True, "Jobs on the node are being cleaned up.", JOB, ("COMP",)),
)  # fmt: skip

ROWS = (*BASES, *FLAGS)
BY_NAME = {row.name: row for row in ROWS}


def spelled(row: Row) -> tuple[str, ...]:
    """Give the row's other words, without its sign."""
    return tuple(each for each in row.also if each[0].isalpha())


def sign(row: Row) -> str | None:
    """Give the sign that marks the row behind a base, None where it has none."""
    return next((each for each in row.also if not each[0].isalpha()), None)
