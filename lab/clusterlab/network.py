"""The lab's network: one bridge with addresses that nobody else here has; systemd-nspawn adds a link per node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.commands import must, run
from clusterlab.errors import LabError
from clusterlab.locks import locked
from clusterlab.naming import STATE

if TYPE_CHECKING:
    from clusterlab.naming import Lab

INTERFACES = Path("/sys/class/net")
TIMEOUT_S = 10.0


def make_bridge(lab: Lab) -> str:
    """Make the bridge on a network that no interface of this host has, and return the network's first three numbers."""
    with locked(STATE / "network.lock", "choosing a network", wait_s=30):  # two labs that start at once
        listing = must(("ip", "-json", "-4", "address", "show"), "reading this host's addresses", timeout_s=TIMEOUT_S)
        network = free_network(lab, addresses_in(listing))
        must(("ip", "link", "add", lab.bridge, "type", "bridge"), "making the lab's bridge", timeout_s=TIMEOUT_S)
        must(("ip", "address", "add", f"{network}.1/24", "dev", lab.bridge), "its address", timeout_s=TIMEOUT_S)
    must(("ip", "link", "set", lab.bridge, "up"), "starting the lab's bridge", timeout_s=TIMEOUT_S)
    return network


def addresses_in(listing: str) -> tuple[str, ...]:
    """Return the addresses in what `ip -json address show` says."""
    interfaces = json.loads(listing or "[]")
    return tuple(str(each.get("local", "")) for interface in interfaces for each in interface.get("addr_info", ()))


def free_network(lab: Lab, addresses: tuple[str, ...]) -> str:
    """Return the first of the lab's networks in which none of these addresses lies. LabError where there is none."""
    taken = {address.rpartition(".")[0] for address in addresses}
    for network in lab.networks:
        if network not in taken:
            return network
    raise LabError(f"all {len(lab.networks)} networks of 10.213.0.0/16 are in use on this host: take a lab down")


def links_of(lab: Lab) -> tuple[str, ...]:
    """Return the lab's interfaces on this host: the nodes' links, then the bridge."""
    names = [path.name for path in INTERFACES.iterdir()]
    links = sorted(name for name in names if name.startswith(lab.link("")))
    return (*links, lab.bridge) if lab.bridge in names else tuple(links)


def remove_links(lab: Lab) -> None:
    """Delete the lab's links and bridge; one that vanishes meanwhile is no error."""
    for name in links_of(lab):
        run(("ip", "link", "delete", name), timeout_s=TIMEOUT_S)
    left = links_of(lab)
    if left:
        raise LabError(f"these interfaces cannot be deleted: {', '.join(left)}")
