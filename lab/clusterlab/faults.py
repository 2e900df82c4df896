"""Faults: the table of what can be broken, and the one door through which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterlab import faults_daemon, faults_directory, faults_node
from clusterlab.access import init_process
from clusterlab.daemons import Target, configured_pipe_directory
from clusterlab.errors import LabError
from clusterlab.naming import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterlab.naming import Lab


class Fault(NamedTuple):
    """One fault: its name, what it means for the node, and what brings it about and says what was done."""

    name: str
    meaning: str
    bring_about: Callable[[Target], str]
    is_on_controller: bool = False


FAULTS = (
    Fault("directory-deleted", "the pipe directory is deleted under the live daemon", faults_directory.delete),
    Fault("control-swapped", "a user's own socket listens in the place of `control`", faults_directory.swap_control),
    Fault("mode-polluted", "the pipe directory is open to everybody (0777)", faults_directory.open_to_all),
    Fault("mode-closed", "the pipe directory is closed to users (0700)", faults_directory.close_to_users),
    Fault("owner-polluted", "the pipe directory belongs to a user", faults_directory.give_away),
    Fault("parent-closed", "the pipe directory's parent is closed to users (0700)", faults_directory.close_parent),
    Fault("name-planted", "the pipe directory is a link to a folder with other files", faults_directory.plant_link),
    Fault(
        "daemon-stopped", "the control daemon is stopped (SIGSTOP): it accepts and never answers", faults_daemon.stop
    ),
    Fault("daemon-killed", "the control daemon is killed until systemd gives up; its files stay", faults_daemon.kill),
    Fault(
        "percentage-tampered",
        "a user (from driver 550 on: root) set the default thread percentage to 10",
        faults_daemon.tamper_percentage,
    ),
    Fault(
        "second-daemon", "the files are gone and a second daemon serves the same directory", faults_daemon.start_second
    ),
    Fault("foreign-daemon", "root started another daemon by hand on /tmp/nvidia-mps", faults_daemon.start_foreign),
    Fault("gpu-lost", "one GPU has fallen off the bus", faults_node.lose_gpu),
    Fault("gpu-needs-reset", "one GPU requires a reset", faults_node.need_gpu_reset),
    Fault("gpu-missing", "one GPU is not there since boot", faults_node.miss_gpu),
    Fault("driver-mismatch", "driver and library versions differ: nvidia-smi cannot initialize", faults_node.mismatch),
    Fault("nvidia-smi-hanging", "nvidia-smi never answers", faults_node.hang_nvidia_smi),
    Fault("mig", "one GPU is in MIG mode", faults_node.enable_mig),
    Fault("driver-not-loaded", "the NVIDIA driver is not loaded: nvidia-smi cannot reach it", faults_node.no_driver),
    Fault("ssh-down", "the node's sshd is down: it cannot be reached", faults_node.stop_ssh),
    Fault("slurmctld-stopped", "on ctl: slurmctld is not running", faults_node.stop_slurmctld, is_on_controller=True),
    Fault(
        "slurmctld-hung",
        "on ctl: slurmctld is there and never answers",
        faults_node.hang_slurmctld,
        is_on_controller=True,
    ),
)


def break_node(lab: Lab, node: str, name: str, pipe_directory: str | None = None, gpu: int = 0) -> str:
    """Bring a fault about on a node as the real thing would, and return a sentence that says what was done.

    pipe_directory is the node's configured one if None. LabError if the fault is not in effect afterwards.
    """
    fault = next((known for known in FAULTS if known.name == name), None)
    if fault is None:
        raise LabError(f"no fault is called {name}: see `lab faults`")
    if fault.is_on_controller is not (node == CONTROLLER):
        raise LabError(
            f"{name} is a fault of {'the controller' if fault.is_on_controller else 'a GPU node'}, not of {node}"
        )
    init_process(lab, node)
    directory = (pipe_directory or configured_pipe_directory(lab, node)).rstrip("/")
    if not directory.startswith("/"):
        raise LabError(f"--pipe-directory {pipe_directory}: an absolute path is needed")
    return f"{node}: {name}: {fault.bring_about(Target(lab, node, directory, gpu))}"
