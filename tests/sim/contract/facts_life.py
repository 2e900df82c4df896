"""Facts about the daemon's coming and going: start, second start, quit, signals, what is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

from contract.facts import fact
from contract.subject import NOBODY, SILENCE_S, Said

if TYPE_CHECKING:
    from contract.subject import Subject

ABOUT = "Life"
NOBODY_THERE = Said(1, "", "Cannot find MPS control daemon process\n")
BUSY = "Cannot send command to MPS control daemon process\n"
RUNNING = "An instance of this daemon is already running\n"
LEFT = {"control", "control_privileged", "control_lock"}


def while_it_runs(subject: Subject) -> set[str]:
    """Return the names in the pipe directory of a daemon that serves."""
    return LEFT | {"log"} | ({"nvidia-cuda-mps-control.pid"} if subject.version >= 550 else set())


@fact(ABOUT, "`-d` returns 0 without a word once the daemon serves")
def starts(subject: Subject) -> None:
    assert subject.start() == Said(0)
    assert subject.ask("get_server_list\n") == Said(0)


@fact(ABOUT, "`-f` stays in the foreground and logs to standard output; the log directory stays empty")
def stays_in_front(subject: Subject) -> None:
    subject.log.mkdir()
    child = subject.begin("-f")
    subject.eventually((subject.pipe / "control").exists)
    subject.record(child.pid)
    assert subject.ask("get_server_list\n") == Said(0)
    assert subject.listener(subject.pipe / "control")[0] == child.pid
    assert list(subject.log.iterdir()) == []
    time.sleep(0.1)  # the log has a thread of its own
    subject.signal(child.pid, signal.SIGTERM)
    out, _ = child.communicate(timeout=3)
    assert f"Starting control daemon using socket {subject.pipe}/control" in out
    assert "Cmd:get_server_list" in out
    assert child.returncode == -signal.SIGTERM


@fact(ABOUT, "executable and kernel name are NVIDIA's: `nvidia-cuda-mps-control`, `nvidia-cuda-mps`")
def has_its_names(subject: Subject) -> None:
    subject.start()
    assert os.path.basename(os.readlink(f"/proc/{subject.daemon()}/exe")) == "nvidia-cuda-mps-control"
    with open(f"/proc/{subject.daemon()}/comm", encoding="utf-8") as stream:
        assert stream.read() == "nvidia-cuda-mps\n"


@fact(ABOUT, "without a daemon: exit status 1, `Cannot find MPS control daemon process` on standard error")
def says_that_nobody_is_there(subject: Subject) -> None:
    assert subject.ask("get_server_list\n") == NOBODY_THERE


@fact(ABOUT, "a second start: exit status 1, `An instance of this daemon is already running` on standard output")
def starts_once(subject: Subject) -> None:
    subject.start()
    assert subject.call("-d") == Said(1, RUNNING)


@fact(ABOUT, "`quit` ends it with 0; sockets and lock stay behind as files, fifo and pid file go")
def quits(subject: Subject) -> None:
    subject.start()
    assert set(subject.files()) == while_it_runs(subject)
    assert subject.ask("quit\n") == Said(0)
    subject.eventually(lambda: not subject.lives(subject.daemon()))
    assert set(subject.files()) == LEFT
    assert subject.ask("get_server_list\n") == NOBODY_THERE


@fact(ABOUT, "SIGTERM ends it at once and leaves every file")
def is_terminated(subject: Subject) -> None:
    subject.start()
    subject.signal(subject.daemon(), signal.SIGTERM)
    assert set(subject.files()) == while_it_runs(subject)
    assert subject.ask("get_server_list\n") == NOBODY_THERE


@fact(ABOUT, "stale files of a killed daemon do not stop a start; the `log` fifo is made anew")
def starts_over_stale_files(subject: Subject) -> None:
    subject.start()
    before = (subject.pipe / "log").stat().st_ctime_ns
    subject.signal(subject.daemon(), signal.SIGKILL)
    assert set(subject.files()) == while_it_runs(subject)
    assert subject.ask("get_server_list\n") == NOBODY_THERE
    time.sleep(0.02)
    assert subject.start() == Said(0)
    assert subject.ask("get_server_list\n") == Said(0)
    assert (subject.pipe / "log").stat().st_ctime_ns != before


@fact(ABOUT, "when the directory is deleted under it, it lives on unreachable, and a second one starts in its place")
def is_cut_off(subject: Subject) -> None:
    subject.start()
    first = subject.daemon()
    shutil.rmtree(subject.pipe)
    assert subject.ask("get_server_list\n") == NOBODY_THERE
    assert subject.start() == Said(0)
    assert subject.daemon() != first
    assert subject.lives(first)
    assert subject.ask("quit\n") == Said(0)
    assert subject.lives(first)


@fact(ABOUT, "stopped by SIGSTOP it accepts and never answers; a start says it runs; continued it answers again")
def is_stopped(subject: Subject) -> None:
    subject.start()
    subject.signal(subject.daemon(), signal.SIGSTOP)
    assert subject.ask("get_server_list\n", SILENCE_S).rc is None
    assert subject.listener(subject.pipe / "control")[0] == subject.daemon()
    assert subject.call("-d") == Said(1, RUNNING)
    subject.signal(subject.daemon(), signal.SIGCONT)
    assert subject.ask("get_default_active_thread_percentage\n") == Said(0, "100.0\n")


@fact(ABOUT, "it serves one command line at a time: beside an open one another is turned away, and never hangs")
def serves_one_at_a_time(subject: Subject) -> None:
    subject.start()
    open_one = subject.begin()
    subject.eventually(lambda: "NEW UI" in subject.control_log())
    said = [subject.ask("get_default_active_thread_percentage\n") for _ in range(4)]
    assert {(each.out, each.rc in (0, 1)) for each in said} == {("", True)}
    assert {each.err for each in said} <= {BUSY, ""}
    out, _ = open_one.communicate("get_default_active_thread_percentage\n", timeout=3)
    assert out == "100.0\n"
    assert subject.ask("get_default_active_thread_percentage\n") == Said(0, "100.0\n")


@fact(ABOUT, "a bare `quit` with a server that does not end blocks, and every later command with it; `quit -t` works")
def blocks_at_quit(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    for command in ("quit\n", "get_server_list\n", "get_server_list\n"):
        subject.ask_in_vain(command)
    assert subject.lives(server)
    assert subject.ask("quit -t 1\n", 6.0).rc == 0
    subject.eventually(lambda: not subject.lives(subject.daemon()) and not subject.lives(server))
    assert subject.ask("get_server_list\n") == NOBODY_THERE


@fact(ABOUT, "`quit -t N` waits N seconds for the server, then ends it by force")
def forces_quit(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    began = time.monotonic()
    assert subject.ask("quit -t 1\n", 6.0).rc == 0
    assert 0.8 < time.monotonic() - began < 2.5
    subject.eventually(lambda: not subject.lives(subject.daemon()) and not subject.lives(server))


@fact(ABOUT, "a `quit` that waited ends with the server's exit status")
def hands_on_the_servers_status(subject: Subject) -> None:
    subject.stand_in("sleep 0.6; exit 3")
    subject.start()
    subject.start_server()
    assert subject.ask("quit\n") == Said(3)


@fact(ABOUT, "a user's `quit` is refused, with 0", needs_root=True)
def is_not_ended_by_a_user(subject: Subject) -> None:
    subject.start()
    for command in ("quit\n", "quit -t 1\n"):
        said = subject.ask(command, uid=NOBODY)
        assert said == Said(0, "Not enough privilege to execute quit command\n")
    assert subject.ask("get_server_list\n") == Said(0)
