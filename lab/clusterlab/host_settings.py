"""Kernel settings of the host: raised when labs need it, put back when the last lab goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.locks import locked
from clusterlab.naming import STATE
from clusterlab.record import RECORD, write_atomically
from clusterlab.terminal import say

if TYPE_CHECKING:
    from clusterlab.naming import Lab

SYSCTL = Path("/proc/sys")
# Every node's systemd, journald and dbus hold inotify instances, and the limit counts per user over all nodes.
NEEDED = {"fs/inotify/max_user_instances": 8192}
ENOUGH_NODES_FOR_DEFAULTS = 8
BEFORE = STATE / "settings.json"
"""The values before, by name; kept outside any one lab, since the lab that raised them may go first."""


def raise_settings(lab: Lab, nodes: int) -> None:
    """Raise what is too low for this many nodes; a single small lab needs nothing."""
    if nodes <= ENOUGH_NODES_FOR_DEFAULTS and not _other_labs(lab):
        return
    with locked(STATE / "settings.lock", "changing kernel settings", wait_s=10):
        for name, value in NEEDED.items():
            file = SYSCTL / name
            before = file.read_text(encoding="ascii").strip()
            if int(before) < value:
                write_atomically(BEFORE, json.dumps({**_before(), name: before}))
                file.write_text(f"{value}\n", encoding="ascii")
                say(f"raised {name} from {before} to {value} until the last lab is down")


def restore_settings(lab: Lab) -> None:
    """Put back what labs raised, unless another lab is up; a value somebody has changed since stays."""
    if _other_labs(lab):
        return
    with locked(STATE / "settings.lock", "changing kernel settings", wait_s=10):
        for name, before in _before().items():
            file = SYSCTL / name
            if name in NEEDED and file.read_text(encoding="ascii").strip() == str(NEEDED[name]):
                file.write_text(f"{before}\n", encoding="ascii")
        BEFORE.unlink(missing_ok=True)


def _before() -> dict[str, str]:
    if not BEFORE.is_file():
        return {}
    content: dict[str, str] = json.loads(BEFORE.read_text(encoding="utf-8"))
    return content


def _other_labs(lab: Lab) -> bool:
    return any(path.parent != lab.state for path in STATE.glob(f"*/{RECORD}"))
