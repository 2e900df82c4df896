"""How a node's MPS is to behave: the driver version it plays, how its servers do, and which commands it knows."""

from __future__ import annotations

import os

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim.mps import VERSIONS
from mpsfleet.sim.place import Place, read_json, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Servers = Literal["well", "crash", "slow"]

_STATE = "mps.json"
CONTROL = "/usr/bin/nvidia-cuda-mps-control"
SERVER = "/usr/bin/nvidia-cuda-mps-server"
WITH_PINNED_MEMORY = 535
WITH_STATUS = 550
FIRST_VERSIONS = {  # the driver that first knew a command, of those that were asked: 470, 535, 550, 555
    "get_server_list": 470,
    "get_client_list": 470,
    "get_device_client_list": 470,
    "start_server": 470,
    "shutdown_server": 470,
    "quit": 470,
    "set_default_active_thread_percentage": 470,
    "get_default_active_thread_percentage": 470,
    "set_active_thread_percentage": 470,
    "get_active_thread_percentage": 470,
    "ps": 535,
    "set_default_device_pinned_mem_limit": WITH_PINNED_MEMORY,
    "get_default_device_pinned_mem_limit": WITH_PINNED_MEMORY,
    "set_device_pinned_mem_limit": WITH_PINNED_MEMORY,
    "get_device_pinned_mem_limit": WITH_PINNED_MEMORY,
    "set_default_client_priority": 535,
    "get_default_client_priority": 535,
    "terminate_client": 535,
    "get_server_status": WITH_STATUS,
}


def install_tools(root: str, version: str) -> None:
    """Write the programs into the node's /usr/bin. MpsfleetError for a version that is not simulated."""
    if version not in VERSIONS:
        raise MpsfleetError(f"no MPS of driver {version} is simulated; there are {', '.join(VERSIONS)}")
    from mpsfleet.sim import interpreter

    place = Place(root)
    write_json(place.state(_STATE), {"version": version, "servers": "well"})
    os.makedirs(place.state("mps"), 0o755, exist_ok=True)
    if os.geteuid() == 0:  # servers and clients become their users and note their states there
        os.chmod(place.state("mps"), 0o1777)  # noqa: S103  # with the sticky bit, as /tmp
    interpreter.write_program(place.fleet, place.path(CONTROL), "mpsfleet.sim.mps.control", root)
    interpreter.write_program(place.fleet, place.path(SERVER), "mpsfleet.sim.mps.control", root, "server")


def version_of(place: Place) -> int:
    """Return the driver version that the node plays."""
    return int(read_json(place.state(_STATE), {}).get("version", "535"))


def servers_of(place: Place) -> str:
    """Return how servers do that are started now."""
    return str(read_json(place.state(_STATE), {}).get("servers", "well"))


def set_servers(root: str, servers: Servers) -> None:
    """Change how servers do that are started from now on."""
    place = Place(root)
    write_json(place.state(_STATE), {**read_json(place.state(_STATE), {}), "servers": servers})
