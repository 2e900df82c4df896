"""A simulated CUDA program: it sleeps, as a client of MPS, beside MPS, or holding the daemon's connection."""

from __future__ import annotations

import contextlib
import os
import select
import socket

from mpsfleet.sim import processes
from mpsfleet.sim.mps.notes import remove_gpu_use, write_gpu_use, write_state
from mpsfleet.sim.mps.wire import CLIENT, REFUSED, RUNNING, USER_SOCKET
from mpsfleet.sim.place import Place, is_up

_LOOK_S = 1.0
_AGAIN_S = 0.5
_MEMORY_MIB = 512
_GONE = "806"  # the server has gone


def main(argv: list[str]) -> int:
    """Live; `argv`: the node's root, "client", "trying", "bypassing" or "holding", pipe directory, user and GPU."""
    place = Place(argv[0])
    manner, directory, uid, gpu = argv[1], argv[2], int(argv[3]), int(argv[4])
    processes.register(place, "client")
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setuid(uid)
    client = Client(place, f"{directory}/{USER_SOCKET}", uid, gpu)
    if manner == "bypassing":
        client.use_gpu("beside MPS")
    elif manner == "holding":
        client.hold()
    else:
        while client.work() and manner == "trying":
            processes.sleep_while_up(place.fleet, _AGAIN_S)
    return 0


class Client:
    """One program."""

    def __init__(self, place: Place, path: str, uid: int, gpu: int) -> None:
        self._place = place
        self._path = path
        self._uid = uid
        self._gpu = gpu

    def work(self) -> bool:
        """Be a client of MPS until that ends with an error; where nobody listens, run without MPS as CUDA does.

        Returns False when the fleet goes down.
        """
        try:
            connection = self._connected()
        except OSError:
            self.use_gpu("beside MPS")
            return False
        with connection:
            write_state(self._place, "waiting")
            error = self._serve_time(connection)
        remove_gpu_use(self._place, os.getpid())
        write_state(self._place, f"error {error}")
        return is_up(self._place.fleet)

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self._path)
            connection.recv(64)
            connection.send(CLIENT + f"{os.getpid()} {self._uid}".encode())
        except OSError:
            connection.close()
            raise
        return connection

    def _serve_time(self, connection: socket.socket) -> str:
        while is_up(self._place.fleet):
            if not select.select([connection], (), (), _LOOK_S)[0]:
                continue
            try:
                packet = connection.recv(64)
            except OSError:
                packet = b""
            if packet[:1] == RUNNING:
                write_gpu_use(self._place, self._gpu, "M+C", "python3", _MEMORY_MIB)
                write_state(self._place, "running")
            else:
                return packet[1:].decode() if packet[:1] == REFUSED else _GONE
        return _GONE

    def use_gpu(self, state: str) -> None:
        """Use a GPU without MPS as long as the fleet is up."""
        write_gpu_use(self._place, self._gpu, "C", "python3", _MEMORY_MIB)
        write_state(self._place, state)
        self._sleep()

    def hold(self) -> None:
        """Connect, and say nothing."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, contextlib.suppress(OSError):
            connection.connect(self._path)
            write_state(self._place, "holding")
            self._sleep()

    def _sleep(self) -> None:
        while processes.sleep_while_up(self._place.fleet, 3600.0):
            pass
