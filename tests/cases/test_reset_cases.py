"""Public cases about resets: what they cannot mend, who is in the way, and which process is what."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import build

from mpsfleet.codes import BEYOND_RESET, BY_NAME
from mpsfleet.node import daemon, free
from mpsfleet.node.cards import Card
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host
from mpsfleet.node.host.children import Answer
from mpsfleet.node.instances import of
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Gpus, Silence, Unreadable
from mpsfleet.node.probe import procfs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cases.conftest import Row

PID = 4571


def test_no_reset_of_mps_is_offered(beyond: str) -> None:
    assert beyond in BEYOND_RESET
    assert "reboot" in BY_NAME[beyond].remedy


def test_a_node_that_is_not_free_says_why(busy: Row) -> None:
    text = f"NodeName=n1\n   State={busy['state']}\n   Reason={busy['reason']} [root@2026-01-01T00:00:00]\n"
    why = free._by_drain(Answer(0, text, ""), "n1", any_drain=False, idle=True)
    assert bool(why) is bool(busy["why"])
    assert busy["why"] in (why or "")


def test_a_daemon_is_told_its_gpu_by_what_never_changes(unit_of: Row) -> None:
    card = Card(unit_of["index"], unit_of["uuid"], unit_of["minor"], "00000000:3B:00.0", "NVIDIA A100", "", "6")
    (instance,) = of(Desired(daemons="gpu"), (card,))
    assert dict(daemon.environment(Host(), instance))["CUDA_VISIBLE_DEVICES"] == unit_of["visible"]


def test_a_silent_daemon_is_told_by_its_state(wedged: Row) -> None:
    silence = Silence("timeout", "it did not answer within 2 s", daemon_state=wedged["state"], seconds=2.0)
    (found,) = judge(build.changed(said=silence), build.DESIRED).findings
    assert (found.severity, found.origin) == ("critical", wedged["origin"])
    assert wedged["says"] in found.message


def test_only_a_control_daemon_is_one(zombie: Row, tmp_path: Path) -> None:
    folder = tmp_path / "proc" / str(PID)
    (folder / "fd").mkdir(parents=True)
    fields = " ".join(["1"] * 17)
    (folder / "comm").write_text("nvidia-cuda-mps\n", encoding="utf-8")
    (folder / "stat").write_text(f"{PID} (nvidia-cuda-mps) {zombie['state']} 1 {fields} 77 0\n", encoding="utf-8")
    (folder / "status").write_text(f"Name:\tnvidia-cuda-mps\nUid:\t{os.geteuid()}\t0\t0\t0\n", encoding="utf-8")
    if zombie["state"] != "Z":  # one that has ended has neither descriptors nor a program
        lock = tmp_path / "run/nvidia-mps/node/control_lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        (folder / "fd/3").symlink_to(lock)
        (folder / "exe").symlink_to(f"/usr/bin/{zombie['program']}")
    host = Host.at(str(tmp_path))
    named = procfs.named_mps(host)
    assert not isinstance(named, Unreadable)
    assert [each.pid for each in named] == [PID]
    assert bool(procfs.daemons(host, named)) is zombie["is_daemon"]


def test_what_could_not_be_asked_is_neither_well_nor_broken(unasked: Row) -> None:
    (found,) = judge(build.changed(gpus=Gpus((), unasked["outcome"], "no answer")), build.DESIRED).findings
    assert (found.code, found.severity) == (unasked["code"], unasked["severity"])
