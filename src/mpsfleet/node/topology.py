"""The GPUs of a node, read: as the deploy recorded them, and the driver's own numbers for them."""

from __future__ import annotations

import os

from mpsfleet.node.cards import RECORD, Card, parse
from mpsfleet.node.host import files
from mpsfleet.node.model import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_DRIVER = "/proc/driver/nvidia/gpus"  # one directory a GPU, with a file `information`
_CAP = 65536


def recorded(host: Host) -> tuple[Card, ...] | Unreadable | None:
    """Return the GPUs as the last deploy recorded them; None where there is no record."""
    try:
        content = files.read_or_none(host.path(RECORD), _CAP)
        return None if content is None else parse(content)
    except OSError as error:
        return Unreadable(f"{RECORD} cannot be read: {error.strerror}")
    except ValueError as error:
        return Unreadable(f"{RECORD}: {error}")


def minors(host: Host) -> dict[str, int]:
    """Return the driver's minor numbers by UUID, from /proc/driver/nvidia; empty where the driver is not loaded."""
    found: dict[str, int] = {}
    folder = host.path(_DRIVER)
    try:
        names = sorted(os.listdir(folder))[:256]
    except OSError:
        return {}
    for name in names:
        try:
            content = files.read(f"{folder}/{name}/information", _CAP).decode("utf-8", "replace")
        except OSError:
            continue
        said = dict(_pair(line) for line in content.splitlines())
        minor = said.get("Device Minor", "")
        if minor.isdigit() and said.get("GPU UUID"):
            found[said["GPU UUID"]] = int(minor)
    return found


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
