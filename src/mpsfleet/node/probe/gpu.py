"""nvidia-smi: one query for all GPUs, and its answer as values. Unsupported, error and silence stay apart.

Sources: nvidia-smi's manual page for the exit statuses; the tokens in brackets are as it prints them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpsfleet.node.host import children
from mpsfleet.node.model import Gpu, Gpus

if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command

_FIELDS = "index,uuid,pci.bus_id,name,driver_version,compute_mode,memory.total,mig.mode.current"
_APPS = ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
_PLACES = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/opt/bin/nvidia-smi")
_EXIT = {
    2: "bad argument",
    4: "no permission",
    6: "nothing found",
    9: "the NVIDIA driver is not loaded",
    12: "the NVML library is not found",
    14: "the infoROM is corrupted",
    15: "a GPU has fallen off the bus",
    255: "other error",
}


def tool(host: Host) -> str:
    """Return the nvidia-smi of the node, as a path of this machine; the usual place where there is none."""
    paths = tuple(host.path(each) for each in _PLACES)
    return next((each for each in paths if os.path.exists(each)), paths[0])


def question(host: Host, limit_s: float) -> Command:
    """Return the query for all GPUs."""
    return children.Command((tool(host), f"--query-gpu={_FIELDS}", "--format=csv,noheader"), limit_s)


def compute_processes(host: Host, limit_s: float) -> Command:
    """Return the query for the processes that compute: a line `GPU's UUID, pid` for each."""
    return children.Command((tool(host), *_APPS), limit_s)


def understand(answer: Answer, limit_s: float) -> Gpus:
    """Return the rows of nvidia-smi, or how it failed; rows beside a warning or a non-zero exit are kept."""
    if answer.missing:
        return Gpus((), "missing")
    if answer.rc is None:
        detail = "answered without end" if answer.capped else f"did not answer within {limit_s:g} s"
        return Gpus((), "timeout", detail, state=answer.state)
    said = f"{answer.out}\n{answer.err}"
    if "Driver/library version mismatch" in said:
        return Gpus((), "mismatch", _mismatch(said), answer.rc)
    gpus = tuple(gpu for line in answer.out.splitlines() if (gpu := _row(line)) is not None)
    if gpus:
        return Gpus(gpus, "ok", rc=answer.rc)
    if "No devices were found" in said:
        return Gpus((), "none-found", "No devices were found", answer.rc)
    if "communicate with the NVIDIA driver" in said or answer.rc == 9:  # noqa: PLR2004  # its exit status
        return Gpus((), "no-driver", "it cannot communicate with the NVIDIA driver", answer.rc)
    first = next((line.strip() for line in said.splitlines() if line.strip()), "no output")
    return Gpus((), "failed", f"exit status {answer.rc} ({_EXIT.get(answer.rc, 'not documented')}): {first}", answer.rc)


def _row(line: str) -> Gpu | None:
    """Return the GPU of a CSV row; None for a line that is none (a warning mixed into the rows)."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(Gpu._fields) or not (cells[0].isdigit() or cells[1].startswith(("GPU-", "MIG-"))):
        return None
    return Gpu(*cells)


def _mismatch(said: str) -> str:
    for line in said.splitlines():
        if line.strip().startswith("NVML library version"):
            return line.partition(":")[2].strip()
    return ""
