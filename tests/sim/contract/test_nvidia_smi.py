"""The simulated nvidia-smi: its words, tokens and exit status in each state of the GPUs."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mpsfleet.errors import MpsfleetError
from mpsfleet.node.host.children import Answer
from mpsfleet.node.probe.gpu import fields, understand
from mpsfleet.sim import gpu, mps
from mpsfleet.sim.gpu.board import boards
from mpsfleet.sim.place import Place
from mpsfleet.sim.processes import registered

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = ",".join(fields("535.261.03"))  # those that the audit asks for


@pytest.fixture
def root(folder: Path) -> Iterator[str]:
    """Give a node with two GPUs."""
    node = Path(folder) / f"g{time.monotonic_ns() % 10**6}"
    for each in ("proc", "sim/pids", "usr/bin"):
        (node / each).mkdir(parents=True)
    mps.install_tools(str(node), "535")
    gpu.install_tools(str(node), "535", boards("2", 1)[0])
    yield str(node)
    for process in registered(Place(str(node))):
        mps.end(str(node), process.pid)


@pytest.fixture
def mixed(root: str) -> str:
    """Give a node with two A100 and two T4, whose minor numbers are not in nvidia-smi's order."""
    gpu.install_tools(root, "535", boards("a100:2+t4:2", 1)[0])
    return root


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
    record = (Path(root) / "dev/kmsg").read_text(encoding="utf-8").splitlines()[1]
    assert record.startswith("3,2,")
    assert ",-;NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in record


def test_a_program_beside_mps_is_shown_on_its_gpu(root: str) -> None:
    pid = mps.start_bypassing(root, 2001, 1)
    _, out = smi(root, "--query-compute-apps=pid,name,used_memory,gpu_uuid", "--format=csv,noheader")
    assert out == f"{pid}, python3, 512 MiB, {rows(root, 'uuid')[1][0]}\n"
    mps.end(root, pid)
    assert smi(root, "--query-compute-apps=pid", "--format=csv,noheader") == (0, "")


@pytest.mark.parametrize("word", ["EXCLUSIVE_PROCESS", "3"])
def test_the_compute_mode_is_set_and_outlasts_a_repair(root: str, word: str) -> None:
    bus, uuid = rows(root, "pci.bus_id,uuid")[1]
    said = f"Set compute mode to EXCLUSIVE_PROCESS for GPU {bus}.\nAll done.\n"
    assert smi(root, "-i", uuid, "-c", word) == (0, said)
    gpu.heal(root)
    assert rows(root, "compute_mode,index") == [["Default", "0"], ["Exclusive_Process", "1"]]


def test_fields_are_answered_in_any_order(mixed: str) -> None:
    assert rows(mixed, "mig.mode.current,name,memory.total,index") == [
        ["Disabled", "NVIDIA A100-SXM4-40GB", "40960", "0"],
        ["Disabled", "NVIDIA A100-SXM4-40GB", "40960", "1"],
        ["[N/A]", "Tesla T4", "15360", "2"],
        ["[N/A]", "Tesla T4", "15360", "3"],
    ]


def test_the_drivers_own_files_name_each_gpu_its_minor_and_bus(mixed: str) -> None:
    texts = [path.read_text() for path in sorted(Path(f"{mixed}/proc/driver/nvidia/gpus").glob("*/information"))]
    values = [dict(line.split(":", 1) for line in text.splitlines()) for text in texts]
    buses = [row[0][4:].lower() for row in rows(mixed, "pci.bus_id")]
    assert [each["GPU UUID"].strip() for each in values] == [row[0] for row in rows(mixed, "uuid")]
    assert [each["Bus Location"].strip() for each in values] == buses
    assert [each["Device Minor"].strip() for each in values] == ["2", "3", "0", "1"]


def test_the_drivers_own_files_show_neither_a_missing_gpu_nor_a_driver_that_is_not_loaded(mixed: str) -> None:
    driver = Path(f"{mixed}/proc/driver/nvidia")
    gpu.set_state(mixed, 1, "missing")
    assert sorted(path.name for path in (driver / "gpus").iterdir()) == ["0000:07:00.0", "0000:48:00.0", "0000:4c:00.0"]
    gpu.set_tool(mixed, "no-driver")
    assert not driver.exists()
    gpu.heal(mixed)
    assert len(list((driver / "gpus").iterdir())) == 4


def test_a_model_without_mig_cannot_be_put_into_it(mixed: str) -> None:
    with pytest.raises(MpsfleetError, match=r"GPU 2 of .* is a Tesla T4, which knows no MIG mode"):
        gpu.set_mig(mixed, 2)
