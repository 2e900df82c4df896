"""MPS servers as /proc and their daemon tell of them, and what an audit leaves for the next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.node import sampled
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host, children
from mpsfleet.node.host.children import Answer
from mpsfleet.node.model import Answers, ServerAnswer, Silence, Unreadable
from mpsfleet.node.probe import asking, mps, procfs, servers, uses
from mpsfleet.node.sampled import Noted, Sample
from mpsfleet.node.servers_facts import Use

MARK = 'Unknown command "mpsfleet-next"\n'
UNKNOWN = 'Unknown command "{}"\n'
PS = "PID       ID    SERVER    DEVICE             NAMESPACE COMMAND\n"
DAEMON, SERVER, ALICE = 100, 200, "2001"
ABOUT = mps.About(0, (SERVER,))


def said(status: str, ps: str) -> Answer:
    return Answer(0, f"100.0\n{MARK}{SERVER}\n{MARK}{status}{MARK}{ps}{MARK}", "")


def clients_of(*texts: str) -> Answer:
    return Answer(0, "".join(f"{each}{MARK}" for each in texts), "")


@pytest.mark.parametrize(
    ("answer", "clients", "told"),
    [
        (said("ACTIVE\n", PS), "300\n301\n", ServerAnswer(SERVER, "ACTIVE", (300, 301), is_ready=True)),
        (said("FAULT\n", PS), "", ServerAnswer(SERVER, "FAULT", (), is_ready=True)),
        (said(UNKNOWN.format("get_server_status"), PS), "300\n", ServerAnswer(SERVER, None, (300,), is_ready=True)),
        (
            said(UNKNOWN.format("get_server_status"), UNKNOWN.format("ps")),
            "300\n",
            ServerAnswer(SERVER, None, (300,), None),
        ),
    ],
    ids=["550 active", "550 in FAULT", "535 active", "470"],
)
def test_a_daemon_tells_of_a_server_as_its_driver_can(answer: Answer, clients: str, told: ServerAnswer) -> None:
    read = mps.understand(answer, 2.0, ABOUT)

    assert isinstance(read, Answers)
    assert read.servers == (SERVER,)
    assert mps.ready(read) == (SERVER,)
    assert mps.with_clients(read, clients_of(clients)).of_servers == (told,)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (said("INITIALIZING\n", "Server not found\n"), ServerAnswer(SERVER, "INITIALIZING", None, is_ready=False)),
        (said("INITIALIZING\n", PS), ServerAnswer(SERVER, "INITIALIZING", None, is_ready=True)),
        (
            said(UNKNOWN.format("get_server_status"), "Server not found\n"),
            ServerAnswer(SERVER, None, None, is_ready=False),
        ),
        (said("Server 200 not found\n", "Server not found\n"), ServerAnswer(SERVER, None, None, is_ready=False)),
    ],
    ids=["550 starting", "550 starting beside another", "535 starting", "another daemon's"],
)
def test_the_clients_of_a_server_that_is_starting_are_never_asked_for(answer: Answer, told: ServerAnswer) -> None:
    read = mps.understand(answer, 2.0, ABOUT)

    assert isinstance(read, Answers)
    assert read.of_servers == (told,)
    assert mps.ready(read) == ()


def test_a_process_that_the_daemon_does_not_list_is_not_asked_about() -> None:
    read = mps.understand(said("ACTIVE\n", PS), 2.0, ABOUT)

    assert isinstance(read, Answers)
    assert mps.ready(read._replace(servers=())) == ()


@pytest.mark.parametrize("answer", [said("very bad\n", PS), Answer(0, f"100.0\n{MARK}200\n{MARK}", "")])
def test_what_no_daemon_says_of_a_server_is_not_understood(answer: Answer) -> None:
    read = mps.understand(answer, 2.0, ABOUT)

    assert isinstance(read, Silence)
    assert read.outcome == "garbled"


@pytest.mark.parametrize(
    "answer",
    [
        clients_of("300 and more\n"),
        clients_of("300\n", "301\n"),
        clients_of("-1\n"),
        clients_of("Server 200 not found\n"),
        Answer(None, f"300\n{MARK}", ""),
        Answer(1, "", "Cannot send command to MPS control daemon process\n"),
        Answer(None, f"300\n{MARK}", "", capped=True),
    ],
)
def test_an_answer_about_clients_that_is_none_leaves_them_untold(answer: Answer) -> None:
    read = mps.understand(said("ACTIVE\n", PS), 2.0, ABOUT)

    assert isinstance(read, Answers)
    assert mps.with_clients(read, answer).of_servers == (ServerAnswer(SERVER, "ACTIVE", None, is_ready=True),)


@given(st.text(), st.text(), st.text())
def test_no_word_about_a_server_makes_it_fail(status: str, clients: str, ps: str) -> None:
    read = mps.understand(said(status, ps), 2.0, ABOUT)

    assert isinstance(read, (Answers, Silence))
    if isinstance(read, Answers):
        assert isinstance(mps.with_clients(read, clients_of(clients)), Answers)


def test_an_idle_daemon_is_asked_what_it_always_was() -> None:
    words = mps.question("/x", 3, 2.0).stdin.decode().split("\n")

    assert [each for each in words if each and "next" not in each] == [
        "get_default_active_thread_percentage",
        "get_server_list",
    ]


def test_a_daemon_with_a_server_is_asked_in_the_same_invocation() -> None:
    words = mps.question("/x", 3, 2.0, ABOUT).stdin.decode().split("\n")

    assert [each for each in words if each and "next" not in each][2:] == ["get_server_status 200", "ps"]


class Talk(NamedTuple):
    """A daemon's answers, one after the other, and what it was asked."""

    answers: list[Answer]
    asked: list[str]


