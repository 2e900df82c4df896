"""nvidia-smi's answers as values: unsupported, error, silence and absence stay apart.

The shapes are those of public reports; UUIDs are invented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mpsfleet.node.host.children import Answer
from mpsfleet.node.probe.gpu import understand

if TYPE_CHECKING:
    from mpsfleet.node.model import Gpus

ROW0 = "0, GPU-11111111-0000-0000-0000-000000000000, 00000000:3B:00.0, NVIDIA A100, 535.261.03, Default, 40960 MiB, Disabled\n"
ROW1 = "1, GPU-22222222-0000-0000-0000-000000000000, 00000000:86:00.0, NVIDIA A100, 535.261.03, Default, 40960 MiB, Disabled\n"
LOST = "1, GPU-22222222-0000-0000-0000-000000000000, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n"
UNIFIED = "0, GPU-33333333-0000-0000-0000-000000000000, 0000000F:01:00.0, NVIDIA GB10, 580.1, Default, [N/A], [N/A]\n"
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"


def ask(out: str, rc: int | None = 0, err: str = "", **more: object) -> Gpus:
    return understand(Answer(rc, out, err, **more), 4.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("out", "rc", "outcome", "count"),
    [
        (ROW0 + ROW1, 0, "ok", 2),
        (ROW0 + LOST, 0, "ok", 2),
        (UNIFIED, 0, "ok", 1),
        (INFOROM + ROW0 + ROW1, 14, "ok", 2),
        (ROW0 + ROW1 + INFOROM, 14, "ok", 2),
        ("No devices were found\n", 6, "none-found", 0),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, "no-driver", 0),
        ("", 9, "no-driver", 0),
        ("", 12, "failed", 0),
        ("Failed to initialize NVML: Unknown Error\n", 255, "failed", 0),
        ('Field "nonsense" is not a valid field to query.\n', 2, "failed", 0),
        ("", 0, "failed", 0),
    ],
)
def test_an_answer_is_understood(out: str, rc: int, outcome: str, count: int) -> None:
    gpus = ask(out, rc)

    assert (gpus.outcome, len(gpus.gpus)) == (outcome, count)


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_mismatch_names_the_libraries_version_on_either_stream(stream: str) -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"

    gpus = ask(text, 18) if stream == "out" else ask("", 18, text)

    assert (gpus.outcome, gpus.detail) == ("mismatch", "580.126")


def test_silence_is_no_answer_and_keeps_the_childs_state() -> None:
    gpus = ask(ROW0, None, state="D")

    assert (gpus.outcome, gpus.gpus, gpus.state) == ("timeout", (), "D")


def test_an_undocumented_failure_names_status_and_first_line() -> None:
    assert ask("", 12).detail == "exit status 12 (the NVML library is not found): no output"


def test_a_missing_tool_is_neither_failure_nor_no_gpu() -> None:
    assert ask("", None, missing=True).outcome == "missing"
