"""The daemon's server and its clients: one server at a time, for one user; clients of other users wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

from mpsfleet.sim import processes
from mpsfleet.sim.mps import behaviour
from mpsfleet.sim.mps.program import argv_of
from mpsfleet.sim.mps.wire import CLIENTS, NEW, REFUSED, SHUTDOWN, STATE, TERMINATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from mpsfleet.sim.mps.files import Files
    from mpsfleet.sim.place import Place

INITIALIZING, ACTIVE, FAULT = "INITIALIZING", "ACTIVE", "FAULT"
MOST_CLIENTS = 48  # of one server, since compute capability 7.0
_TRIES = 6  # starts of a server that ends at once, before its clients are refused
_NAME = "nvidia-cuda-mps-server"
NOT_READY, TOO_MANY, NO_CONNECTION = b"807", b"808", b"805"  # CUDA's error codes


class Visitor:
    """A CUDA program that has connected."""

    def __init__(self, connection: socket.socket, pid: int, uid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.uid = uid

    def refuse(self, error: bytes) -> None:
        """Send it away with a CUDA error."""
        with contextlib.suppress(OSError):
            self.connection.send(REFUSED + error)
        self.connection.close()


class Server:
    """The server as its daemon knows it. A stand-in has no `link`, so it never gets beyond INITIALIZING."""

    def __init__(self, pid: int, uid: int, link: socket.socket | None, percentage: float) -> None:
        self.pid = pid
        self.uid = uid
        self.link = link
        self.percentage = percentage
        self.limits: dict[str, int] = {}  # MiB by device
        self.state = INITIALIZING
        self.clients: tuple[int, ...] = ()
        self.is_leaving = False

    @property
    def is_starting(self) -> bool:
        """Whether it cannot answer yet."""
        return self.state == INITIALIZING

    def tell(self, packet: bytes, descriptor: int | None = None) -> None:
        """Send the server a packet, and a descriptor with it."""
        if self.link is not None:
            with contextlib.suppress(OSError):
                if descriptor is None:
                    self.link.send(packet)
                else:
                    socket.send_fds(self.link, [packet], [descriptor])


class Hosting:
    """Who is served, who waits, and the server's coming and going."""

    def __init__(self, place: Place, files: Files, version: int) -> None:
        self._place = place
        self._files = files
        self._log = files.log
        self._version = version
        self._waiting: list[Visitor] = []
        self._wanted: list[int] = []  # users for whom `start_server` was asked, in order
        self._tries = 0
        self.server: Server | None = None
        self.last_status = 0
        self.percentage = 100.0

    def want(self, uid: int) -> None:
        """Start a server for a user; while there is another user's, later."""
        if self.server is None:
            self._start(uid)
        elif self.server.uid != uid and uid not in self._wanted:
            self._wanted.append(uid)
            self._make_room()

    def welcome(self, visitor: Visitor) -> None:
        """Serve a client, or let it wait, or send it away."""
        named = f"NEW CLIENT {visitor.pid} from user {visitor.uid}:"
        server = self.server
        if server is not None and server.uid == visitor.uid and not server.is_starting and not server.is_leaving:
            self._log.say(f"{named} Server already exists")
            self._hand_over(server, visitor)
            return
        self._log.say(f"{named} Server is not ready, push client to pending list")
        self._waiting.append(visitor)
        if server is None:
            self._start(visitor.uid)
        else:
            self._make_room()

    def _hand_over(self, server: Server, visitor: Visitor) -> None:
        if server.state == FAULT:
            visitor.refuse(NOT_READY)
        elif len(server.clients) >= MOST_CLIENTS:
            visitor.refuse(TOO_MANY)
        else:
            server.tell(NEW + f"{visitor.pid} {visitor.uid}".encode(), visitor.connection.fileno())
            visitor.connection.close()
            server.clients = (*server.clients, visitor.pid)

    def descriptors(self) -> list[int]:
        """Return what to listen to: the server and those who wait."""
        link = self.server.link if self.server is not None else None
        return [*([] if link is None else [link.fileno()]), *(each.connection.fileno() for each in self._waiting)]

    def attend(self, descriptor: int) -> None:
        """Hear the server, or see that one who waited has gone."""
        server = self.server
        if server is not None and server.link is not None and server.link.fileno() == descriptor:
            self._hear(server, server.link)
        for each in [each for each in self._waiting if each.connection.fileno() == descriptor]:
            self._waiting.remove(each)
            each.connection.close()

    def _hear(self, server: Server, link: socket.socket) -> None:
        try:
            packet = link.recv(65536)
        except OSError:
            packet = b""
        if packet[:1] == CLIENTS:
            server.clients = tuple(int(each) for each in packet[1:].split())
        elif packet[:1] == STATE:
            was_starting, server.state = server.is_starting, packet[1:].decode()
            if was_starting:
                self._tries = 0
                self._log.say(f"NEW SERVER {server.pid}: Ready")
                mine = [each for each in self._waiting if each.uid == server.uid]
                self._waiting = [each for each in self._waiting if each.uid != server.uid]
                for each in mine:
                    self._hand_over(server, each)
        else:
            link.close()
            server.link = None
        self._make_room()

    def _make_room(self) -> None:
        """Let an idle server go when another user waits."""
        server = self.server
        others = [*(visitor.uid for visitor in self._waiting), *self._wanted]
        if server is not None and others and server.state == ACTIVE and not server.clients and others[0] != server.uid:
            self.shut_down()

    def shut_down(self) -> None:
        """Let the server end once it has no client; a stand-in is told nothing."""
        if self.server is not None:
            self.server.is_leaving = True
            self.server.tell(SHUTDOWN)

    def terminate(self, client: int) -> None:
        """End a client's use of the GPU."""
        if self.server is not None:
            self.server.tell(TERMINATE + str(client).encode())

    def kill(self) -> None:
        """End the server by force."""
        if self.server is not None:  # our own child, which has not been collected
            os.kill(self.server.pid, signal.SIGKILL)

    def collect(self) -> None:
        """See whether the server has ended; then start the next one that is needed."""
        server = self.server
        if server is None:
            return
        pid, status = os.waitpid(server.pid, os.WNOHANG)
        if pid == 0:
            return
        self.last_status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
        self._log.say(f"Server {server.pid} exited with status {self.last_status}")
        self._log.say("Removed Shm file at ")
        processes.forget(self._place, server.pid)
        if server.link is not None:
            server.link.close()
        self.server = None
        self._tries = self._tries + 1 if server.is_starting and self.last_status else 0
        if self._tries >= _TRIES:
            self._tries = 0
            self._send_away(server.uid)

    def start_next(self) -> None:
        """Start the server that is waited for, where there is none."""
        if self.server is not None:
            return
        if self._waiting:
            self._start(self._waiting[0].uid)
        elif self._wanted:
            self._start(self._wanted.pop(0))

    def _send_away(self, uid: int) -> None:
        """Refuse the waiting clients of a user whose servers all ended at once."""
        for each in [each for each in self._waiting if each.uid == uid]:
            self._waiting.remove(each)
            each.refuse(NO_CONNECTION)

    def _start(self, uid: int) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stand_in = self._stand_in()
        pid = os.fork()
        if pid == 0:
            self._become_server(uid, its, stand_in)
        its.close()
        if stand_in is not None:
            mine.close()
        processes.register(self._place, "server", pid)
        self.server = Server(pid, uid, None if stand_in is not None else mine, self.percentage)
        speaker = pid if self._version >= behaviour.WITH_STATUS else 0
        self._log.say(f"Starting new server {pid} for user {uid}", speaker)

    def _become_server(self, uid: int, link: socket.socket, stand_in: str | None) -> NoReturn:
        """In the child: become the server, or end with 1 where there is none."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if stand_in is not None:
                if os.geteuid() == 0:  # NVIDIA's keeps the daemon's group
                    os.setgroups([])
                    os.setuid(uid)
                os.execv(stand_in, [_NAME])  # noqa: S606  # no shell: it is the server
            if os.access(self._place.path(behaviour.SERVER), os.X_OK):
                os.set_inheritable(link.fileno(), True)
                words = (str(uid), str(link.fileno()), str(self._files.server_log), behaviour.servers_of(self._place))
                path, argv = argv_of(self._place.root, _NAME, "mpsfleet.sim.mps.server", self._place.root, *words)
                os.execv(path, argv)  # noqa: S606  # same
        finally:
            os._exit(1)

    def _stand_in(self) -> str | None:
        """Return a server that somebody has put into PATH inside the node; never a program of this machine."""
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            path = f"{folder}/{_NAME}"
            is_inside = os.path.realpath(path).startswith(f"{self._place.root}/")
            if is_inside and os.access(path, os.X_OK) and path != self._place.path(behaviour.SERVER):
                return path
        return None