def talked(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> tuple[Talk, Answers | Silence]:
    """Ask a daemon that answers so, and return what it said in all."""
    talk = Talk(list(answers), [])

    def run(commands: Any, again: Any, meanwhile: Any) -> tuple[Answer, ...]:
        meanwhile()
        (command,) = commands
        while command is not None:
            talk.asked.append(
                "; ".join(each for each in command.stdin.decode().split("\n") if each and "next" not in each)
            )
            answer = talk.answers.pop(0)
            command = again(0, answer)
        return (answer,)

    monkeypatch.setattr(children, "run", run)
    questions = (asking.Question("node", 3, ABOUT),)
    said, _ = asking.ask(questions, asking.Others(), Host(""), Desired())
    return talk, said["node"]


BUSY = Answer(1, "", "Cannot send command to MPS control daemon process\n")
FIRST = "get_default_active_thread_percentage; get_server_list; get_server_status 200; ps"
SECOND = "get_client_list 200"


@pytest.mark.parametrize(
    ("answers", "asked", "clients"),
    [
        ((said("ACTIVE\n", PS), clients_of("300\n")), [FIRST, SECOND], (300,)),
        ((BUSY, said("ACTIVE\n", PS), BUSY, clients_of("300\n")), [FIRST, FIRST, SECOND, SECOND], (300,)),
        ((said("INITIALIZING\n", "Server not found\n"),), [FIRST], None),
        ((said("ACTIVE\n", PS), Answer(None, "", "")), [FIRST, SECOND], None),
    ],
    ids=["ready", "busy twice", "starting", "silent about clients"],
)
def test_clients_are_asked_for_when_it_is_known_which_servers_are_ready(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[Answer, ...], asked: list[str], clients: tuple[int, ...] | None
) -> None:
    talk, told = talked(monkeypatch, *answers)

    assert talk.asked == asked
    assert isinstance(told, Answers)
    assert told.of_servers[0].clients == clients
    assert told.percentage == 100.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "proc").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "control_lock").touch(0o600)
    host = Host.at(str(tmp_path))
    process(host, DAEMON, 1, "nvidia-cuda-mps-control", held="control_lock")
    return host


def process(host: Host, pid: int, ppid: int, program: str, **more: str) -> None:
    """Write a process with MPS's name into the node's /proc; `held` is a file it holds open."""
    held, uid, state = more.get("held", ""), more.get("uid", os.getuid()), more.get("state", "S")
    folder = Path(host.proc, str(pid))
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("nvidia-cuda-mps\n")
    (folder / "stat").write_text(f"{pid} (nvidia-cuda-mps) {state} {ppid} {'0 ' * 6}{pid * 10} {'0 ' * 40}")
    (folder / "status").write_text(f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "exe").symlink_to(f"/usr/bin/{program}")
    if held:
        (folder / "fd/5").symlink_to(Path(host.root, held))


def found(host: Host) -> dict[int, int]:
    """Return the daemon of each server that is found."""
    named = procfs.named_mps(host)
    assert not isinstance(named, Unreadable)
    return {each.process.pid: each.daemon for each in servers.find(host, named, procfs.daemons(host, named)).servers}


def test_a_server_is_a_child_of_roots_daemon_whoever_it_runs_as(host: Host) -> None:
    process(host, SERVER, DAEMON, "nvidia-cuda-mps-server", uid=ALICE)

    assert found(host) == {SERVER: DAEMON}


def test_one_without_its_daemon_is_known_by_the_lock_it_holds(host: Host) -> None:
    process(host, SERVER, 1, "nvidia-cuda-mps-server", held="control_lock", uid=ALICE)

    assert found(host) == {SERVER: 0}


def test_a_process_that_only_bears_the_name_is_none(host: Host) -> None:
    process(host, SERVER, 1, "nvidia-cuda-mps-server", uid=ALICE)

    assert found(host) == {}


