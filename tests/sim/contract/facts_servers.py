"""Facts about servers, shown with a stand-in that is invented: the daemon starts it, lists it, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from contract.facts import fact
from contract.subject import NOBODY, Said

if TYPE_CHECKING:
    from contract.subject import Subject

ABOUT = "Servers"


@fact(ABOUT, "`start_server` says nothing; the server is in `get_server_list`, a second call starts none")
def lists_a_server(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    assert subject.lives(server)
    assert subject.start_server() == server
    subject.eventually(lambda: f"Starting new server {server} for user {os.geteuid()}" in subject.control_log())


@fact(ABOUT, "a server that is not ready: INITIALIZING (from 550 on), no clients, no answer about its limits")
def waits_for_a_server(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    known = subject.version >= 550
    status = "INITIALIZING\n" if known else 'Unknown command "get_server_status"\n'
    assert subject.ask(f"get_server_status {server}\n") == Said(0, status)
    for command in ("get_client_list", "get_device_client_list", "get_active_thread_percentage"):
        assert subject.ask(f"{command} {server}\n") == Said(0)
    if subject.version >= 535:
        assert subject.ask("ps\n") == Said(0, "Server not found\n")
        assert subject.ask(f"ps -p {server}\n") == Said(0, f"Server {server} not found\n\n")
        assert subject.ask(f"get_device_pinned_mem_limit {server} 0\n") == Said(0)
        assert subject.ask(f"terminate_client {server} 7\n") == Said(0, f"Server {server} not found!\n1\n")
    subject.eventually(lambda: f"Server {server} is <busy>" in subject.control_log())


@fact(ABOUT, "a server that ends at once: `start_server` is 0, the list is empty, its exit status is logged")
def survives_a_failing_server(subject: Subject) -> None:
    subject.stand_in("exit 1")
    subject.start()
    assert subject.ask(f"start_server -uid {os.geteuid()}\n") == Said(0)
    subject.eventually(lambda: any(line.endswith("exited with status 1") for line in subject.control_log()))
    assert subject.ask("get_server_list\n") == Said(0)


@fact(ABOUT, "`shutdown_server` waits for the server, `shutdown_server PID -f` ends it; the daemon goes on")
def shuts_a_server_down(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    assert subject.ask(f"shutdown_server {server}\n") == Said(0)
    assert subject.ask("get_server_list\n") == Said(0, f"{server}\n")
    assert subject.ask(f"shutdown_server {server} -f\n") == Said(0)
    subject.eventually(lambda: not subject.lives(server))
    subject.eventually(lambda: subject.ask("get_server_list\n") == Said(0))


@fact(ABOUT, "a killed daemon's server lives on; the next daemon does not know it, and its `quit` leaves it alone")
def is_outlived_by_its_server(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    subject.signal(subject.daemon(), signal.SIGKILL)
    assert subject.lives(server)
    subject.start()
    assert subject.ask(f"get_server_list\nget_client_list {server}\n") == Said(0, f"Server {server} not found\n")
    assert subject.ask("quit -t 1\n") == Said(0)
    assert subject.lives(server)


def name_of(pid: int) -> str:
    """Return the kernel's name of a process."""
    with open(f"/proc/{pid}/comm", encoding="utf-8") as stream:
        return stream.read().strip()


def descriptors_of(pid: int) -> set[str]:
    held = set()
    for each in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            held.add(os.readlink(f"/proc/{pid}/fd/{each}"))
    return held


@fact(ABOUT, "a server inherits the daemon's descriptors of lock and logs")
def hands_on_descriptors(subject: Subject) -> None:
    subject.start()
    server = subject.start_server()
    subject.eventually(lambda: name_of(server) == "sleep")  # what the stand-in becomes
    wanted = {str(subject.pipe / "control_lock"), str(subject.log / "control.log"), str(subject.log / "server.log")}
    allowed = wanted | {"/dev/null", str(subject.pids), str(subject.root / "bin/nvidia-cuda-mps-server")}
    subject.eventually(lambda: wanted <= descriptors_of(server) <= allowed)  # its loader's own come and go


@fact(ABOUT, "a user starts a server for himself only; it runs with his uid and the daemon's group", needs_root=True)
def starts_a_users_server(subject: Subject) -> None:
    subject.start()
    rule = ". Only the root user may start server for another user." if subject.version >= 550 else ""
    said = subject.ask("start_server -uid 0\n", uid=NOBODY)
    assert said == Said(0, f"Insufficient privileges for UID {NOBODY}{rule}\n")
    assert subject.ask(f"start_server -uid {NOBODY}\n", uid=NOBODY) == Said(0)
    server = subject.listed_server()
    with open(f"/proc/{server}/status", encoding="utf-8") as stream:
        found = dict(line.rstrip("\n").split(":\t", 1) for line in stream if line.startswith(("Uid", "Gid")))
    if os.geteuid() == 0:
        assert found == {"Uid": "\t".join([str(NOBODY)] * 4), "Gid": "\t".join(["0"] * 4)}


@fact(ABOUT, "one server at a time: another user's waits without a word, and starts when the first has ended",
      needs_root=True)  # fmt: skip
def serves_one_user(subject: Subject) -> None:
    subject.start()
    first = subject.start_server(0)
    assert subject.ask(f"start_server -uid {NOBODY}\n", uid=NOBODY) == Said(0)
    assert subject.ask("get_server_list\n") == Said(0, f"{first}\n")
    assert subject.ask(f"shutdown_server {first} -f\n") == Said(0)
    subject.eventually(lambda: subject.ask("get_server_list\n").out.strip() not in ("", str(first)))
    subject.eventually(lambda: any(line.endswith(f"for user {NOBODY}") for line in subject.control_log()))


@fact(ABOUT, "a user cannot shut down root's server", needs_root=True)
def keeps_roots_server(subject: Subject) -> None:
    subject.start()
    server = subject.start_server(0)
    rule = ". Only the root user may shutdown another user's server." if subject.version >= 550 else ""
    for command in (f"shutdown_server {server}\n", f"shutdown_server {server} -f\n"):
        assert subject.ask(command, uid=NOBODY) == Said(0, f"Insufficient privileges for UID {NOBODY}{rule}\n")
    assert subject.lives(server)
