"""nvidia-smi's answers as values: unsupported, error, silence and absence stay apart.

The shapes are those of public reports; UUIDs are invented.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.node import gpu_facts
from mpsfleet.node.host import Host
from mpsfleet.node.host.children import Answer
from mpsfleet.node.probe import gpu as probe
from mpsfleet.node.probe.gpu import fields, known_fields, understand

if TYPE_CHECKING:
    from pathlib import Path

    from mpsfleet.node.model import Gpus

ROW0 = "0, GPU-11111111-0000-0000-0000-000000000000, 00000000:3B:00.0, NVIDIA A100, 535.261.03, Default, 40960 MiB, Disabled\n"
ROW1 = "1, GPU-22222222-0000-0000-0000-000000000000, 00000000:86:00.0, NVIDIA A100, 535.261.03, Default, 40960 MiB, Disabled\n"
LOST = "1, GPU-22222222-0000-0000-0000-000000000000, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n"
UNIFIED = "0, GPU-33333333-0000-0000-0000-000000000000, 0000000F:01:00.0, NVIDIA GB10, 580.1, Default, [N/A], [N/A]\n"
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
BAD = 'Field "{}" is not a valid field to query.\n\n'
ECC, RECOVERY = "ecc.errors.uncorrected.volatile.total", "gpu_recovery_action"
VERSIONS = (
    (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Mon Jan  1 00:00:00 UTC 2024\nGCC version:  1.2\n",
        "535.261.03",
    ),
    (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U16)\n",
        "570.86.10",
    ),
    ("GCC version:  gcc version 12.2.0\n", ""),
)


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
        (INFOROM, 14, "failed", 0),
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


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_warning_about_an_inforom_names_the_gpu_on_either_stream(stream: str) -> None:
    gpus = ask(INFOROM + ROW0, 14) if stream == "out" else ask(ROW0, 14, INFOROM)

    assert (gpus.outcome, gpus.inforoms) == ("ok", ("0000:3b:00",))


def test_silence_is_no_answer_and_keeps_the_childs_state_and_the_rows_before_it() -> None:
    gpus = ask(ROW0 + ROW1[:-3], None, state="D")

    assert (gpus.outcome, len(gpus.gpus), gpus.state) == ("timeout", 1, "D")
    assert gpus.detail == "did not answer within 4 s (it told of 1 GPU before)"


def test_an_undocumented_failure_names_status_and_first_line() -> None:
    assert ask("", 12).detail == "exit status 12 (the NVML library is not found): no output"


def test_a_missing_tool_is_neither_failure_nor_no_gpu() -> None:
    assert ask("", None, missing=True).outcome == "missing"


@pytest.mark.parametrize(
    ("version", "newest"), [("470.256.02", ECC), ("", ECC), ("550.163.01", ECC), ("570.86.10", RECOVERY), ("390.1", "")]
)
def test_a_driver_is_asked_what_it_knows(version: str, newest: str) -> None:
    asked = fields(version)

    assert asked[:7] == fields("")[:7]
    assert asked[-1] == newest if newest else "mig.mode.current" not in asked


@pytest.mark.parametrize(
    ("name", "rc", "kept"),
    [(RECOVERY, 2, 9), (ECC, 2, 8), ("mig.mode.current", 2, 7), (RECOVERY, 0, None), ("uuid", 2, None), ("x", 2, None)],
)
def test_a_field_that_the_driver_does_not_know_is_left_out_with_the_newer_ones(
    name: str, rc: int, kept: int | None
) -> None:
    asked = fields("580.1")

    fewer = known_fields(Answer(rc, BAD.format(name), ""), asked)

    assert fewer == (None if kept is None else asked[:kept])


@pytest.mark.parametrize(("text", "version"), VERSIONS)
def test_the_loaded_driver_tells_its_version(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text)

    assert probe.driver_version(Host(str(tmp_path))) == version


def stand_in(tmp_path: Path, unknown: str, version: str = "") -> Host:
    """Give a node whose nvidia-smi does not know a field and counts its calls."""
    tool = tmp_path / "usr/bin/nvidia-smi"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        f"#!/bin/sh\necho call >> {tmp_path}/calls\ncase $1 in *{unknown}*)\n"
        f"  printf '%s\\n\\n' 'Field \"{unknown}\" is not a valid field to query.'; exit 2;;\nesac\n"
        "n=$(echo \"$1\" | tr ',' '\\n' | wc -l)\nprintf '0, GPU-1'; i=2\n"
        "while [ $i -lt $n ]; do printf ', x'; i=$((i + 1)); done; echo\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    if version:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
        (tmp_path / "proc/driver/nvidia/version").write_text(f"NVRM version: x Kernel Module  {version}  y\n")
    return Host(str(tmp_path))


@pytest.mark.parametrize(
    ("unknown", "outcome", "calls", "asked"),
    [("nothing", "ok", 1, 10), (RECOVERY, "ok", 2, 9), ("mig.mode.current", "ok", 2, 7), ("query-gpu", "failed", 1, 0)],
)
def test_nvidia_smi_is_asked_at_most_twice(tmp_path: Path, unknown: str, outcome: str, calls: int, asked: int) -> None:
    host = stand_in(tmp_path, unknown, "580.1")

    gpus = probe.ask(host, 4.0)

    assert gpus.outcome == outcome
    assert (tmp_path / "calls").read_text().count("call") == calls
    assert [sum(each != "" for each in row) for row in gpus.gpus] == ([asked] if asked else [])


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        ("41", gpu_facts.VALUE),
        ("NVIDIA A100", gpu_facts.VALUE),
        ("None", gpu_facts.VALUE),
        ("[N/A]", gpu_facts.UNSUPPORTED),
        ("N/A", gpu_facts.UNSUPPORTED),
        ("[Not Supported]", gpu_facts.UNSUPPORTED),
        ("Not Supported", gpu_facts.UNSUPPORTED),
        ("", gpu_facts.UNSUPPORTED),
        ("[Unknown Error]", gpu_facts.ERROR),
        ("ERR!", gpu_facts.ERROR),
        ("[Insufficient Permissions]", gpu_facts.DENIED),
        ("Insufficient Permissions", gpu_facts.DENIED),
        ("[GPU is lost]", gpu_facts.LOST),
        ("[GPU requires reset]", gpu_facts.RESET),
        ("[Some new word]", gpu_facts.UNKNOWN),
    ],
)
def test_a_cell_is_a_value_or_one_of_four_other_outcomes(cell: str, outcome: str) -> None:
    assert gpu_facts.outcome(cell) == outcome


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("0000000F:01:00.0", "000f:01:00"),
        ("[GPU is lost]", ""),
        ("3b:00.0", ""),
        ("0000:xx:00", ""),
        ("", ""),
    ],
)
def test_a_bus_id_has_one_form(text: str, bus: str) -> None:
    assert gpu_facts.bus_of(text) == bus


LINES = st.one_of(
    st.text(max_size=60),
    st.sampled_from([ROW0, ROW1, LOST, UNIFIED, INFOROM, BAD.format(ECC), "0, GPU-1\n", ",,,,,,,\n", "1,,,,,,,,,\n"]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LINES, max_size=6).map("".join),
    st.text(max_size=80),
    st.one_of(st.none(), st.integers(-9, 255)),
)
def test_no_text_breaks_the_parser(out: str, err: str, rc: int | None) -> None:
    gpus = understand(Answer(rc, out, err), 4.0, "535.1")

    assert gpus.outcome != "ok" or gpus.gpus
    assert (rc is None) == (gpus.outcome == "timeout")
    assert known_fields(Answer(rc, out, err), fields("580")) in (None, fields("580")[:8])
    assert all(gpu_facts.outcome(cell) for row in gpus.gpus for cell in row)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_no_cell_and_no_bus_id_breaks_a_parser(text: str) -> None:
    bus = gpu_facts.bus_of(text)

    assert gpu_facts.bus_of(bus) == bus
    assert gpu_facts.count(text) >= 0
