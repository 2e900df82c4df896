"""The kernel log, read from /dev/kmsg: fatal events of the driver that begin a record of the kernel's own.

Source of the format: Documentation/ABI/testing/dev-kmsg of the kernel. A record is "PREFIX,SEQUENCE,TIME,FLAGS;TEXT",
and only the kernel writes records of facility 0 (a prefix below 8). What follows on further lines, or after an escaped
newline, belongs to the record before and begins none.
"""

from __future__ import annotations

from mpsfleet.node.gpu_facts import bus_of
from mpsfleet.node.host import files
from mpsfleet.node.kernel_facts import ACKNOWLEDGED, Event, KernelLog, is_fatal
from mpsfleet.node.model import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_LOG = "/dev/kmsg"
_LIMIT_S = 1.0  # 14,000 records take 20 ms, and many times that on a machine that is very busy
_DRIVERS_GPUS = "/proc/driver/nvidia/gpus"
_MOST_EVENTS = 64  # kinds of events; a node has 16 GPUs at most
_SIEVE = b"NVRM: "
_XID = b"NVRM: Xid (PCI:"
# The module of unified memory has failed for all GPUs; drivers put names before the sentence.
_UVM = b"uvm encountered global fatal error"
_UVM_FROM = (b"", b"nvGpuOpsReportFatalError: ")
_LEVELS = 8  # of syslog(2); a prefix below it is of facility 0
_DIGITS = 18
_TEXT = 200  # characters kept


def read(host: Host) -> KernelLog | Unreadable | None:
    """Return the fatal events that nobody has acknowledged; None where there is no kernel log (container, image)."""
    events: dict[tuple[str, int], Event] = {}
    last = b""
    complete = True
    try:
        for raw in files.records(host.path(_LOG), _LIMIT_S):
            last = raw
            if _SIEVE in raw:
                _add(events, parse(raw))
    except FileNotFoundError:
        return None
    except TimeoutError:
        complete = False
    except OSError as error:
        return Unreadable(f"{_LOG} cannot be read: {error.strerror}")
    boot = _boot(host)
    seen = _seen(host, boot) if events else -1
    fresh = tuple(each for each in events.values() if each.sequence > seen)
    buses = tuple(bus_of(each) for each in files.names(host.path(_DRIVERS_GPUS))[:256]) if fresh else ()
    return KernelLog(fresh, _sequence(last), boot, complete, buses)


class Reading:
    """A reading of the kernel log that is done while others are awaited."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.found: KernelLog | Unreadable | None = None

    def read(self) -> None:
        """Read it now."""
        self.found = read(self._host)


def _add(events: dict[tuple[str, int], Event], event: Event | None) -> None:
    if event is None or not is_fatal(event):
        return
    key = (event.bus, event.xid)
    before = events.get(key)
    if before is not None:
        events[key] = event._replace(records=before.records + 1)
    elif len(events) < _MOST_EVENTS:
        events[key] = event


def parse(raw: bytes) -> Event | None:
    """Return the driver's event that begins this record of the kernel's; None for any other record."""
    head, _, rest = raw.partition(b";")
    fields = head.split(b",")
    if len(fields) < 4 or not all(_is_number(each) for each in fields[:2]):  # noqa: PLR2004  # the four known fields
        return None
    if int(fields[0]) >= _LEVELS or b"c" in fields[3]:  # another facility; a fragment, whose start is elsewhere
        return None
    text = rest.partition(b"\n")[0]
    if text.startswith(_XID):
        return _xid(text, int(fields[1]))
    if text.startswith(_SIEVE) and any(text[len(_SIEVE) :].startswith(each + _UVM) for each in _UVM_FROM):
        return Event("", 0, int(fields[1]), None, _shown(text))
    return None


def _xid(text: bytes, sequence: int) -> Event | None:
    place, found, rest = text[len(_XID) :].partition(b"): ")
    number, _, words = rest.partition(b",")
    bus = bus_of(place.decode("ascii", "replace"))
    if not found or not bus or not _is_number(number) or len(number) > 4:  # noqa: PLR2004  # Xids have three digits
        return None
    return Event(bus, int(number), sequence, _pid(words), _shown(text))


def _pid(words: bytes) -> int | None:
    """Return the process that an Xid names: pid=1234, pid='1234' or pid='<unknown>'."""
    value = words.partition(b"pid=")[2].lstrip(b"'\"")
    end = next((place for place, each in enumerate(value) if not 48 <= each <= 57), len(value))  # noqa: PLR2004  # 0 to 9
    return int(value[:end]) if 0 < end <= _DIGITS else None


def _is_number(field: bytes) -> bool:
    return field.isdigit() and len(field) <= _DIGITS


def _shown(text: bytes) -> str:
    return text[:_TEXT].decode("utf-8", "replace")


def _sequence(raw: bytes) -> int:
    fields = raw.split(b",", 2)
    return int(fields[1]) if len(fields) > 1 and _is_number(fields[1]) else -1


def _boot(host: Host) -> str:
    try:
        return files.read(f"{host.proc}/sys/kernel/random/boot_id", 4096).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _seen(host: Host, boot: str) -> int:
    """Return the sequence number up to which a person has acknowledged this boot's events; -1 for none."""
    try:
        words = files.read(host.path(ACKNOWLEDGED), 4096).split()
    except OSError:  # none yet; and what cannot be read acknowledges nothing
        return -1
    if len(words) != 2 or not boot or words[0] != boot.encode() or not _is_number(words[1]):  # noqa: PLR2004
        return -1
    return int(words[1])
