"""The driver's fatal events in the kernel log, as values. Pure.

Which Xids are fatal follows NVIDIA's catalogue of them (docs.nvidia.com/deploy/xid-errors): those whose immediate
action is to reset the GPU or to restart the machine. Those of an application (13, 31, 43, 45, ...) are its user's
matter, and 63, 92 and 94 are told by the driver without harm to other jobs.
"""

from __future__ import annotations

from mpsfleet.tuples import NamedTuple

ACKNOWLEDGED = "/run/mpsfleet/acknowledged"  # "BOOT SEQUENCE": what a person has seen; a boot ends it

MEANINGS = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error",
    57: "training of the memory's link failed",
    58: "a memory error",
    62: "the GPU's controller halted",
    64: "a bad memory row could not be retired",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    95: "an uncontained memory error",
    110: "a security fault",
    119: "the GPU's system processor does not answer",
    120: "an error of the GPU's system processor",
    136: "training of a link failed",
    140: "an unrecovered memory error",
    143: "the GPU could not be initialized",
    155: "an NVLink error",
    156: "a part of the GPU was retired",
    158: "a fatal timeout",
    160: "a part of the GPU was retired",
    162: "",
}
_NVLINKS = range(144, 151)  # their text says Fatal or Nonfatal
_RECOVERY = 154  # its text says which action the driver asks for
_NO_ACTION = "(None)"


class Event(NamedTuple):
    """One kind of event of one GPU. Records of the same are one event."""

    bus: str  # as in 0000:3b:00; "" for one that names no GPU
    xid: int  # 0 for one that is no Xid
    sequence: int  # of the last such record
    pid: int | None  # the process it names, where it names one
    text: str  # of the last record, as the kernel escapes it
    records: int = 1


class KernelLog(NamedTuple):
    """What the kernel log holds of fatal events since boot that nobody has acknowledged."""

    events: tuple[Event, ...]
    last: int  # sequence number of the last record; -1 for an empty log
    boot: str  # the kernel's name of this boot; "" where it cannot be read
    complete: bool  # read to its end
    buses: tuple[str, ...] = ()  # of the GPUs that the driver knows; read where there are events


def is_fatal(event: Event) -> bool:
    """Tell whether the GPU, and not an application alone, has failed."""
    if event.xid in _NVLINKS:
        return "Fatal" in event.text.replace(",", " ").split()
    if event.xid == _RECOVERY:
        _, changed, action = event.text.rpartition(" to ")
        return bool(changed) and _NO_ACTION not in action
    return event.xid == 0 or event.xid in MEANINGS
