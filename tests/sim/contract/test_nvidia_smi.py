"""The simulated nvidia-smi: its words, tokens and exit status in each state of the GPUs."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node.host.children import Answer
from mpsfleet.node.probe.gpu import understand
from mpsfleet.sim import gpu, mps
from mpsfleet.sim.place import Place
from mpsfleet.sim.processes import registered

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = "index,uuid,pci.bus_id,name,driver_version,compute_mode,memory.total"  # those that the audit asks for


@pytest.fixture
def root(folder: Path) -> Iterator[str]:
    """Give a node with two GPUs."""
    node = Path(folder) / f"g{time.monotonic_ns() % 10**6}"
    for each in ("proc", "sim/pids", "usr/bin"):
        (node / each).mkdir(parents=True)
    mps.install_tools(str(node), "535")
    gpu.install_tools(str(node), "535", 2)
    yield str(node)
    for process in registered(Place(str(node))):
        mps.end(str(node), process.pid)


def smi(root: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [f"{root}/usr/bin/nvidia-smi", *words], capture_output=True, text=True, check=False, timeout=10
    )
    return done.returncode, done.stdout


def rows(root: str, fields: str) -> list[list[str]]:
    _, out = smi(root, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return [line.split(", ") for line in out.splitlines()]


def test_all_is_well(root: str) -> None:
    assert rows(root, "index,name,memory.total,compute_mode,driver_version") == [
        [index, "NVIDIA A100-SXM4-40GB", "40960", "Default", "535.261.03"] for index in ("0", "1")
    ]
    assert smi(root, "--query-gpu=index,memory.total", "--format=csv")[1] == (
        "index, memory.total [MiB]\n0, 40960 MiB\n1, 40960 MiB\n"
    )
    assert smi(root)[0] == 0


def test_an_unknown_field_is_a_bad_argument(root: str) -> None:
    assert smi(root, "--query-gpu=index,colour", "--format=csv") == (
        2,
        'Field "colour" is not a valid field to query.\n\n',
    )


def test_a_lost_gpu_is_a_token_in_its_row_and_still_listed(root: str) -> None:
    gpu.set_state(root, 1, "lost")
    assert rows(root, "index,name,memory.total")[1] == ["1", "[GPU is lost]", "[GPU is lost]"]
    assert smi(root, "--query-gpu=index", "--format=csv")[0] == 15
    assert smi(root, "-L")[1].count("GPU-") == 2


def test_a_gpu_that_needs_a_reset_keeps_its_used_memory(root: str) -> None:
    gpu.set_state(root, 0, "reset")
    assert rows(root, "index,pstate,memory.used")[0] == ["0", "[GPU requires reset]", "0"]


def test_an_error_is_a_token_of_its_own(root: str) -> None:
    gpu.set_state(root, 0, "error")
    assert rows(root, "temperature.gpu,fan.speed")[0] == ["[Unknown Error]", "[Unknown Error]"]
    assert rows(root, "temperature.gpu,fan.speed")[1] == ["30", "[N/A]"]


def test_missing_gpus_close_ranks_and_none_is_said_with_6(root: str) -> None:
    second = rows(root, "uuid")[1]
    gpu.set_state(root, 0, "missing")
    assert rows(root, "index,uuid") == [["0", *second]]
    gpu.set_state(root, 1, "missing")
    assert smi(root, "--query-gpu=index", "--format=csv,noheader") == (6, "No devices were found\n")


@pytest.mark.parametrize(
    ("state", "outcome"), [("mismatch", "mismatch"), ("no-driver", "no-driver"), ("ok", "ok")], ids=lambda each: each
)
def test_the_audit_understands_how_the_tool_does(root: str, state: str, outcome: str) -> None:
    gpu.set_tool(root, state)  # type: ignore[arg-type]  # the table's words
    rc, out = smi(root, f"--query-gpu={FIELDS}", "--format=csv,noheader")
    assert understand(Answer(rc, out, ""), 4.0).outcome == outcome


def test_a_hanging_tool_never_answers(root: str) -> None:
    gpu.set_tool(root, "hanging")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([f"{root}/usr/bin/nvidia-smi"], capture_output=True, check=False, timeout=0.5)
    gpu.heal(root)
    assert smi(root)[0] == 0


def test_mig_ecc_and_unified_memory_are_their_gpus_alone(root: str) -> None:
    gpu.set_mig(root, 0)
    gpu.set_ecc_errors(root, 1, 3)
    gpu.set_unified_memory(root, 1)
    fields = "mig.mode.current,ecc.errors.uncorrected.volatile.total,memory.total"
    assert rows(root, fields) == [["Enabled", "0", "40960"], ["Disabled", "3", "[N/A]"]]
    assert smi(root, "-L")[1].count("MIG-") == 2


def test_an_xid_is_a_record_of_the_kernel_log(root: str) -> None:
    gpu.add_xid(root, 0, 79)
    record = (Path(root) / "sim/kmsg").read_text(encoding="utf-8").splitlines()[1]
    assert record.startswith("3,2,")
    assert ",-;NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in record


def test_a_program_beside_mps_is_shown_on_its_gpu(root: str) -> None:
    pid = mps.start_bypassing(root, 2001, 1)
    _, out = smi(root, "--query-compute-apps=pid,name,used_memory,gpu_uuid", "--format=csv,noheader")
    assert out == f"{pid}, python3, 512 MiB, {rows(root, 'uuid')[1][0]}\n"
    mps.end(root, pid)
    assert smi(root, "--query-compute-apps=pid", "--format=csv,noheader") == (0, "")


def test_the_compute_mode_is_set(root: str) -> None:
    assert smi(root, "-i", "1", "-c", "EXCLUSIVE_PROCESS")[0] == 0
    assert rows(root, "compute_mode") == [["Default"], ["Exclusive_Process"]]
