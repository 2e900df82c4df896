"""Whether the inventory's names of nodes are Slurm's. Pure; the map is the inventory's, the names are slurm.conf's."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from mpsfleet.show import show
from mpsfleet.slurm.drift_kinds import Drift, drift
from mpsfleet.slurm.names import is_literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MOST_COMPARED = 256  # names that one name is compared with; likeness costs time for each
_FIX = "Set mps_slurm_node_name for each host in the inventory."


def unmapped(node: str | None, claims: int) -> Drift | None:
    """Say what is wrong with the name that the inventory gives a host; `claims`: how many hosts it gives that name."""
    if node is None:
        return drift("unknown-node", "The inventory gives this host no Slurm node name.", _FIX)
    if not is_literal(node):
        return drift("unknown-node", f"{show(node)} is not the literal name of one Slurm node.", _FIX)
    if claims > 1:
        return drift("name-claimed-twice", f"{claims} inventory hosts claim the Slurm node {node}.", _FIX)
    return None


def unknown(host: str, name: str, known: Collection[str], by_host: Mapping[str, str]) -> Drift:
    """Say that Slurm knows no node of that name, and which one it may be."""
    short = host.split(".", maxsplit=1)[0]
    which = "by this host's short name" if name == short else f"called {name}"
    near = by_host.get(host) or by_host.get(short) or by_host.get(name)
    if near is None and len(known) <= _MOST_COMPARED:
        near = next(iter(difflib.get_close_matches(name, known, 1)), None)
    mend = "Set mps_slurm_node_name of the host to its NodeName in slurm.conf"
    mend = f"{mend} (perhaps {near})." if near else f"{mend}."
    return drift("unknown-node", f"slurmctld knows no node {which}.", mend)
