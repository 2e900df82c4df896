"""The lab's network: one bridge with an address of its own; systemd-nspawn adds a link per node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab.commands import must, run
from clusterlab.errors import LabError

if TYPE_CHECKING:
    from clusterlab.naming import Lab

INTERFACES = Path("/sys/class/net")
TIMEOUT_S = 10.0


def make_bridge(lab: Lab) -> None:
    """Make the bridge. LabError if the addresses are already on another interface of this host."""
    listing = must(("ip", "-json", "-4", "address", "show"), "reading this host's addresses", timeout_s=TIMEOUT_S)
    for interface in json.loads(listing or "[]"):
        for address in interface.get("addr_info", ()):
            if str(address.get("local", "")).startswith(f"{lab.network}.") and interface["ifname"] != lab.bridge:
                raise LabError(f"{lab.network}.0/24 is in use on {interface['ifname']}: choose another lab name")
    must(("ip", "link", "add", lab.bridge, "type", "bridge"), "making the lab's bridge", timeout_s=TIMEOUT_S)
    must(("ip", "address", "add", f"{lab.network}.1/24", "dev", lab.bridge), "its address", timeout_s=TIMEOUT_S)
    must(("ip", "link", "set", lab.bridge, "up"), "starting the lab's bridge", timeout_s=TIMEOUT_S)


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