def test_a_defunct_one_is_not_counted_alive(host: Host) -> None:
    process(host, SERVER, DAEMON, "nvidia-cuda-mps-server", uid=ALICE, state="Z")

    assert found(host) == {}


def test_a_daemons_child_that_is_not_yet_a_server_is_neither(host: Host) -> None:
    process(host, SERVER, DAEMON, "nvidia-cuda-mps-control", held="control_lock")

    assert found(host) == {}
    named = procfs.named_mps(host)
    assert not isinstance(named, Unreadable)
    assert [each.process.pid for each in procfs.daemons(host, named)] == [DAEMON]


def test_what_ended_children_cost_is_read_from_the_kernel(host: Host) -> None:
    assert procfs.ended_children(host, DAEMON) == DAEMON * 10
    assert procfs.ended_children(host, 4711) == 0


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (Answer(0, "GPU-a, 600\nGPU-b, [N/A]\n", ""), (Use("GPU-a", "600"), Use("GPU-b", "[N/A]"))),
        (Answer(0, "", ""), ()),
        (Answer(14, "GPU-a, 600\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", ""), (Use("GPU-a", "600"),)),
        (Answer(9, "", ""), Unreadable("exit status 9")),
        (Answer(6, "No devices were found\n", ""), Unreadable("No devices were found")),
        (Answer(None, "", ""), Unreadable("no answer within 4 s")),
        (Answer(None, "", "", missing=True), Unreadable("it is not installed")),
    ],
)
def test_compute_processes_are_read_and_a_failure_is_no_empty_answer(answer: Answer, read: object) -> None:
    assert uses.understand(answer, 4.0) == read


def sample(ended: int, **changes: Any) -> Sample:
    return Sample(DAEMON, 7, ended, changes.pop("serves", False), **changes)


def after(*samples: Sample) -> Noted:
    """Return what is kept after audits a minute apart."""
    noted: Noted | None = None
    for minute, each in enumerate(samples):
        noted = sampled.follow(noted, each, minute * 60.0)
    assert noted is not None
    return noted


def test_each_audit_that_finds_an_early_end_is_a_strike() -> None:
    assert after(sample(0), sample(10), sample(20), sample(20), sample(30)).strikes == (60.0, 120.0, 240.0)


def test_a_server_that_serves_ends_the_row() -> None:
    assert after(sample(0), sample(10), sample(20), sample(30, serves=True), sample(40)).strikes == (240.0,)


def test_what_ended_before_the_first_audit_or_under_another_daemon_is_no_strike() -> None:
    assert after(sample(500)).strikes == ()
    assert after(sample(0), sample(10), sample(9)._replace(start=8)).strikes == ()


def test_strikes_and_faults_are_forgotten_after_an_hour() -> None:
    server = ((SERVER, 3),)
    noted = after(sample(0), sample(10, in_fault=server, alive=server))
    later = sampled.follow(noted, sample(10, alive=server), 60.0 + sampled.KEPT_S + 1)

    assert noted.strikes
    assert noted.faults == ((SERVER, 3, 60.0),)
    assert (later.strikes, later.faults) == ((), ())


def test_the_fault_of_a_server_that_has_ended_is_forgotten() -> None:
    server = ((SERVER, 3),)

    assert after(sample(0, in_fault=server, alive=server), sample(10, alive=((SERVER, 4),))).faults == ()


def test_audits_of_an_idle_daemon_write_once(host: Host) -> None:
    path = Path(host.path("/run/mpsfleet/servers.json"))
    sampled.sampled(host, (sample(5),), frozenset(), 1_000.0)
    first = path.stat()
    sampled.sampled(host, (sample(5),), frozenset(), 2_000.0)

    assert path.stat().st_ino == first.st_ino
    assert first.st_mode & 0o777 == 0o600


def test_what_is_kept_of_a_daemon_that_was_not_asked_stays(host: Host) -> None:
    sampled.sampled(host, (sample(5),), frozenset(), 1_000.0)
    sampled.sampled(host, (), frozenset((DAEMON,)), 1_060.0)
    (noted,) = sampled.sampled(host, (sample(6),), frozenset(), 1_120.0)

    assert noted.strikes == (1_120.0,)


@pytest.mark.parametrize(
    "content", ["", "{", '{"schema": 2}', '{"schema": 1, "daemons": [[1, 2]]}', '{"schema": 1, "daemons": 3}']
)
def test_a_file_of_another_form_is_begun_anew(host: Host, content: str) -> None:
    folder = Path(host.path("/run/mpsfleet"))
    folder.mkdir()
    (folder / "servers.json").write_text(content)

    assert sampled.sampled(host, (sample(5),), frozenset(), 1_000.0) == (Noted(DAEMON, 7, 5),)
