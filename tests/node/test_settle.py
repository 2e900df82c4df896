"""Waiting for a started daemon: it ends early when systemd's MAINPID names a process that is no more, and never fails."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node import daemon, instances
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give a node on which no daemon ever makes its socket, and the real processes of this machine."""
    return Host(str(tmp_path), "/proc", os.geteuid(), os.getegid())


@pytest.fixture
def zombie() -> Iterator[int]:
    with subprocess.Popen(("sleep", "600")) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def seconds_of(host: Host, main_pid: str) -> tuple[float, str]:
    began = time.monotonic()
    problem = daemon.settle(host, Desired(), instances.of(Desired(), None)[0], main_pid)
    return time.monotonic() - began, problem or ""


def test_a_main_process_that_is_gone_ends_the_wait(host: Host) -> None:
    with subprocess.Popen(("true",)) as process:
        pass
    took_s, problem = seconds_of(host, str(process.pid))
    assert took_s < 1
    assert problem == f"the control daemon (process {process.pid}) ended before it answered: it has made no socket"


def test_a_main_process_that_is_a_zombie_ends_the_wait(host: Host, zombie: int) -> None:
    assert seconds_of(host, str(zombie))[0] < 1


@pytest.mark.parametrize(
    "main_pid",
    ["", str(os.getpid()), "0", "-1", " 1", "1\n", "self", "../self", "\u0661", "9" * 8, "9" * 9999],
    ids=["none", "own", "0", "negative", "blank", "newline", "self", "a path", "not ASCII", "8 digits", "9999 digits"],
)
def test_one_that_lives_and_what_is_no_process_number_change_nothing(
    host: Host, main_pid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "_SETTLE_S", 0.2)
    took_s, problem = seconds_of(host, main_pid)
    assert took_s >= 0.2
    assert problem == "the control daemon does not answer 0.2 s after its start: it has made no socket"
