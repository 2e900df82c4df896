"""What no machine without a GPU shows on NVIDIA's daemon: active servers, their clients and users, faults, orphans."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from contract.implementations import Implementation
from contract.subject import Said, Subject

from mpsfleet.sim import mps, processes
from mpsfleet.sim.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALICE, BOB = 2001, 2002
PERCENTAGE = "get_default_active_thread_percentage\n"


class Node(Subject):
    """A simulated node whose daemon runs, with clients."""

    def client(self, uid: int, *, keeps_trying: bool = False) -> int:
        return mps.start_client(str(self.root), str(self.pipe), uid, keeps_trying=keeps_trying)

    def becomes(self, client: int, state: str) -> None:
        self.eventually(lambda: mps.client_state(str(self.root), client) == state)

    def server(self) -> int:
        (found,) = mps.servers(str(self.root))
        return found

    def state(self) -> str:
        found = mps.servers(str(self.root))
        return mps.server_state(str(self.root), found[0]) if found else ""

    def end(self, pid: int) -> None:
        mps.end(str(self.root), pid)


@pytest.fixture
def node(folder: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Give a node of driver 550, or of the one that the test asks for."""
    found = Node(Implementation("simulated", getattr(request, "param", 550)), folder)
    (found.root / "bin/nvidia-cuda-mps-server").unlink()  # the simulator's own server
    try:
        found.start()
        yield found
    finally:
        for each in processes.registered(Place(str(found.root))):
            found.end(each.pid)
        found.close()


def test_a_client_starts_its_users_server_and_is_listed(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    server = node.server()
    said = node.ask(f"get_server_list\nget_server_status {server}\nget_client_list {server}\n")
    assert said == Said(0, f"{server}\nACTIVE\n{alice}\n")
    assert node.ask("ps\n").out.splitlines()[1].split()[:3] == [str(alice), "0", str(server)]


def test_a_server_has_nvidias_name_and_as_root_its_users_id(node: Node) -> None:
    node.becomes(node.client(ALICE), "running")
    assert os.path.basename(os.readlink(f"/proc/{node.server()}/exe")) == "nvidia-cuda-mps-server"
    with open(f"/proc/{node.server()}/comm", encoding="utf-8") as stream:
        assert stream.read() == "nvidia-cuda-mps\n"
    assert os.stat(f"/proc/{node.server()}").st_uid == (ALICE if os.geteuid() == 0 else os.geteuid())


def test_another_users_client_waits_until_the_first_has_ended(node: Node) -> None:
    alice, bob = node.client(ALICE), node.client(BOB)
    node.becomes(alice, "running")
    node.becomes(bob, "waiting")
    node.end(alice)
    node.becomes(bob, "running")
    assert node.ask(f"get_client_list {node.server()}\n") == Said(0, f"{bob}\n")


def test_a_fault_refuses_new_clients_until_the_faulted_ones_have_ended(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    server = node.server()
    mps.fault_server(str(node.root), server)
    assert node.ask(f"get_server_status {server}\n") == Said(0, "FAULT\n")
    node.becomes(node.client(ALICE), "error 807")
    node.end(alice)
    node.eventually(lambda: node.state() == "ACTIVE")
    node.becomes(node.client(ALICE), "running")
    assert node.server() == server


def test_servers_that_end_at_once_are_started_six_times_for_a_client(node: Node) -> None:
    mps.set_servers(str(node.root), "crash")
    client = node.client(ALICE)
    node.becomes(client, "error 805")
    assert sum(line.startswith("Starting new server") for line in node.control_log()) == 6
    mps.set_servers(str(node.root), "well")
    node.becomes(node.client(ALICE), "running")


def test_a_server_that_is_never_ready_lets_its_clients_wait(node: Node) -> None:
    mps.set_servers(str(node.root), "slow")
    node.becomes(node.client(ALICE), "waiting")
    node.eventually(lambda: node.state() == "INITIALIZING")
    assert node.ask(f"get_server_status {node.server()}\n") == Said(0, "INITIALIZING\n")


def test_a_killed_daemon_leaves_server_and_clients(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    server = node.server()
    node.signal(node.daemon(), signal.SIGKILL)
    assert node.state() == "ACTIVE"
    node.start()
    assert node.ask("get_server_list\n") == Said(0)
    assert mps.client_state(str(node.root), alice) == "running"
    node.end(server)
    node.becomes(alice, "error 806")


def test_a_bare_quit_waits_for_clients_and_quit_with_a_time_ends_them(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    assert node.ask("quit\n", 0.4).rc is None
    assert mps.client_state(str(node.root), alice) == "running"
    time.sleep(0.05)
    assert node.ask("quit -t 1\n").rc == 0
    node.becomes(alice, "error 806")


def test_a_client_is_terminated(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    node.ask(f"terminate_client {node.server()} {alice}\n")
    node.becomes(alice, "error 810")


def test_a_program_without_a_daemon_runs_beside_mps(node: Node) -> None:
    node.ask("quit\n")
    node.eventually(lambda: not node.lives(node.daemon()))
    node.becomes(node.client(ALICE), "beside MPS")


def test_a_held_connection_keeps_the_daemon_and_its_end_frees_it(node: Node) -> None:
    holder = mps.hold_connection(str(node.root), str(node.pipe))
    assert node.ask(PERCENTAGE, 0.4).rc is None
    node.end(holder)
    assert node.ask(PERCENTAGE) == Said(0, "100.0\n")


@pytest.mark.parametrize("node", [535], indirect=True)
def test_a_declared_user_is_a_user_without_root(node: Node) -> None:
    assert node.ask("set_default_active_thread_percentage 10\nquit\n", uid=ALICE) == Said(
        0, "10.0\nNot enough privilege to execute quit command\n"
    )


def test_processes_are_the_nodes_while_they_live(node: Node) -> None:
    alice = node.client(ALICE)
    node.becomes(alice, "running")
    known = {(each.kind, each.pid) for each in processes.registered(Place(str(node.root)))}
    assert known == {("control", node.daemon()), ("server", node.server()), ("client", alice)}
    assert {each.name for each in (node.root / "proc").iterdir()} == {str(pid) for _, pid in known}
    node.end(alice)
    assert node.ask("quit -t 1\n").rc == 0
    assert list((node.root / "proc").iterdir()) == []
