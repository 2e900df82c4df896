"""A simulated MPS server: it keeps the connections of its clients, and it can fall into FAULT and recover."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from mpsfleet.sim.mps.hosting import ACTIVE, FAULT, INITIALIZING
from mpsfleet.sim.mps.log import line
from mpsfleet.sim.mps.notes import remove_notes, write_gpu_use, write_state
from mpsfleet.sim.mps.wire import CLIENTS, NEW, REFUSED, RUNNING, SHUTDOWN, STATE, TERMINATE
from mpsfleet.sim.place import Place, is_up

_LOOK_S = 1.0
_MEMORY_MIB = 30
_TERMINATED = b"810"


def main(argv: list[str]) -> int:
    """Serve; `argv`: the node's root, the user, the descriptors of link and log, and how servers do."""
    place = Place(argv[0])
    uid, link, log, manner = int(argv[1]), int(argv[2]), int(argv[3]), argv[4]
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setuid(uid)  # only now: this program may lie where that user cannot read
    server = Server(place, socket.socket(fileno=link), log)
    if manner == "crash":
        server.say("Server encountered a fatal exception. Shutting down")
        return 1
    return server.serve(is_ready=manner == "well")


class Server:
    """One server."""

    def __init__(self, place: Place, link: socket.socket, log: int) -> None:
        self._place = place
        self._link: socket.socket | None = link
        self._log = log
        self._clients: dict[int, socket.socket] = {}
        self._state = INITIALIZING
        self._affected: set[int] = set()
        self._is_leaving = False
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = wake
        signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        write_state(place, INITIALIZING)

    def say(self, text: str) -> None:
        """Write a line into server.log."""
        if self._log >= 0:
            with contextlib.suppress(OSError):
                os.write(self._log, line(time.time(), "Server", os.getpid(), text).encode())

    def serve(self, *, is_ready: bool) -> int:
        """Serve until told to go and without clients; a server whose daemon has died serves on."""
        self.say("Initializing server process")
        if is_ready:
            write_gpu_use(self._place, -1, "C", "nvidia-cuda-mps-server", _MEMORY_MIB)
            self._become(ACTIVE)
            self.say("Server has started")
        while is_up(self._place.fleet) and not (self._is_leaving and not self._clients):
            heard = [self._wake, *(each.fileno() for each in self._clients.values())]
            if self._link is not None:
                heard.append(self._link.fileno())
            for each in select.select(heard, (), (), _LOOK_S)[0]:
                self._attend(each)
        remove_notes(self._place, os.getpid())
        return 0

    def _attend(self, descriptor: int) -> None:
        if descriptor == self._wake:
            os.read(self._wake, 512)
            self._fault()
        elif self._link is not None and descriptor == self._link.fileno():
            self._obey(self._link)
        else:
            for pid in [pid for pid, each in self._clients.items() if each.fileno() == descriptor]:
                self._forget(pid)

    def _obey(self, link: socket.socket) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(link, 65536, 4)
        except OSError:
            packet, descriptors = b"", []
        if packet[:1] == NEW and descriptors:
            self._welcome(int(packet[1:].split()[0]), socket.socket(fileno=descriptors[0]))
        elif packet[:1] == TERMINATE:
            self._terminate(int(packet[1:]))
        elif packet[:1] == SHUTDOWN:
            self._is_leaving = True
        elif not packet:
            link.close()
            self._link = None

    def _welcome(self, pid: int, connection: socket.socket) -> None:
        self.say("Received new client request")
        self._clients[pid] = connection
        with contextlib.suppress(OSError):
            connection.send(RUNNING)
        self._tell_clients()

    def _terminate(self, pid: int) -> None:
        if pid in self._clients:
            with contextlib.suppress(OSError):
                self._clients[pid].send(REFUSED + _TERMINATED)
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        self._clients.pop(pid).close()
        self.say(f"Client {pid} disconnected")
        self._affected.discard(pid)
        if self._state == FAULT and not self._affected:
            self.say("All faulted clients have exited")
            self._become(ACTIVE)
        self._tell_clients()

    def _fault(self) -> None:
        """Fall into FAULT for all clients that there are; without one there is nothing to wait for."""
        self._affected = set(self._clients)
        if self._affected and self._state == ACTIVE:
            self.say("Fatal GPU fault; waiting for the clients to exit")
            self._become(FAULT)

    def _become(self, state: str) -> None:
        self._state = state
        write_state(self._place, state)
        self._tell(STATE + state.encode())

    def _tell_clients(self) -> None:
        self._tell(CLIENTS + " ".join(str(pid) for pid in self._clients).encode())

    def _tell(self, packet: bytes) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.send(packet)
