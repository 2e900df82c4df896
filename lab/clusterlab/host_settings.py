"""Kernel settings of the host: raised only when a lab needs it, put back when the last lab goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.naming import STATE
from clusterlab.record import RECORD, Record, write_record
from clusterlab.terminal import say

if TYPE_CHECKING:
    from clusterlab.naming import Lab

SYSCTL = Path("/proc/sys")
# Every node's systemd, journald and dbus hold inotify instances, and the limit counts per user over all nodes.
NEEDED = (("fs/inotify/max_user_instances", 8192),)
ENOUGH_NODES_FOR_DEFAULTS = 8


def raise_settings(lab: Lab, record: Record) -> Record:
    """Raise what is too low for this many nodes, and return the record with the values before."""
    if len(record.nodes) <= ENOUGH_NODES_FOR_DEFAULTS and not _other_labs(lab):
        return record
    for name, value in NEEDED:
        file = SYSCTL / name
        before = file.read_text(encoding="ascii").strip()
        if int(before) >= value:
            continue
        record = replace(record, settings=(*record.settings, (name, before)))
        write_record(lab, record)
        file.write_text(f"{value}\n", encoding="ascii")
        say(f"raised {name} from {before} to {value} until the lab is down")
    return record


def restore_settings(lab: Lab, record: Record) -> None:
    """Put back what `up` raised, unless another lab is up or somebody has changed it since."""
    if _other_labs(lab):
        return
    for name, before in record.settings:
        file = SYSCTL / name
        if file.read_text(encoding="ascii").strip() == str(dict(NEEDED)[name]):
            file.write_text(f"{before}\n", encoding="ascii")


def _other_labs(lab: Lab) -> bool:
    return any(path.parent != lab.state for path in STATE.glob(f"*/{RECORD}"))
