"""The lab itself: whatever happens to `up`, nothing of it is left after `down`, and other labs live on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from clusterlab.naming import Lab
from clusterlab.record import read_record
from clusterlab.suites import DEFAULT_SUITE
from clusterlab.teardown import is_anything_left
from fleet import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Cluster

OTHER = Lab("second")


def lab(*words: str) -> subprocess.Popen[str]:
    """Start one verb of the lab, in the lab beside the one of these tests."""
    return subprocess.Popen(
        (sys.executable, str(REPOSITORY / "lab" / "lab"), *words),
        env={**os.environ, "MPSFLEET_LAB_NAME": OTHER.name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a verb's end; give its exit status and all it said."""
    said = process.communicate(timeout=180)[0]
    return process.returncode, said


@pytest.fixture
def starting(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """Provide a start of another lab that has just booted its first machine."""
    suite = os.environ.get("MPSFLEET_LAB_SUITE", DEFAULT_SUITE)
    assert cluster.lab.name != OTHER.name
    assert not is_anything_left(OTHER)
    process = lab("up", "2", "--suite", suite)
    end = time.monotonic() + 60
    while (record := read_record(OTHER)) is None or not record.machines:
        assert process.poll() is None, ended(process)
        assert time.monotonic() < end
        time.sleep(0.01)
    yield process
    process.kill()
    process.communicate()
    ended(lab("down"))


def test_a_start_that_is_killed_leaves_nothing_after_down(starting: subprocess.Popen[str], cluster: Cluster) -> None:
    starting.kill()
    starting.wait()
    assert is_anything_left(OTHER)

    status, said = ended(lab("down"))

    assert (status, is_anything_left(OTHER)) == (0, False), said
    assert cluster.node_state("n1") == "IDLE"


def test_a_start_that_is_asked_to_end_takes_down_what_it_started(starting: subprocess.Popen[str]) -> None:
    starting.send_signal(signal.SIGTERM)

    status, said = ended(starting)

    assert (status, is_anything_left(OTHER)) == (130, False), said


def test_a_start_after_a_killed_one_is_whole(starting: subprocess.Popen[str]) -> None:
    starting.kill()
    starting.wait()
    record = read_record(OTHER)
    assert record is not None

    up, said = ended(lab("up", "1", "--suite", record.suite))
    status, told = ended(lab("status"))

    assert (up, status) == (0, 0), said + told
    assert "Slurm: n1 idle" in told


def test_down_without_a_lab_is_said_and_no_failure() -> None:
    status, said = ended(lab("down"))
    assert (status, "nothing to take down" in said) == (0, True)
