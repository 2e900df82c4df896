"""What a daemon and its GPUs are told after a start: thread percentage, memory limits, priority, compute mode.

The exit status of NVIDIA's control program is 0 for a refusal too, so every value is read back. Devices are numbered
in the daemon's own order (its CUDA_VISIBLE_DEVICES renumbers them); a limit by UUID is taken and not honoured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, NotInEffect
from mpsfleet.node import daemon
from mpsfleet.node.host import children
from mpsfleet.node.judge.limits import is_as_wanted, size
from mpsfleet.node.probe import gpu, mps
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance

_COMMAND_S = 4.0
_SMI_S = 20.0
_UNKNOWN = "Unknown command"


def settle(host: Host, desired: Desired, instance: Instance, main_pid: str = "") -> str | None:
    """Wait until the started daemon answers and give it its settings. Return what is wrong, or None."""
    return daemon.settle(host, desired, instance, main_pid) or put(host, desired, instance)


def put(host: Host, desired: Desired, instance: Instance) -> str | None:
    """Give a daemon that has just started what its environment could not. Return what is wrong, or None."""
    try:
        if instance.memory_limits_mib or instance.client_priority:
            daemon.require_heard(host, instance.pipe_directory)
            limits(host, desired, instance)
        if instance.client_priority:
            priority(host, desired, instance)
        if desired.compute_mode:
            for uuid in instance.gpus:
                compute_mode(host, uuid, desired.compute_mode)
    except MpsfleetError as error:
        return str(error)
    return None


def percentage(host: Host, desired: Desired, instance: Instance) -> None:
    """Set the default thread percentage; NotInEffect where the daemon still has another."""
    words = f"set_default_active_thread_percentage {instance.active_thread_percentage:g}"
    said = _tell(host, desired, instance, words)
    back = _tell(host, desired, instance, "get_default_active_thread_percentage")
    try:
        now = float(back)
    except ValueError:
        now = -1.0
    if not is_as_wanted(now, instance):
        raise NotInEffect(f"the default thread percentage is still {back!r}; the daemon said {said or 'nothing'}")


def limits(host: Host, desired: Desired, instance: Instance) -> None:
    """Set the default memory limit of each GPU; NotInEffect where the daemon has another afterwards.

    A driver without memory limits (470) serves without them: the audit warns, and clients are served all the same.
    """
    for device, wanted in enumerate(instance.memory_limits_mib):
        if wanted:  # a limit cannot be taken away again, only another be set; a restart forgets it
            said = _tell(host, desired, instance, f"set_default_device_pinned_mem_limit {device} {size(wanted)}")
        else:
            said = ""
        back = _tell(host, desired, instance, f"get_default_device_pinned_mem_limit {device}")
        if back.startswith(_UNKNOWN):
            return
        try:
            now = mps.memory_mib(back)
        except (ValueError, IndexError):
            now = -1
        if now != wanted:
            words = f"it is {back or 'none'}, not {size(wanted)}; the daemon said {said or 'nothing'}"
            raise NotInEffect(f"the memory limit of device {device} is not in effect: {words}")


def priority(host: Host, desired: Desired, instance: Instance) -> None:
    """Set the default priority of clients; NotInEffect where the daemon has another afterwards.

    A driver without priorities (470) serves without them, and the audit warns.
    """
    said = _tell(host, desired, instance, f"set_default_client_priority {instance.client_priority}")
    back = _tell(host, desired, instance, "get_default_client_priority")
    if back != str(instance.client_priority) and not back.startswith(_UNKNOWN):
        raise NotInEffect(f"the client priority is not in effect: {back!r}; the daemon said {said or 'nothing'}")


def _tell(host: Host, desired: Desired, instance: Instance, words: str) -> str:
    answer = daemon.command(host, desired, instance.pipe_directory, words, _COMMAND_S)
    return show((answer.out + answer.err).strip(), 80)


def compute_mode(host: Host, uuid: str, mode: str) -> None:
    """Set the compute mode of one GPU by nvidia-smi; NotInEffect where it says no."""
    argv = (gpu.tool(host), "-i", uuid, "-c", mode.upper())
    answer = children.run((children.Command(argv, _SMI_S),))[0]
    if answer.rc != 0:
        said = "no answer" if answer.rc is None else show((answer.out + answer.err).strip() or f"status {answer.rc}")
        raise NotInEffect(f"the compute mode of {uuid} could not be set to {mode}: {said}")
