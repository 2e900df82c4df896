"""A simulated fleet whose nodes differ: what each has, what Slurm says of it, and which GPU a job gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rehearsal import Rehearsal

from mpsfleet.errors import UsageError
from mpsfleet.sim.gpu.board import boards, said

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = "a100:4,a100:2+t4:2,a100:1,0"


@pytest.fixture(scope="module")
def kinds(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """Start four nodes: four GPUs, two of two types, one, and none."""
    rehearsal = Rehearsal(tmp_path_factory.mktemp("kinds"), program)
    try:
        rehearsal.sim("up", "4", "--gpus", KINDS)
        yield rehearsal
    finally:
        rehearsal.sim("down", code=None)


@pytest.mark.parametrize(
    ("text", "nodes", "is_said"),
    [
        ("4", 3, "a100:4"),
        ("0", 2, "0"),
        ("a100:2+t4:2", 2, "a100:2+t4:2"),
        ("a100:4, t4:1", 2, "a100:4,t4:1"),
        ("a100:0", 1, "0"),
        (KINDS, 4, KINDS),
    ],
)
def test_boards_are_said_as_they_are_read(text: str, nodes: int, is_said: str) -> None:
    assert said(boards(text, nodes)) == is_said


@pytest.mark.parametrize("text", ["", "a100", "a100:", "a100:x", "4+4", "-1", "a100:2,", "k80:1"])
def test_what_is_no_board_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        boards(text, 2)


def test_minor_numbers_are_in_nvidia_smis_order_on_a_board_of_one_type_alone() -> None:
    plain, mixed = boards("a100:4,a100:2+t4:2", 2)
    assert (plain.minors(), mixed.minors(), mixed.minors("t4")) == ((0, 1, 2, 3), (2, 3, 0, 1), (0, 1))


def test_each_node_has_its_own_gpus(kinds: Rehearsal) -> None:
    asked = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    names = [kinds.on(node, *asked).splitlines() for node in ("n1", "n2", "n3")]
    a100, t4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"
    assert names == [[a100] * 4, [a100, a100, t4, t4], [a100]]


def test_a_node_without_gpus_has_no_tool_of_nvidias_and_no_driver(kinds: Rehearsal) -> None:
    root = kinds.root("n4")
    assert not list((root / "usr/bin").glob("nvidia*"))
    assert not (root / "proc/driver").exists()
    assert kinds.sim("break", "n4", "gpu-lost", code=64).stderr.endswith("n4 has no GPU 0: it has 0\n")


def test_slurm_counts_the_gpus_of_each_type(kinds: Rehearsal) -> None:
    shown = kinds.on("ctl", "sinfo", "-h", "-N", "-o", "%N %G").splitlines()
    assert shown == [
        "n1 gpu:a100:4,mps:a100:400",
        "n2 gpu:a100:2,gpu:t4:2,mps:a100:200,mps:t4:200",
        "n3 gpu:a100:1,mps:a100:100",
        "n4 (null)",
    ]


def test_the_inventory_tells_each_hosts_number_of_gpus(kinds: Rehearsal) -> None:
    hosts = [line for line in kinds.sim("inventory").stdout.splitlines() if line.startswith("n")]
    assert [line.rsplit("=", 1)[1] for line in hosts] == ["4", "4", "1", "0"]


def test_a_job_gets_gpus_of_the_type_it_asks_for_and_shares_those_of_one_gpu_alone(kinds: Rehearsal) -> None:
    for gres in ("gpu:t4:1", "mps:a100:50", "mps:t4:50"):
        kinds.on("ctl", "sbatch", "--nodelist=n2", f"--gres={gres}", "--wrap=sleep 600")
    shown = kinds.on("ctl", "scontrol", "show", "node", "n2", "-d")
    states = kinds.on("ctl", "squeue", "-h", "-o", "%T").split()
    kinds.on("ctl", "scancel", *kinds.on("ctl", "squeue", "-h", "-o", "%i").split())
    assert "GresUsed=gpu:a100:0(IDX:N/A),gpu:t4:1(IDX:2),mps:a100:1(IDX:0),mps:t4:0(IDX:N/A)\n" in shown
    assert states == ["RUNNING", "RUNNING", "PENDING"]


def test_a_type_that_no_node_has_is_refused_at_once(kinds: Rehearsal) -> None:
    said = kinds.on("ctl", "sbatch", "--gres=gpu:v100:1", "--wrap=sleep 600", code=1)
    assert "Requested node configuration is not available" in said
