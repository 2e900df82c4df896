"""The door to scontrol: where it is looked for, what it is given, and how it is kept from hanging or flooding."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mpsfleet.errors import Refused
from mpsfleet.slurm import child, commands
from mpsfleet.slurm.commands import Caller, NoSuchNode, Scontrol, Unreadable
from mpsfleet.slurm.drains import own_name
from mpsfleet.slurm.nodes import Node, NodeTable

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

ROOT = Caller(0, 0, {})
USER = Caller(1000, 1000, {})


def sudo(**environ: str) -> Caller:
    return Caller(0, 0, {"SUDO_UID": "1000", **environ})


def test_a_fleet_is_asked_for_in_one_call(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    slurm.add("n2", "IDLE+DRAIN", "mpsfleet: reset")
    table = slurm.door().show_nodes()
    assert isinstance(table, NodeTable)
    assert [each.name for each in table.nodes] == ["n1", "n2"]
    assert [each["words"] for each in slurm.calls()] == [["--details", "show", "nodes"]]


def test_one_node_is_asked_for_by_name(slurm: FakeSlurm) -> None:
    slurm.add("n1")
    assert isinstance(slurm.door().show_node("n1"), Node)
    assert slurm.door().show_node("n9") == NoSuchNode("n9")


def test_the_cluster_is_named_by_slurmctld(slurm: FakeSlurm) -> None:
    assert slurm.door().cluster_name() == "lab"


@pytest.mark.parametrize("name", ["ALL", "n[1-2]", "--help", "n1,n2"])
def test_no_list_passes_the_door(slurm: FakeSlurm, name: str) -> None:
    for call in (
        slurm.door().show_node,
        slurm.door().undrain,
        lambda each: slurm.door().drain(each, "mpsfleet: reset"),
    ):
        with pytest.raises(Refused):
            call(name)
    assert slurm.calls() == []


def test_the_environment_is_made_from_nothing(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("LD_PRELOAD", "")
    slurm.door(caller=Caller(0, 0, dict(os.environ))).cluster_name()
    [call] = slurm.calls()
    assert {**call["environ"], "LC_CTYPE": ""} == {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "LC_ALL": "C",
        "LC_CTYPE": "",
    }
    assert call["cwd"] == "/"


def test_without_scontrol_the_package_is_named(tmp_path: Path) -> None:
    answer = Scontrol((str(tmp_path),), caller=ROOT).show_nodes()
    assert isinstance(answer, Unreadable)
    assert "slurm-client" in answer.reason


def test_a_scontrol_that_everybody_can_write_is_not_run(slurm: FakeSlurm) -> None:
    slurm.directory.joinpath("scontrol").chmod(0o777)
    assert isinstance(slurm.door().show_nodes(), Unreadable)
    assert slurm.calls() == []


def test_a_path_of_the_callers_is_not_looked_at(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(slurm.directory))
    assert commands.find_scontrol((str(tmp_path / "none"),)) is None
    assert all(each.startswith("/") for each in commands.DIRECTORIES)


def test_a_scontrol_that_cannot_be_started_is_said(slurm: FakeSlurm) -> None:
    slurm.directory.joinpath("scontrol").write_bytes(b"\x7fELF not a program")
    answer = slurm.door().show_nodes()
    assert isinstance(answer, Unreadable)
    assert "could not be started" in answer.reason


def test_a_slurmctld_out_of_reach_is_one_sentence(slurm: FakeSlurm) -> None:
    slurm.write(mode="refused")
    answer = slurm.door().show_nodes()
    assert isinstance(answer, Unreadable)
    assert "Unable to contact slurm controller" in answer.reason
    assert answer.reason.isprintable()


def test_a_silent_slurmctld_ends_with_the_time_limit(slurm: FakeSlurm) -> None:
    slurm.write(mode="silent")
    begin = time.monotonic()
    answer = slurm.door(timeout_s=0.5).show_nodes()
    assert isinstance(answer, Unreadable)
    assert "did not end within 0.5 s" in answer.reason
    assert time.monotonic() - begin < 3


def test_an_endless_answer_is_stopped(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "run", functools.partial(child.run, output_limit=1_000_000))
    slurm.write(mode="endless")
    answer = slurm.door().show_nodes()
    assert isinstance(answer, Unreadable)
    assert "more than can be an answer" in answer.reason


def test_a_binary_answer_is_a_problem_and_no_node(slurm: FakeSlurm) -> None:
    slurm.write(mode="binary")
    table = slurm.door().show_nodes()
    assert isinstance(table, NodeTable)
    assert table.nodes == ()
    assert table.problems


def test_both_streams_and_the_status_are_kept() -> None:
    ended = child.run(("/bin/sh", "-c", "echo out; echo err >&2; exit 7"), {}, 5)
    assert (ended.rc, ended.stdout, ended.stderr) == (7, "out\n", "err\n")
    assert not ended.timed_out


def test_a_child_is_killed_with_its_children() -> None:
    begin = time.monotonic()
    ended = child.run(("/bin/sh", "-c", "sleep 60 & echo $!; sleep 60"), {}, 0.5)
    assert ended.timed_out
    assert time.monotonic() - begin < 3
    state = Path(f"/proc/{int(ended.stdout)}/stat")
    time.sleep(0.1)
    assert not state.exists() or state.read_text(encoding="utf-8").split()[2] == "Z"


def test_a_child_that_closes_its_streams_and_stays_is_killed() -> None:
    ended = child.run(("/bin/sh", "-c", "exec >&- 2>&-; exec sleep 60"), {}, 0.5)
    assert ended.timed_out


def test_a_child_gets_no_input_and_no_descriptor() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        ended = child.run(("/bin/sh", "-c", "cat; ls /proc/self/fd | wc -l"), {"PATH": "/usr/bin:/bin"}, 5)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert int(ended.stdout) == 4  # three streams, and the folder that ls reads


CONF = "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    ("caller", "is_roots", "is_used"),
    [
        (Caller(1000, 1000, {"SLURM_CONF": "/home/alice/slurm.conf"}), False, True),
        (Caller(0, 0, {"SLURM_CONF": "/srv/slurm.conf"}), True, True),
        (Caller(0, 0, {"SLURM_CONF": "/srv/slurm.conf"}), False, False),
        (sudo(SLURM_CONF="/srv/slurm.conf"), True, False),
        (sudo(SLURM_CONF=CONF), True, True),
        (sudo(SLURM_CONF=CONF), False, False),
        (Caller(1000, 0, {"SLURM_CONF": "/srv/slurm.conf"}), True, False),
        (Caller(0, 1000, {"SLURM_CONF": "/home/alice/slurm.conf"}), False, False),
    ],
)
def test_slurm_conf_is_used_where_nobody_gains_by_it(caller: Caller, *, is_roots: bool, is_used: bool) -> None:
    environment = commands.environment_for(caller, lambda _path: is_roots)
    assert isinstance(environment, dict) is is_used
    if isinstance(environment, dict):
        assert environment["SLURM_CONF"] == caller.environ["SLURM_CONF"]


def test_without_slurm_conf_everyone_asks(slurm: FakeSlurm) -> None:
    for caller in (ROOT, USER, sudo()):
        assert slurm.door(caller=caller).cluster_name() == "lab"


def test_a_slurm_conf_not_used_asks_nobody(slurm: FakeSlurm) -> None:
    answer = slurm.door(caller=sudo(SLURM_CONF="/etc/shadow")).cluster_name()
    assert isinstance(answer, Unreadable)
    assert slurm.calls() == []


def test_the_owner_of_a_simulated_fleet_is_its_root_with_or_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = 4_000_000_001
    monkeypatch.setattr(os, "getuid", lambda: nameless)
    monkeypatch.setattr(os, "geteuid", lambda: nameless)
    assert own_name(Scontrol.under(str(tmp_path)).caller.acting_uid) == "root"
    assert own_name(Scontrol.under("").caller.acting_uid) is None


def test_a_file_that_others_can_change_is_not_roots_alone(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("")
    link = tmp_path / "link.conf"
    link.symlink_to("/etc/passwd")
    assert not commands.is_roots_alone(str(conf))  # /tmp can be written by all
    assert not commands.is_roots_alone(str(link))
    assert not commands.is_roots_alone("etc/passwd")
    assert not commands.is_roots_alone("/etc/../etc/passwd")
    assert not commands.is_roots_alone("/etc/none")
    assert commands.is_roots_alone("/etc/passwd")
