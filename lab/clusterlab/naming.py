"""Names and places of one lab: everything it makes on the host is found by its name alone, also after a crash."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from clusterlab.errors import LabError

CONTROLLER = "ctl"
NAME_VARIABLE = "MPSFLEET_LAB_NAME"
DEFAULT_NAME = "lab"
STATE = Path("/run/mpsfleet-lab")
CACHE = Path("/var/cache/mpsfleet-lab")
MOST_NODES = 200
NETWORKS = 251


class Lab(NamedTuple):
    """One lab of this host. Two with different names live side by side: no path or link is shared."""

    name: str

    @property
    def state(self) -> Path:
        """The folder with all the lab's run-time state; it goes with `down`."""
        return STATE / self.name

    @property
    def lock(self) -> Path:
        """The file that `up` and `down` hold locked; it outlives the state folder."""
        return STATE / f"{self.name}.lock"

    @property
    def bridge(self) -> str:
        """The bridge's interface name."""
        return f"br-{self.name}"

    @property
    def cgroup(self) -> str:
        """The lab's control group, relative to a hierarchy's root."""
        return f"mpsfleet-lab-{self.name}"

    @property
    def networks(self) -> tuple[str, ...]:
        """The /24 networks that the lab may have, by their first three numbers; the name's own is the first."""
        own = 0 if self.name == DEFAULT_NAME else 1 + zlib.crc32(self.name.encode()) % (NETWORKS - 1)
        return tuple(f"10.213.{1 + (own + step) % NETWORKS}" for step in range(NETWORKS))

    def machine(self, node: str) -> str:
        """Return the host-wide machine name of a node."""
        return f"{self.name}-{node}"

    def link(self, node: str) -> str:
        """Return the host's end of a node's network link, as systemd-nspawn names it."""
        return f"vb-{self.machine(node)}"

    def folder(self, node: str) -> Path:
        """Return the folder of one node's state."""
        return self.state / "nodes" / node

    def root(self, node: str) -> Path:
        """Return where the host sees a node's root file system."""
        return self.folder(node) / "root"


def current() -> Lab:
    """Return the lab the environment selects (MPSFLEET_LAB_NAME, `lab` if unset).

    Seven characters at most: `vb-NAME-n200` has to stay within an interface name's 15.
    """
    name = os.environ.get(NAME_VARIABLE) or DEFAULT_NAME
    if not re.fullmatch(r"[a-z][a-z0-9]{0,6}", name):
        raise LabError(f"{NAME_VARIABLE}={name}: a lab's name is 1 to 7 small letters and digits, a letter first")
    return Lab(name)


def gpu_nodes(count: int) -> tuple[str, ...]:
    """Return the names n1 … nCOUNT."""
    return tuple(f"n{number}" for number in range(1, count + 1))
