"""The state of a node's GPUs: R/sim/gpus.json, and R/dev/kmsg, a file with records as /dev/kmsg has them."""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import interpreter
from mpsfleet.sim.gpu import driver_files
from mpsfleet.sim.gpu.board import KINDS, Board, fresh
from mpsfleet.sim.place import Place, locked, read_json, write_json

if TYPE_CHECKING:
    from typing import Literal

    GpuState = Literal["ok", "lost", "reset", "missing", "error"]
    ToolState = Literal["ok", "hanging", "mismatch", "no-driver"]

NVIDIA_SMI = "/usr/bin/nvidia-smi"
_FILE = "gpus.json"
_KERNEL_LOG = "/dev/kmsg"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DRIVERS = {"470": "470.256.02", "535": "535.261.03", "550": "550.163.01"}
_XIDS = {
    13: "Graphics Exception: ESR 0x404490=0x80000001",
    31: "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f4a_00000000",
    48: "DBE (double bit error) ECC Error",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
}
_KERNEL_ERROR = 3  # <3>: facility kernel, level error


def install_tools(root: str, version: str, board: Board) -> None:
    """Put nvidia-smi of a driver version, and GPUs that are all well, into a node."""
    place = Place(root)
    _write(place, fresh(place.name, board, _DRIVERS[version]))
    _boot(place, f"6,1,{_now_us()},-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {_DRIVERS[version]}\n")
    interpreter.write_program(place.fleet, place.path(NVIDIA_SMI), "mpsfleet.sim.gpu.nvidia_smi", root)


def _boot(place: Place, records: str) -> None:
    """Give the node a kernel that has booted: its log, and its own name of this boot."""
    for path, text in ((_KERNEL_LOG, records), (_BOOT_ID, f"{uuid.uuid4()}\n")):
        os.makedirs(os.path.dirname(place.path(path)), 0o755, exist_ok=True)
        with open(place.path(path), "w", encoding="utf-8") as stream:
            stream.write(text)


def set_state(root: str, gpu: int, state: GpuState) -> None:
    """Set how a GPU does, by its place on the board (a missing one keeps its place)."""
    _change(root, gpu, state=state)


def set_mig(root: str, gpu: int) -> None:
    """Put a GPU into MIG mode, with two instances. MpsfleetError where the model has none."""
    place = Place(root)
    known = _gpus(place)
    if 0 <= gpu < len(known) and known[gpu]["mig"] == "[N/A]":
        raise MpsfleetError(f"GPU {gpu} of {place.name} is a {known[gpu]['name']}, which knows no MIG mode")
    _change(root, gpu, mig="Enabled")


def set_compute_mode(root: str, gpu: int, mode: str) -> str:
    """Set a GPU's compute mode, as `nvidia-smi -c` does, and return the one before."""
    place = Place(root)
    before = _gpus(place)[gpu]["compute_mode"] if 0 <= gpu < len(_gpus(place)) else ""
    _change(root, gpu, compute_mode=mode)
    return str(before)


def set_ecc_errors(root: str, gpu: int, uncorrected: int) -> None:
    """Set how many uncorrectable memory errors a GPU has had since the driver was loaded."""
    _change(root, gpu, ecc_uncorrected=uncorrected)


def set_unified_memory(root: str, gpu: int) -> None:
    """Let a GPU share its memory with the host: it has no number of its own for it."""
    _change(root, gpu, memory_mib=None)


def set_tool(root: str, state: ToolState) -> None:
    """Set how nvidia-smi itself does."""
    place = Place(root)
    with locked(place, "gpus.lock"):
        _write(place, {**read_json(place.state(_FILE), {}), "tool": state})


def heal(root: str) -> None:
    """Make all GPUs and nvidia-smi well again, and the kernel log hold no Xid. Compute modes stay."""
    place = Place(root)
    with locked(place, "gpus.lock"):
        known = read_json(place.state(_FILE), {})
        kinds = {each.name: each for each in KINDS}
        board = Board(tuple(kinds[each["name"]] for each in known["gpus"]))
        whole = fresh(place.name, board, known["driver_version"])
        modes = [each["compute_mode"] for each in known["gpus"]]
        gpus = [{**each, "compute_mode": mode} for each, mode in zip(whole["gpus"], modes)]
        _write(place, {**whole, "gpus": gpus})
        _keep_first_record(place.path(_KERNEL_LOG))


def _keep_first_record(log: str) -> None:
    with open(log, "r+", encoding="utf-8") as stream:
        first = stream.readline()
        stream.truncate(len(first.encode()))


def count(root: str) -> int:
    """Return how many GPUs the node was made with."""
    return len(_gpus(Place(root)))


def add_xid(root: str, gpu: int, xid: int) -> None:
    """Let the kernel log an Xid of a GPU."""
    place = Place(root)
    bus = _gpus(place)[gpu]["bus_id"].lower().removeprefix("0000").rpartition(".")[0]
    text = _XIDS.get(xid, "(see NVIDIA's table of Xid errors)")
    with locked(place, "gpus.lock"):
        with open(place.path(_KERNEL_LOG), encoding="utf-8") as stream:
            number = 1 + sum(line[:1].isdigit() for line in stream)
        with open(place.path(_KERNEL_LOG), "a", encoding="utf-8") as stream:
            stream.write(
                f"{_KERNEL_ERROR},{number},{_now_us()},-;NVRM: Xid (PCI:{bus}): {xid}, "
                f"pid='<unknown>', name=<unknown>, {text}\n SUBSYSTEM=pci\n DEVICE=+pci:{bus}.0\n"
            )


def _gpus(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(place.state(_FILE), {"gpus": []})["gpus"]
    return found


def _change(root: str, gpu: int, **values: object) -> None:
    place = Place(root)
    with locked(place, "gpus.lock"):
        known = read_json(place.state(_FILE), {"gpus": []})
        if not 0 <= gpu < len(known["gpus"]):
            raise MpsfleetError(f"{place.name} has no GPU {gpu}: it has {len(known['gpus'])}")
        known["gpus"][gpu].update(values)
        _write(place, known)


def _write(place: Place, state: dict[str, Any]) -> None:
    write_json(place.state(_FILE), state)
    driver_files.write(place.path("/proc/driver"), state)


def _now_us() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
