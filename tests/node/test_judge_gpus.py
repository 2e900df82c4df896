"""The judgement of what nvidia-smi says of each GPU: its troubles, its errors of memory, its compute mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build import DESIRED, changed, daemon, gpu

from mpsfleet.node.cards import Card
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Gpu, Gpus, Peer, Unreadable

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

EXCLUSIVE = DESIRED._replace(compute_mode="exclusive_process")
GONE = {"daemons": (), "control": Peer("refused"), "privileged": Peer("refused")}


def shown(**changes: str) -> Gpus:
    return Gpus((gpu(0), gpu(1)._replace(**changes)), "ok", rc=0)


def card(instance: str = "node", compute_mode: str = "") -> tuple[Card, ...]:
    row = gpu(1)
    rest = Card(1, row.uuid, 1, row.bus_id, row.name, "Disabled", instance, compute_mode)
    return (rest._replace(index=0, uuid=gpu(0).uuid, instance="node", compute_mode=""), rest)


CASES: list[tuple[str, Gpus, list[tuple[str, str]], str]] = [
    ("errors of memory", shown(ecc="3"), [("gpu-ecc", "gpu1")], "GPU 1 has had 3 uncorrectable memory errors since"),
    (
        "errors that the driver asks no action for",
        shown(ecc="3", recovery="None"),
        [("gpu-ecc-contained", "gpu1")],
        "and the driver asks for no action",
    ),
    ("no error of memory", shown(ecc="0"), [], ""),
    ("a GPU that counts none", shown(ecc="[N/A]", recovery="[N/A]"), [], ""),
    ("memory that cannot be read", shown(ecc="[Unknown Error]"), [("gpu-error", "gpu1")], "reports an error for GPU 1"),
    ("no recovery", shown(ecc="0", recovery="None"), [], ""),
    ("a reset", shown(recovery="Reset"), [("gpu-requires-reset", "gpu1")], "the driver asks for Reset"),
    ("a reboot", shown(recovery="Reboot"), [("gpu-requires-reset", "gpu1")], "the driver asks for Reboot"),
    ("a drain of its peers", shown(recovery="Drain P2P"), [("gpu-requires-reset", "gpu1")], "Drain P2P"),
    ("a drain and a reset", shown(recovery="Drain and Reset"), [("gpu-requires-reset", "gpu1")], "Drain and Reset"),
    (
        "an action that is not known",
        shown(recovery="Ask your vendor"),
        [("gpu-unasked", "gpu1")],
        "nvidia-smi says Ask your vendor for recovery of GPU 1, which is not understood",
    ),
    ("a token that is not known", shown(ecc="[Some word]"), [("gpu-unasked", "gpu1")], "[Some word] for ecc of GPU 1"),
    (
        "not permitted",
        shown(memory_total="[Insufficient Permissions]"),
        [("gpu-unasked", "gpu1")],
        "not permitted to read memory_total of GPU 1",
    ),
    ("withheld by MIG", shown(memory_total="[Insufficient Permissions]", mig="Enabled"), [], ""),
    ("memory shared with the host", shown(memory_total="[N/A]", ecc="[N/A]", mig="[N/A]"), [], ""),
    (
        "an infoROM is corrupted",
        Gpus((gpu(0)._replace(bus_id="00000000:86:00.0"), gpu(1)), "ok", rc=14, inforoms=("0000:3b:00",)),
        [("gpu-inforom", "gpu1")],
        "the infoROM of GPU 1 is corrupted, says nvidia-smi; jobs run",
    ),
    (
        "the rows before a silence",
        Gpus((gpu(0)._replace(recovery="Reset"),), "timeout", "did not answer within 4 s", state="S"),
        [("gpu-requires-reset", "gpu0"), ("nvidia-smi-slow", "GPUs")],
        "",
    ),
    (
        "a mismatch names both versions",
        Gpus((), "mismatch", "580.126", driver="570.86.10"),
        [("driver-mismatch", "GPUs")],
        "the NVIDIA libraries (libraries 580.126) do not match the loaded kernel driver 570.86.10",
    ),
    (
        "no kernel module",
        Gpus((), "no-driver"),
        [("driver-not-loaded", "GPUs")],
        "cannot communicate with the NVIDIA driver (no kernel module is loaded)",
    ),
    (
        "a kernel module that does not answer",
        Gpus((), "no-driver", driver="570.86.10"),
        [("driver-not-loaded", "GPUs")],
        "(its kernel module 570.86.10 is loaded)",
    ),
]


@pytest.mark.parametrize(
    ("gpus", "expected", "sentence"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_an_answer_of_nvidia_smi_is_judged(gpus: Gpus, expected: list[tuple[str, str]], sentence: str) -> None:
    report = judge(changed(gpus=gpus), DESIRED)

    assert [(each.code, each.subject) for each in report.findings] == expected
    assert not sentence or sentence in report.findings[0].message


MODES: list[tuple[str, dict[str, Any], Desired, list[tuple[str, str]], str]] = [
    (
        "prohibited",
        {"gpus": shown(compute_mode="Prohibited")},
        DESIRED,
        [("compute-mode-prohibited", "gpu1")],
        "no CUDA program can use it",
    ),
    (
        "prohibited, and another is configured",
        {"gpus": shown(compute_mode="Prohibited"), "cards": card()},
        DESIRED._replace(compute_mode="default"),
        [("compute-mode-prohibited", "gpu1")],
        "",
    ),
    ("prohibited, and not ours", {"gpus": shown(compute_mode="Prohibited"), "cards": card("")}, DESIRED, [], ""),
    ("exclusive beside a daemon", {"gpus": shown(compute_mode="Exclusive_Process")}, DESIRED, [], ""),
    (
        "exclusive without one",
        {"gpus": shown(compute_mode="Exclusive_Process"), **GONE},
        DESIRED,
        [("daemon-absent", "daemon node"), ("compute-mode-exclusive", "gpu1")],
        "",
    ),
    (
        "exclusive, and whether a daemon runs is not known",
        {"gpus": shown(compute_mode="Exclusive_Process"), "daemons": Unreadable("no /proc")},
        DESIRED,
        [("probe-failed", "daemons")],
        "",
    ),
    (
        "exclusive beside a daemon whose files were deleted",
        {**GONE, "gpus": shown(compute_mode="Exclusive_Process"), "daemons": (daemon(deleted=True, inode=9),)},
        DESIRED,
        [("daemon-unreachable", "daemon node")],
        "",
    ),
    (
        "exclusive without one, as configured",
        {"gpus": Gpus((gpu(0)._replace(compute_mode="Exclusive_Process"),), "ok"), **GONE},
        EXCLUSIVE._replace(gpus_expected=1),
        [("daemon-absent", "daemon node")],
        "",
    ),
    (
        "left exclusive by a deploy before",
        {"gpus": shown(compute_mode="Exclusive_Process"), "cards": card("", "Default")},
        DESIRED,
        [("compute-mode-exclusive", "gpu1")],
        "GPU 1 is under MPS no more and was left with compute mode Exclusive_Process; before, it had Default",
    ),
    (
        "exclusive by its owner's choice",
        {"gpus": shown(compute_mode="Exclusive_Process"), "cards": card("")},
        DESIRED,
        [],
        "",
    ),
    (
        "a lost GPU has no mode",
        {"gpus": Gpus((gpu(0), Gpu("1", gpu(1).uuid, *(("[GPU is lost]",) * 6))), "ok"), "cards": card()},
        DESIRED._replace(compute_mode="default"),
        [("gpu-lost", "gpu1")],
        "",
    ),
    ("MIG, and not ours", {"gpus": shown(mig="Enabled"), "cards": card("")}, DESIRED, [], ""),
]


@pytest.mark.parametrize(
    ("changes", "desired", "expected", "sentence"), [each[1:] for each in MODES], ids=[each[0] for each in MODES]
)
def test_a_compute_mode_is_judged(
    changes: dict[str, Any], desired: Desired, expected: list[tuple[str, str]], sentence: str
) -> None:
    report = judge(changed(**changes), desired)

    assert [(each.code, each.subject) for each in report.findings] == expected
    assert not sentence or sentence in report.findings[0].message
