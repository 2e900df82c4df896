"""The simulated control daemon: its files, its two sockets, and one loop that serves one command line at a time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time

from mpsfleet.sim import processes
from mpsfleet.sim.mps import behaviour
from mpsfleet.sim.mps.commands import Commands
from mpsfleet.sim.mps.files import NotStarted, make_ready
from mpsfleet.sim.mps.hosting import Hosting, Visitor
from mpsfleet.sim.mps.wire import ACCEPTED, CLIENT, COMMAND, END, HELLO, UI
from mpsfleet.sim.place import Place, is_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.sim.mps.files import Files

_CREDENTIALS = struct.Struct("3i")
_LOOK_S = 1.0
_FAREWELL_S = 0.5
_MOST = 65536


def main(argv: list[str]) -> int:
    """Serve until `quit`; `argv` is the node's root and a descriptor that waits for a byte (-1: stay in front)."""
    root, ready = argv[0], int(argv[1])
    place = Place(root)
    try:
        files = make_ready(place, ready >= 0)
    except NotStarted as error:
        if str(error):
            sys.stdout.write(f"{error}\n")
        return 1
    processes.register(place, "control")
    _end_tidily(place)
    daemon = Daemon(place, files)
    if ready >= 0:
        null = os.open("/dev/null", os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(null, each)
        os.write(ready, b"\0")
        os.close(ready)
    return daemon.serve()


def _end_tidily(place: Place) -> None:
    """Let a signal end this process as it would, with its files left where they are; only the node forgets it."""

    def end(number: int, _frame: object) -> None:
        processes.forget(place, os.getpid())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, end)


class Daemon:
    """One control daemon."""

    def __init__(self, place: Place, files: Files) -> None:
        self._place = place
        self._files = files
        self._log = files.log
        version = behaviour.version_of(place)
        self._hosting = Hosting(place, files, version)
        self._commands = Commands(version, self._hosting, files.log)
        self._ui: socket.socket | None = None
        self._ui_uid = 0
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)

    def serve(self) -> int:
        """Serve until `quit` has been carried out; return the exit status."""
        fleet = self._place.fleet
        while is_up(fleet):
            for each in self._ready():
                self._attend(each)
            self._hosting.collect()
            status = self._commands.finish(time.monotonic())
            if status is not None:
                self._leave(status)
                return status
            if not self._commands.is_quitting:
                self._hosting.start_next()
        return 0

    def _ready(self) -> list[int]:
        places = [*(each.fileno() for each in self._files.listeners), self._wake, *self._hosting.descriptors()]
        if self._ui is not None:
            places.append(self._ui.fileno())
        left_s = self._commands.deadline - time.monotonic()
        return select.select(places, (), (), max(0.0, min(_LOOK_S, left_s)))[0]

    def _attend(self, descriptor: int) -> None:
        for listener in self._files.listeners:
            if descriptor == listener.fileno():
                self._accept(listener)
                return
        if descriptor == self._wake:
            os.read(self._wake, 512)
        elif self._ui is not None and descriptor == self._ui.fileno():
            self._converse(self._ui)
        else:
            self._hosting.attend(descriptor)

    def _accept(self, listener: socket.socket) -> None:
        """Take one connection. Whoever connects and says nothing keeps the daemon here, as NVIDIA's."""
        self._log.say("Accepting connection...")
        connection, _ = listener.accept()
        pid, real_uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        try:
            connection.send(HELLO)
        except OSError:
            self._refuse(connection, "Unable to accept connection")
            return
        try:
            word = connection.recv(_MOST)
        except OSError:
            word = b""
        declared = word[1:].split()[-1:]
        if word[:1] not in (UI, CLIENT) or not declared or not declared[0].isdigit():
            self._refuse(connection, "User did not send valid credentials")
            return
        uid = int(declared[0]) if real_uid == os.geteuid() else real_uid
        if word[:1] == CLIENT:
            self._log.say("User did not send valid credentials")  # NVIDIA's says so of every client
            self._hosting.welcome(Visitor(connection, pid, uid))
        elif self._ui is not None:
            connection.close()
        else:
            self._ui, self._ui_uid = connection, uid
            self._log.say("NEW UI")
            self._tell(ACCEPTED)

    def _refuse(self, connection: socket.socket, why: str) -> None:
        self._log.say(why)
        connection.close()

    def _converse(self, connection: socket.socket) -> None:
        try:
            packet = connection.recv(_MOST)
        except OSError:
            packet = b""
        if packet[:1] == COMMAND:
            text = packet[1:].decode("utf-8", "replace")
            self._log.say(f"Cmd:{text}")
            for each in self._commands.carry_out(text, self._ui_uid):
                if each:
                    self._log.say(each)
                self._tell(COMMAND + each.encode())
        elif packet[:1] == END and self._commands.is_quitting:
            return  # nobody is let go before the server has ended
        else:
            self._tell(END + b"\0")
            self._close_ui()
            self._log.say("UI closed")

    def _tell(self, packet: bytes) -> None:
        if self._ui is not None:
            with contextlib.suppress(OSError):
                self._ui.send(packet)

    def _close_ui(self) -> None:
        if self._ui is not None:
            self._ui.close()
            self._ui = None

    def _leave(self, status: int) -> None:
        """End as after `quit`: the fifo and the pid file go, the sockets and the lock stay."""
        self._log.say(f"Exit with status {status}")
        self._log.settle()
        self._files.remove_some()
        processes.forget(self._place, os.getpid())
        self._tell(END + bytes([status & 0xFF]))
        if self._ui is None:
            return
        self._ui.settimeout(_FAREWELL_S)  # what is unread when this process ends would take its last word away
        with contextlib.suppress(OSError):
            while self._ui.recv(_MOST):
                pass
