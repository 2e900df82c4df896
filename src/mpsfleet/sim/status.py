"""What is up: the fleet's directory, and each node's state in Slurm, daemon, processes and noted faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.sim import mending, processes
from mpsfleet.sim.gpu import board
from mpsfleet.sim.slurm import cluster, show

if TYPE_CHECKING:
    from mpsfleet.sim.fleet import Fleet


def lines(fleet: Fleet) -> list[str]:
    """Return one line for the fleet, one for each node and one for the controller."""
    state = cluster.read(fleet.place("ctl"))
    said = [f"{fleet.folder}: {len(fleet.nodes)} nodes, GPUs {board.said(fleet.boards)}, driver {fleet.version}"]
    for name in fleet.nodes:
        place = fleet.place(name)
        kinds = [each.kind for each in processes.registered(place)]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "no process"
        broken = mending.broken(place)
        told = f"; broken: {', '.join(broken)}" if broken else ""
        said.append(f"  {name}: {show.state_of(state, state.nodes[name])}, {counted}{told}")
    said.append(f"  ctl: slurmctld is {state.slurmctld}")
    return said
