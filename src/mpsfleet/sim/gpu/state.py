"""The state of a node's GPUs: R/sim/gpus.json, and R/sim/kmsg with records as /dev/kmsg has them."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import interpreter
from mpsfleet.sim.place import Place, locked, read_json, write_json

if TYPE_CHECKING:
    from typing import Literal

    GpuState = Literal["ok", "lost", "reset", "missing", "error"]
    ToolState = Literal["ok", "hanging", "mismatch", "no-driver"]

NVIDIA_SMI = "/usr/bin/nvidia-smi"
_FILE = "gpus.json"
_KERNEL_LOG = "kmsg"
_NAMESPACE = uuid.UUID("8f0b6b1e-6d0a-4c53-9d6a-0d9f3f1b7a10")  # the lab's: n1 has the same UUIDs in both
_BUSES = (0x07, 0x0B, 0x48, 0x4C, 0x88, 0x8B, 0xC8, 0xCB)  # as on an eight-GPU A100 board; further ones count on
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


def install_tools(root: str, version: str, gpus: int) -> None:
    """Put nvidia-smi of a driver version, and GPUs that are all well, into a node."""
    place = Place(root)
    write_json(place.state(_FILE), fresh(place.name, gpus, _DRIVERS[version]))
    with open(place.state(_KERNEL_LOG), "w", encoding="utf-8") as stream:
        stream.write(f"6,1,{_now_us()},-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {_DRIVERS[version]}\n")
    interpreter.write_program(place.fleet, place.path(NVIDIA_SMI), "mpsfleet.sim.gpu.nvidia_smi", root)


def fresh(node: str, gpus: int, driver_version: str) -> dict[str, Any]:
    """Return the state of a node whose GPUs are all well; the UUIDs follow from its name."""
    return {
        "schema": 1,
        "tool": "ok",
        "driver_version": driver_version,
        "gpus": [
            {
                "uuid": f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}",
                "bus_id": f"00000000:{_BUSES[index] if index < len(_BUSES) else 0xD0 + index:02X}:00.0",
                "name": "NVIDIA A100-SXM4-40GB",
                "memory_mib": 40960,
                "compute_mode": "Default",
                "persistence_mode": "Enabled",
                "state": "ok",
            }
            for index in range(gpus)
        ],
    }


def set_state(root: str, gpu: int, state: GpuState) -> None:
    """Set how a GPU does, by its place on the board (a missing one keeps its place)."""
    _change(root, gpu, state=state)


def set_mig(root: str, gpu: int, *, enabled: bool = True) -> None:
    """Put a GPU into MIG mode, with two instances, or out of it."""
    _change(root, gpu, mig=enabled)


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
        write_json(place.state(_FILE), {**read_json(place.state(_FILE), {}), "tool": state})


def heal(root: str) -> None:
    """Make all GPUs and nvidia-smi well again. The kernel log keeps what it has."""
    place = Place(root)
    with locked(place, "gpus.lock"):
        known = read_json(place.state(_FILE), {})
        whole = fresh(place.name, len(known["gpus"]), known["driver_version"])
        write_json(place.state(_FILE), whole)


def add_xid(root: str, gpu: int, xid: int) -> None:
    """Let the kernel log an Xid of a GPU."""
    place = Place(root)
    bus = _gpus(place)[gpu]["bus_id"].lower().removeprefix("0000").rpartition(".")[0]
    text = _XIDS.get(xid, "(see NVIDIA's table of Xid errors)")
    with locked(place, "gpus.lock"):
        with open(place.state(_KERNEL_LOG), encoding="utf-8") as stream:
            number = 1 + sum(line[:1].isdigit() for line in stream)
        with open(place.state(_KERNEL_LOG), "a", encoding="utf-8") as stream:
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
        write_json(place.state(_FILE), known)


def _now_us() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
