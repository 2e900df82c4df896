"""Who is connected to a control daemon: the kernel's own word for it, taken from the daemon's side.

The daemon keeps the connection of a program that it has not yet given to a server.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from mpsfleet.node.host.connections import accepted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.node.host import Host

_MOST_FDS = 4096
_SOCKET = "control"  # the one for users; root's answers come through another


def users(host: Host, daemon: int) -> tuple[tuple[int, int], ...]:
    """Return pid and uid of each connection to the daemon's `control`; () where the kernel does not tell."""
    with contextlib.suppress(OSError):
        return tuple(_connected(daemon, f"{host.proc}/{daemon}/fd"))
    return ()


def _connected(daemon: int, folder: str) -> Iterator[tuple[int, int]]:
    for name in os.listdir(folder)[:_MOST_FDS]:
        with contextlib.suppress(OSError):  # closed meanwhile, or no connection
            if os.readlink(f"{folder}/{name}").startswith("socket:"):
                found = accepted(daemon, int(name))
                if found.pid > 0 and os.path.basename(found.path) == _SOCKET:
                    yield found.pid, found.uid
