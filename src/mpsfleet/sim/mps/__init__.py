"""NVIDIA's MPS, simulated: control daemon, servers and clients as real processes, with the words of 470, 535 or 550.

For the fleet's owner. Real processes have the developer's own user where there is no root; so each client and each
command has a *declared* user beside it, 0 for the owner of the node, and pending clients and privileges go by that.
Every process registers itself with the node and ends when the fleet does.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's import would cost every simulated command 5 ms
if TYPE_CHECKING:
    from mpsfleet.sim.mps.behaviour import Servers

VERSIONS = ("470", "535", "550")
USER_VARIABLE = "MPSFLEET_SIM_UID"


def as_user(uid: int) -> dict[str, str]:
    """Return what to add to the environment so that a simulated command is a user's."""
    return {USER_VARIABLE: str(uid)}


def install_tools(root: str, version: str) -> None:
    """Put the control program and the server of a driver version into a node whose fleet has its interpreter."""
    from mpsfleet.sim.mps.behaviour import install_tools as install

    install(root, version)


def set_servers(root: str, servers: Servers) -> None:
    """Say how the servers do that are started from now on: "well", "crash" (at once) or "slow" (never ready)."""
    from mpsfleet.sim.mps.behaviour import set_servers as change

    change(root, servers)


def start_client(root: str, pipe_directory: str, uid: int, gpu: int = 0, *, keeps_trying: bool = False) -> int:
    """Start a CUDA program of a declared user and return its pid once it has a state; it starts a server if need be.

    `pipe_directory` is a path of this machine. A refused client ends, or asks again every half second.
    """
    from mpsfleet.sim.mps.stage import start_client as start

    return start(root, pipe_directory, uid, gpu, keeps_trying=keeps_trying)


def start_bypassing(root: str, uid: int, gpu: int = 0) -> int:
    """Start a CUDA program that uses a GPU beside MPS: nvidia-smi shows it, no client list does; return its pid."""
    from mpsfleet.sim.mps.stage import start_bypassing as start

    return start(root, uid, gpu)


def hold_connection(root: str, pipe_directory: str) -> int:
    """Start a process that connects to the control daemon and says nothing; return its pid."""
    from mpsfleet.sim.mps.stage import hold_connection as hold

    return hold(root, pipe_directory)


def client_state(root: str, pid: int) -> str:
    """Return what a client says of itself: "waiting", "running", "error 807", ...; "" when it was ended."""
    from mpsfleet.sim.mps.stage import client_state as state

    return state(root, pid)


def servers(root: str) -> tuple[int, ...]:
    """Return the node's living servers, orphans too."""
    from mpsfleet.sim.mps.stage import servers as living

    return living(root)


def fault_server(root: str, pid: int) -> None:
    """Let a client's GPU fault put a server into FAULT: it takes no new client until all that it has have ended."""
    from mpsfleet.sim.mps.stage import fault_server as fault

    fault(root, pid)


def server_state(root: str, pid: int) -> str:
    """Return "INITIALIZING", "ACTIVE" or "FAULT"; "" when the server has ended."""
    from mpsfleet.sim.mps.stage import server_state as state

    return state(root, pid)


def end(root: str, pid: int) -> None:
    """End one of the node's processes and wait until it has gone."""
    from mpsfleet.sim.mps.stage import end as finish

    finish(root, pid)
