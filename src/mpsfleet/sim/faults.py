"""Faults: the table of what can be broken on a simulated node, and the one door through which it is.

The names and their meaning are the lab's. What needs another real user or a network is named too, and said to need the
lab; what needs a GPU or a server is there only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from mpsfleet.errors import MpsfleetError, UsageError
from mpsfleet.sim import faults_daemon, faults_directory, faults_node, faults_server
from mpsfleet.sim import gpu as gpu_state
from mpsfleet.sim.place import CONTROLLER
from mpsfleet.sim.target import Target, configured_pipe_directory

if TYPE_CHECKING:
    from mpsfleet.sim.fleet import Fleet


class Fault(NamedTuple):
    """One fault: its name, what it means, what brings it about and says what was done, and where."""

    name: str
    meaning: str
    bring_about: Callable[[Target], str] | None  # None: it needs the lab
    is_on_controller: bool = False


FAULTS = (
    Fault("directory-deleted", "the pipe directory is deleted under the live daemon", faults_directory.delete),
    Fault("control-swapped", "a user's own socket listens in the place of `control`", faults_directory.swap_control),
    Fault("mode-polluted", "the pipe directory is open to everybody (0777)", faults_directory.open_to_all),
    Fault("mode-closed", "the pipe directory is closed to users (0700)", faults_directory.close_to_users),
    Fault("owner-polluted", "the pipe directory belongs to a user (takes root)", faults_directory.give_away),
    Fault("parent-closed", "the pipe directory's parent is closed to users (0700)", faults_directory.close_parent),
    Fault("name-planted", "the pipe directory is a link to a folder with other files", faults_directory.plant_link),
    Fault("daemon-stopped", "the control daemon is stopped: it accepts and never answers", faults_daemon.stop),
    Fault("daemon-killed", "the control daemon is killed until systemd gives up; its files stay", faults_daemon.kill),
    Fault("percentage-tampered", "a user set the default thread percentage to 10", faults_daemon.tamper_percentage),
    Fault(
        "second-daemon", "the files are gone and a second daemon serves the same directory", faults_daemon.start_second
    ),
    Fault("foreign-daemon", "root started another daemon by hand on /tmp/nvidia-mps", faults_daemon.start_foreign),
    Fault("gpu-lost", "one GPU has fallen off the bus", faults_node.lose_gpu),
    Fault("gpu-needs-reset", "one GPU requires a reset", faults_node.need_gpu_reset),
    Fault("gpu-missing", "one GPU is not there since boot", faults_node.miss_gpu),
    Fault("driver-mismatch", "driver and library versions differ: nvidia-smi cannot initialize", faults_node.mismatch),
    Fault("nvidia-smi-hanging", "nvidia-smi never answers", faults_node.hang_nvidia_smi),
    Fault("ssh-down", "the node's sshd is down (needs the lab: there is no ssh to a simulated node)", None),
    Fault("slurmctld-stopped", "on ctl: slurmctld is not running", faults_node.stop_slurmctld, is_on_controller=True),
    Fault(
        "slurmctld-hung",
        "on ctl: slurmctld is there and never answers",
        faults_node.hang_slurmctld,
        is_on_controller=True,
    ),
    Fault("server-fault", "a client's GPU fault has put the server into FAULT", faults_server.fault),
    Fault("server-recovered", "the server was in FAULT and has recovered", faults_server.recover),
    Fault(
        "clients-of-two-users", "jobs of two users are on the node: one is served, one waits", faults_server.two_users
    ),
    Fault("client-waiting", "a client waits for a server that belongs to another user", faults_server.waiting),
    Fault("job-bypasses-mps", "a job that asked for MPS runs on the GPU beside it", faults_server.bypass),
    Fault("server-orphaned", "the control daemon is dead and its server lives on", faults_server.orphan),
    Fault("crash-loop", "every server that the daemon starts ends at once", faults_server.crash_loop),
    Fault("xid", "the kernel log holds a fatal Xid of one GPU", faults_node.xid),
    Fault("mig", "one GPU is in MIG mode", faults_node.mig),
    Fault("compute-mode-exclusive", "one GPU takes one process only: Exclusive_Process", faults_node.take_exclusively),
    Fault(
        "driver-not-loaded", "the NVIDIA driver is not loaded: nvidia-smi cannot reach it", faults_node.unload_driver
    ),
    Fault("ecc", "one GPU has uncorrectable memory errors", faults_node.ecc),
    Fault("unified-memory", "one GPU shares the host's memory: nvidia-smi says [N/A]", faults_node.unified_memory),
)


def lines() -> list[str]:
    """Return a line for each fault."""
    width = max(len(each.name) for each in FAULTS)
    return [f"{each.name:{width}}  {each.meaning}" for each in FAULTS]


def break_node(fleet: Fleet, node: str, name: str, gpu: int = 0) -> str:
    """Bring a fault about on a node and return a sentence that says what was done.

    MpsfleetError if it is not in effect afterwards, or cannot be had here.
    """
    fault = next((each for each in FAULTS if each.name == name), None)
    if fault is None:
        from difflib import get_close_matches

        near = get_close_matches(name, [each.name for each in FAULTS], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"no fault is called {name}{hint} `mpsfleet sim faults` lists them")
    place = fleet.place(node)
    if fault.bring_about is None:
        raise MpsfleetError(f"{name} needs the lab (lab/lab, on a machine with root): {fault.meaning}")
    if fault.is_on_controller is not (node == CONTROLLER):
        where = "the controller, ctl" if fault.is_on_controller else "a GPU node"
        raise UsageError(f"{name} is a fault of {where}, not of {node}")
    count = gpu_state.count(place.root)
    if not fault.is_on_controller and not 0 <= gpu < count:
        raise UsageError(f"{node} has no GPU {gpu}: it has {count}")
    directory = "" if fault.is_on_controller else configured_pipe_directory(place)
    return f"{node}: {name}: {fault.bring_about(Target(place, directory, gpu, name))}"
