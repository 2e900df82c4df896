"""Faults of a node around MPS: its GPUs, nvidia-smi, the kernel log, and the controller's slurmctld."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.sim import gpu, mending
from mpsfleet.sim.slurm.cluster import changing

if TYPE_CHECKING:
    from mpsfleet.sim.gpu.state import GpuState
    from mpsfleet.sim.target import Target

FATAL_XID = 79  # the GPU has fallen off the bus
ECC_ERRORS = 3


def lose_gpu(target: Target) -> str:
    """Let one GPU fall off the bus: it is still listed and answers no question."""
    return _set_gpu(target, "lost", "is lost")


def need_gpu_reset(target: Target) -> str:
    """Let one GPU ask for a reset."""
    return _set_gpu(target, "reset", "requires a reset")


def miss_gpu(target: Target) -> str:
    """Let one GPU be absent: the others close ranks, so their indices change."""
    return _set_gpu(target, "missing", "is missing")


def mismatch(target: Target) -> str:
    """Let the library be newer than the loaded driver, as after an unattended upgrade."""
    gpu.set_tool(target.place.root, "mismatch")
    return _noted(target, "nvidia-smi reports a driver and library mismatch")


def hang_nvidia_smi(target: Target) -> str:
    """Let nvidia-smi wait for ever."""
    gpu.set_tool(target.place.root, "hanging")
    return _noted(target, "nvidia-smi never answers")


def xid(target: Target) -> str:
    """Let the kernel log a fatal Xid of a GPU; the log keeps it until the node is mended."""
    gpu.add_xid(target.place.root, target.gpu, FATAL_XID)
    return _noted(target, f"the kernel log has Xid {FATAL_XID} of GPU {target.gpu}")


def mig(target: Target) -> str:
    """Put one GPU into MIG mode."""
    gpu.set_mig(target.place.root, target.gpu)
    return _noted(target, f"GPU {target.gpu} is in MIG mode")


def take_exclusively(target: Target) -> str:
    """Let one GPU take a single process, as the compute mode Exclusive_Process does; `mend` sets back what it was."""
    before = gpu.set_compute_mode(target.place.root, target.gpu, "Exclusive_Process")
    mending.note(target.place, mending.Undo(target.fault, "compute-mode", f"{target.gpu} {before}"))
    return f"GPU {target.gpu} is in compute mode Exclusive_Process"


def unload_driver(target: Target) -> str:
    """Let the driver not be loaded, as after an upgrade of the kernel without its module."""
    gpu.set_tool(target.place.root, "no-driver")
    return _noted(target, "nvidia-smi cannot reach the driver")


def ecc(target: Target) -> str:
    """Give one GPU uncorrectable memory errors."""
    gpu.set_ecc_errors(target.place.root, target.gpu, ECC_ERRORS)
    return _noted(target, f"GPU {target.gpu} has had {ECC_ERRORS} uncorrectable memory errors")


def unified_memory(target: Target) -> str:
    """Let one GPU have no memory of its own."""
    gpu.set_unified_memory(target.place.root, target.gpu)
    return _noted(target, f"GPU {target.gpu} shares the host's memory")


def stop_slurmctld(target: Target) -> str:
    """Stop the controller's daemon."""
    return _set_slurmctld(target, "stopped", "slurmctld is not running")


def hang_slurmctld(target: Target) -> str:
    """Let slurmctld be there and never answer."""
    return _set_slurmctld(target, "hung", "slurmctld is there and never answers")


def _set_gpu(target: Target, state: GpuState, words: str) -> str:
    gpu.set_state(target.place.root, target.gpu, state)
    return _noted(target, f"GPU {target.gpu} {words}")


def _noted(target: Target, sentence: str) -> str:
    mending.note(target.place, mending.Undo(target.fault, "gpus"))
    return sentence


def _set_slurmctld(target: Target, state: str, words: str) -> str:
    with changing(target.place) as cluster:
        cluster.slurmctld = state
    mending.note(target.place, mending.Undo(target.fault, "slurmctld"))
    return words
