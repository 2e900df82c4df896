"""The NVIDIA driver's own files, /proc/driver/nvidia: its version, and what it knows of each GPU.

Their form is that of NVIDIA's kernel module (kernel-open/nvidia/nv-procfs.c in open-gpu-kernel-modules): blanks and
tabs after the colon, and a folder for each GPU, named by its bus id in small letters.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

FOLDER = "nvidia"


def bus_folder(bus_id: str) -> str:
    """Return the kernel's form of a bus id of nvidia-smi: 0000:07:00.0 for 00000000:07:00.0."""
    domain, _, rest = bus_id.partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def version(driver_version: str) -> str:
    """Return the text of `version`."""
    return (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver_version}  Mon Jan  1 00:00:00 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (SIMULATED)\n"
    )


def information(gpu: dict[str, Any], driver_version: str) -> str:
    """Return the text of a GPU's `information`."""
    return (
        f"Model: \t\t {gpu['name']}\n"
        f"IRQ:   \t\t {100 + gpu['minor']}\n"
        f"GPU UUID: \t {gpu['uuid']}\n"
        "Video BIOS: \t 92.00.45.00.03\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 47 bits\n"
        "DMA Mask: \t 0x7fffffffffff\n"
        f"Bus Location: \t {bus_folder(gpu['bus_id'])}\n"
        f"Device Minor: \t {gpu['minor']}\n"
        f"GPU Firmware: \t {driver_version}\n"
        "GPU Excluded:\t No\n"
    )


def write(driver: str, state: dict[str, Any]) -> None:
    """Make the folder `driver` (/proc/driver of a node) hold what the driver shows in this state of the GPUs.

    A GPU that is missing has no folder; without the driver there is nothing at all.
    """
    top = f"{driver}/{FOLDER}"
    if state["tool"] == "no-driver":
        shutil.rmtree(top, ignore_errors=True)
        return
    present = {bus_folder(each["bus_id"]): each for each in state["gpus"] if each["state"] != "missing"}
    os.makedirs(f"{top}/gpus", 0o755, exist_ok=True)
    _put(f"{top}/version", version(state["driver_version"]))
    for name, gpu in present.items():
        os.makedirs(f"{top}/gpus/{name}", 0o755, exist_ok=True)
        _put(f"{top}/gpus/{name}/information", information(gpu, state["driver_version"]))
    for name in os.listdir(f"{top}/gpus"):
        if name not in present:
            shutil.rmtree(f"{top}/gpus/{name}")


def _put(path: str, text: str) -> None:
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            if stream.read() == text:
                return
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(path, 0o644)
