"""A fleet comes and goes, whatever is killed when: nothing stays, and the next one comes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rehearsal import processes_below, wait_until

if TYPE_CHECKING:
    from rehearsal import Rehearsal


def test_four_nodes_are_up_and_gone_again(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "4")
    folder = nothing_up.folder()
    nothing_up.sim("down")
    assert not folder.exists()
    assert processes_below(folder) == []


def test_a_second_fleet_of_the_same_name_is_refused_and_the_first_stays(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "1")
    refused = nothing_up.sim("up", "1", code=75)
    assert "is up in" in refused.stderr
    assert nothing_up.folder().exists()


def test_down_without_a_fleet_is_content(nothing_up: Rehearsal) -> None:
    assert "No simulated fleet was up" in nothing_up.sim("down").stdout


@pytest.mark.parametrize("after_s", [0.06, 0.12])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["KILL", "INT", "TERM"])
def test_an_aborted_up_is_no_hindrance(nothing_up: Rehearsal, number: signal.Signals, after_s: float) -> None:
    before = set(Path("/tmp").glob("mpsf.*"))  # noqa: S108
    command = [sys.executable, "-m", "mpsfleet", "sim", "up", "4"]
    aborted = subprocess.Popen(
        command, env=nothing_up.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    aborted.send_signal(number)
    aborted.wait(10)
    if nothing_up.sim("up", "2", code=None).returncode == 75:  # it was up already when the signal came
        nothing_up.sim("down")
        nothing_up.sim("up", "2")
    folder = nothing_up.folder()
    nothing_up.sim("down")
    left = [each for each in set(Path("/tmp").glob("mpsf.*")) - before if processes_below(each)]  # noqa: S108
    assert (folder.exists(), processes_below(folder), left) == (False, [], [])


def test_nothing_of_it_outlives_its_directory(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "1")
    nothing_up.apply("n1")
    nothing_up.on("ctl", "sbatch", "--wrap=sleep 600")
    folder = nothing_up.folder()
    assert len(processes_below(folder)) >= 3  # supervisor, daemon, job
    shutil.rmtree(folder)
    assert wait_until(lambda: not processes_below(folder))


def test_down_ends_stopped_orphaned_and_unregistered_processes(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "1")
    nothing_up.apply("n1")
    root, folder = nothing_up.root("n1"), nothing_up.folder()
    supervisor = next(each for each in processes_below(folder) if each.endswith("/systemd"))
    os.kill(int(supervisor.split()[0]), signal.SIGKILL)
    nothing_up.sim("break", "n1", "daemon-stopped")
    for each in (root / "sim" / "pids").iterdir():
        each.unlink()
    nothing_up.sim("down")
    assert (folder.exists(), processes_below(folder)) == (False, [])


def test_a_killed_supervisor_is_replaced_and_adopts_the_daemon(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "1")
    nothing_up.apply("n1")
    before = nothing_up.on("n1", "systemctl", "show", "nvidia-mps", "-p", "MainPID", "--value")
    supervisor = next(each for each in processes_below(nothing_up.folder()) if each.endswith("/systemd"))
    os.kill(int(supervisor.split()[0]), signal.SIGKILL)
    assert nothing_up.on("n1", "systemctl", "is-active", "nvidia-mps") == "active\n"
    assert nothing_up.on("n1", "systemctl", "show", "nvidia-mps", "-p", "MainPID", "--value") == before
    nothing_up.on("n1", "systemctl", "stop", "nvidia-mps")
    assert nothing_up.on("n1", "systemctl", "is-active", "nvidia-mps", code=3) == "inactive\n"


def test_a_directory_that_is_no_fleet_is_never_removed(nothing_up: Rehearsal, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (tmp_path / "mpsfleet").mkdir(exist_ok=True)
    (tmp_path / "mpsfleet" / "sim.json").write_text(f'{{"fleet": "{precious}"}}')
    assert "is not the directory of a simulated fleet" in nothing_up.sim("down", code=75).stderr
    assert (precious / "file").exists()
    (tmp_path / "mpsfleet" / "sim.json").unlink()


def test_a_node_shows_no_process_but_its_own(nothing_up: Rehearsal) -> None:
    nothing_up.sim("up", "2")
    nothing_up.apply("n1")
    shown = {name for name in os.listdir(nothing_up.root("n1") / "proc") if name.isdigit()}
    pids = {name for name in shown if Path(f"/proc/{name}").exists()}
    assert str(os.getpid()) not in pids
    assert all(os.readlink(f"/proc/{each}/exe").startswith(f"{nothing_up.folder()}/") for each in pids)
    assert not [name for name in os.listdir(nothing_up.root("n2") / "proc") if name.isdigit()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up", "0"), "N is 1 to"),
        (("up", "2", "--version", "999"), "470, 535, 550"),
        (("up", "2", "--gpus", "a100:4,0,0"), "is for 3 nodes, and there are 2"),
        (("up", "1", "--gpus", "k80:4"), "TYPE one of a100, h100, v100, t4"),
        (("up", "1", "--gpus", "17"), "at most 16 GPUs"),
        (("break", "n1", "gpu-lots"), "did you mean gpu-lost?"),
        (("break", "n9", "gpu-lost"), "has no node n9"),
        (("break", "ctl", "gpu-lost"), "is a fault of a GPU node"),
        (("break", "n1", "ssh-down"), "needs the lab"),
        (("exec", "n1", "no-such-program"), "no program no-such-program"),
        (("exec", "n1"), "name a command"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_sentence(fleet: Rehearsal, words: tuple[str, ...], said: str) -> None:
    done = fleet.sim(*words, code=None)
    assert done.returncode in (3, 64)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
