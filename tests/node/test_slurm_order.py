"""Slurm's numbering of GPUs: `slurmd -G`'s lines in their order, kept until Slurm's files change."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mpsfleet.node import slurm_order
from mpsfleet.node.host import Host
from mpsfleet.node.model import Unreadable

# Recorded on 22.05 and 24.11; the lines of 24.11 go on with Links= and Flags=.
REAL = """\
slurmd: Node configuration differs from hardware: CPUs=64:2(hw) Boards=1:1(hw) SocketsPerBoard=64:1(hw)
slurmd: Gres Name=shard Type=h100 Count=4 Index=1 ID=1918986455 File=/dev/nvidia1 Links=(null) Flags=HAS_FILE,HAS_TYPE,SHARED
slurmd: Gres Name=gpu Type=h100 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML
slurmd: Gres Name=shard Type=a100 Count=4 Index=2 ID=1918986455 File=/dev/nvidia2 (null)
slurmd: Gres Name=gpu Type=a100 Count=1 Index=2 ID=7696487 File=/dev/nvidia2 (null)
slurmd: Gres Name=gpu Type=a100 Count=2 Index=0 ID=7696487 File=/dev/nvidia[0,3] (null)
"""


def line(file: str) -> str:
    return f"slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File={file} (null)\n"


@pytest.mark.parametrize(
    ("said", "order"),
    [
        (REAL, (1, 2, 0, 3)),
        (line("/dev/nvidia[2-3]") + line("/dev/nvidia0"), (2, 3, 0)),
        (line("/dev/nvidia11"), (11,)),
    ],
)
def test_the_order_is_that_of_the_lines(said: str, order: tuple[int, ...]) -> None:
    assert slurm_order.understand(said) == order


@pytest.mark.parametrize(
    "said",
    [
        "",
        "slurmd: fatal: Unable to determine this slurmd's NodeName\n",
        line("(null)"),
        line("/dev/nvidia-caps/nvidia-cap21"),
        line("/dev/nvidia[0-"),
        line("/dev/nvidia[0-99999999]"),
        line("/dev/nvidia0-3"),
        line("/dev/nvidia0") + line("/dev/nvidia0"),
    ],
)
def test_an_order_that_is_not_plain_is_not_known(said: str) -> None:
    assert isinstance(slurm_order.understand(said), Unreadable)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for each in ("run", "etc/slurm", "usr/sbin"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("")
    (tmp_path / "etc/slurm/gres.conf").write_text("")
    slurmd(tmp_path, f"echo called >> {tmp_path}/calls; echo '{line('/dev/nvidia[3,1]').strip()}' >&2")
    return Host.at(str(tmp_path))


def slurmd(root: Path, script: str) -> None:
    (root / "usr/sbin/slurmd").write_text(f"#!/bin/sh\n{script}\n")
    (root / "usr/sbin/slurmd").chmod(0o755)


def calls(host: Host) -> int:
    return len(Path(host.root, "calls").read_text().splitlines())


def test_slurmd_is_asked_once_while_its_files_stay(host: Host) -> None:
    assert slurm_order.minors(host) == slurm_order.minors(host) == (3, 1)

    assert calls(host) == 1


def test_slurmd_is_asked_again_when_a_file_of_slurms_changed(host: Host) -> None:
    slurm_order.minors(host)
    Path(host.root, "etc/slurm/gres.conf").write_text("# new\n")
    slurm_order.minors(host)

    assert calls(host) == 2


def test_slurmd_is_asked_again_after_a_while(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm_order.minors(host)
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    slurm_order.minors(host)

    assert calls(host) == 2


def test_it_is_told_which_slurm_conf_to_read_so_that_it_asks_nobody(host: Host) -> None:
    root = Path(host.root)
    slurmd(root, f"echo $SLURM_CONF $* > {root}/calls; exit 1")

    slurm_order.minors(host, "gpu7")

    assert Path(root, "calls").read_text() == f"{root}/etc/slurm/slurm.conf -N gpu7 -G\n"


@pytest.mark.parametrize("broken", ["exit 1", "exec sleep 60"])
def test_a_slurmd_that_does_not_tell_is_not_known(host: Host, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    monkeypatch.setattr(slurm_order, "_ASK_S", 0.3)
    slurmd(Path(host.root), broken)

    assert isinstance(slurm_order.minors(host), Unreadable)


@pytest.mark.parametrize("absent", ["etc/slurm/slurm.conf", "usr/sbin/slurmd"])
def test_without_slurmd_or_its_configuration_nothing_is_asked(host: Host, absent: str) -> None:
    Path(host.root, absent).unlink()

    assert isinstance(slurm_order.minors(host), Unreadable)
