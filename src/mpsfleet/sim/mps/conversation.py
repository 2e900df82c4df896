"""The program's other side: commands from standard input go to the daemon, its answers to standard output.

The protocol is the simulator's own; NVIDIA's program does not understand it. What a person and a script see is
NVIDIA's: texts, exit status, and that nothing here ever gives up waiting.
"""

from __future__ import annotations

import os
import select
import sys

from mpsfleet.sim.mps import USER_VARIABLE
from mpsfleet.sim.mps.wire import ACCEPTED, COMMAND, END, LONGEST_SOCKET, UI, UI_SOCKET, USER_SOCKET, pipe_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

_NOBODY = "Cannot find MPS control daemon process\n"
_BUSY = "Cannot send command to MPS control daemon process\n"
_MOST = 65536


def talk(root: str) -> int:
    """Send what comes on standard input, line by line; return the exit status."""
    uid = declared_uid(root)
    try:
        connection = _connected(f"{pipe_directory(root)}/{UI_SOCKET if uid == 0 else USER_SOCKET}")
    except OSError:
        sys.stderr.write(_NOBODY)
        return 1
    try:
        connection.recv(_MOST)
        connection.send(UI + str(uid).encode())
        if connection.recv(_MOST) != ACCEPTED:  # the daemon serves another connection
            raise BrokenPipeError
        return _converse(connection)
    except OSError:
        sys.stderr.write(_BUSY)
        return 1


def declared_uid(root: str) -> int:
    """Return as whom this process acts on the node: 0 for its owner, unless the environment declares another user."""
    mine = os.geteuid()
    if mine != os.stat(root).st_uid:
        return mine
    declared = os.environ.get(USER_VARIABLE, "")
    return int(declared) if declared.isdigit() else 0


def _connected(path: str) -> socket:
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise FileNotFoundError(path)
    import _socket  # socket.py costs more than the rest of this program

    connection: socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)  # type: ignore[assignment]
    connection.connect(path)
    return connection


def _converse(connection: socket) -> int:
    answers = b""
    is_over, rest = False, b""
    while True:
        waiting = [connection.fileno()] if is_over else [connection.fileno(), 0]
        readable = select.select(waiting, (), ())[0]
        if connection.fileno() in readable:
            packet = connection.recv(_MOST)
            if packet[:1] != COMMAND:
                sys.stdout.write(answers.decode("utf-8", "replace"))
                return packet[1] if packet[:1] == END else 0
            answers += packet[1:] + b"\n"
        elif 0 in readable:
            chunk = os.read(0, 4096)
            *lines, rest = (rest + chunk).split(b"\n")
            is_over = chunk == b""
            if is_over and rest:
                lines = [rest]
            try:
                for line in lines:
                    connection.send(COMMAND + line)
                if is_over:
                    connection.send(END)
            except BrokenPipeError:  # after `quit` the daemon is gone, and its last word is still to be read
                is_over = True
