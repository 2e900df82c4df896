"""What an audit of a node with eight GPUs asks for, counted: nobody twice, nobody in vain, and one file of a process.

Times are measured in bench/node_audit.py. Here one is asserted only to tell side by side from one after another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rehearsal import Rehearsal, processes_below, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

GPUS = 8
CONTROL, SMI, SYSTEMCTL = "nvidia-cuda-mps-control", "nvidia-smi", "systemctl"
COMM = "nvidia-cuda-mps"
NODE_TOML = '[mps]\ndaemons = "gpu"\n[slurm]\nnode_name = "n1"\ncluster = "sim"\n[gpus]\nexpected = 8\n'
ONE_AFTER_ANOTHER_S = GPUS * 2.0  # what eight silent daemons would cost, each its limit
BEYOND = 5_000_000  # pids that no kernel gives

# Runs the program as `python -IS PROGRAM …` does, and writes each path that is opened or listed to a descriptor.
WATCHED = """
import os, runpy, sys
seen, program = int(sys.argv[1]), sys.argv[2]
sys.argv[:] = sys.argv[2:]
def note(event, words):
    if event in ("open", "os.listdir", "os.scandir"):
        os.write(seen, f"{words[0]}\\n".encode(errors="replace"))
sys.addaudithook(note)
runpy.run_path(program, run_name="__main__")
"""


@pytest.fixture(scope="module")
def eight(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """Start a node with eight GPUs and deploy a daemon for each."""
    rehearsal = Rehearsal(tmp_path_factory.mktemp("run"), program)
    try:
        rehearsal.sim("up", "1", "--gpus", str(GPUS))
        rehearsal.program_on("n1", "node", "apply", "--config", "-", code=0, stdin="schema = 1\n" + NODE_TOML)
        yield rehearsal
    finally:
        rehearsal.sim("down", code=None)


@pytest.fixture
def calls(eight: Rehearsal, tmp_path: Path) -> Iterator[Path]:
    """Provide the file in which each call of a tool is a line."""
    counted = tmp_path / "calls"
    counted.touch()
    tools = {each: eight.root("n1") / "usr/bin" / each for each in (CONTROL, SMI, SYSTEMCTL)}
    for name, place in tools.items():
        kept = place.rename(place.with_name(f"{name}.kept"))
        place.write_text(f'#!/bin/sh\necho {name} >> "{counted}"\nexec "{kept}" "$@"\n')
        place.chmod(0o755)
    yield counted
    for name, place in tools.items():
        place.with_name(f"{name}.kept").rename(place)


def test_a_healthy_node_is_asked_once_for_each_thing(eight: Rehearsal, calls: Path) -> None:
    assert eight.audit("n1") == ("ok", set())

    called = calls.read_text().split()
    assert called.count(CONTROL) == GPUS
    assert called.count(SMI) == 1
    assert called.count(SYSTEMCTL) <= 1
    assert len(called) <= GPUS + 2


def test_eight_daemons_that_do_not_answer_are_named_side_by_side_and_nothing_is_left(eight: Rehearsal) -> None:
    stopped = control_daemons(eight)
    assert len(stopped) == GPUS
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    before = set(processes_below(eight.folder()))
    try:
        started = time.monotonic()
        report = eight.program_on("n1", "node", "audit", code=2)
        took_s = time.monotonic() - started
        left = set(processes_below(eight.folder())) - before
    finally:
        for each in stopped:
            os.kill(each, signal.SIGCONT)

    wedged = [each["subject"] for each in report["findings"] if each["code"] == "daemon-wedged"]
    assert len(wedged) == len(set(wedged)) == GPUS
    assert not left
    assert took_s < ONE_AFTER_ANOTHER_S / 2
    assert wait_until(lambda: eight.audit("n1") == ("ok", set()))


@pytest.mark.parametrize("more", [0, 300])
def test_of_a_process_that_is_none_of_mps_one_file_is_opened(eight: Rehearsal, tmp_path: Path, more: int) -> None:
    proc = eight.root("n1") / "proc"
    own = Path("/proc/self")
    for number in range(more):
        place = proc / str(BEYOND + number)
        place.mkdir()
        for name in ("stat", "status", "cmdline", "maps", "cgroup", "environ"):
            (place / name).write_bytes((own / name).read_bytes())
        (place / "comm").write_text("python3\n")
    try:
        opened = paths_opened(eight, tmp_path)
    finally:
        for number in range(more):
            place = proc / str(BEYOND + number)
            for each in place.iterdir():
                each.unlink()
            place.rmdir()

    theirs = [each for each in opened if any(len(word) == 7 and word.startswith("5000") for word in each.split("/"))]
    assert len(theirs) == more
    assert len(opened) - len(theirs) < 1000  # the program's own modules, sockets' and daemons' files


def paths_opened(eight: Rehearsal, folder: Path) -> list[str]:
    """Audit the node and return the paths that the program opened or listed, in their order."""
    root = eight.root("n1")
    program = f"{root}{os.readlink(root / 'usr/sbin/mpsfleet')}"
    with (folder / "opened").open("w+", encoding="utf-8", errors="replace") as seen:
        command = [sys.executable, "-IS", "-c", WATCHED, str(seen.fileno()), program]
        done = subprocess.run(
            [*command, "--root", str(root), "node", "audit", "--json"],
            check=True,
            capture_output=True,
            timeout=60,
            pass_fds=(seen.fileno(),),
        )
        assert json.loads(done.stdout)["verdict"] == "ok"
        seen.seek(0)
        return seen.read().splitlines()


def control_daemons(eight: Rehearsal) -> list[int]:
    """Return the pids of the node's control daemons, which it has registered."""
    proc = eight.root("n1") / "proc"
    return [
        int(each.name)
        for each in proc.iterdir()
        if each.is_symlink() and each.name.isdigit() and (each / "comm").read_text().strip() == COMM
    ]
