"""The commands of the control daemon: what each answers, by driver version and by who asks.

The exit status is 0 whatever is answered, and a value that is not valid changes nothing. Texts are NVIDIA's, spelling
too; those about clients of an active server were never seen without a GPU and follow NVIDIA's manual.
"""

from __future__ import annotations

import math
import os
import re
import time

from mpsfleet.sim.mps.behaviour import FIRST_VERSIONS, WITH_STATUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable

    from mpsfleet.sim.mps.hosting import Hosting, Server
    from mpsfleet.sim.mps.log import Log

    Command = Callable[[list[str], int], Iterable[str]]

_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_MOST_PERCENT = 100.0
_GIB = 1024  # in MiB
_PS_HEADER = "PID       ID    SERVER    DEVICE             NAMESPACE COMMAND"


class Commands:
    """The commands of one daemon and what they have set."""

    def __init__(self, version: int, hosting: Hosting, log: Log) -> None:
        self._version = version
        self._hosting = hosting
        self._log = log
        self._handlers = self._by_name()
        self._limits: dict[str, int] = {}  # MiB by device
        self._priority = "0"
        self._percentage = _MOST_PERCENT
        self.is_quitting = False
        self.deadline = math.inf  # when a `quit -t` ends the server by force
        given = os.environ.get(_VARIABLE)
        if given is not None:
            value = percentage(given)
            if value is None:
                log.say(f"{_VARIABLE} should be between (0.0, 100.0]")
            else:
                self._percentage = value
        hosting.percentage = self._percentage

    def carry_out(self, text: str, uid: int) -> Iterable[str]:
        """Carry out one line for a user and return the lines of the answer."""
        words = text.split()
        name = words[0] if words else ""
        if name not in self._handlers or FIRST_VERSIONS[name] > self._version:
            return (f'Unknown command "{name}"',)
        return self._handlers[name](words[1:], uid)

    def _by_name(self) -> dict[str, Command]:
        return {
            "get_server_list": self._get_server_list,
            "get_server_status": self._get_server_status,
            "get_client_list": self._get_client_list,
            "get_device_client_list": self._get_device_client_list,
            "ps": self._ps,
            "start_server": self._start_server,
            "shutdown_server": self._shutdown_server,
            "terminate_client": self._terminate_client,
            "quit": self._quit,
            "set_default_active_thread_percentage": self._set_default_percentage,
            "get_default_active_thread_percentage": self._get_default_percentage,
            "set_active_thread_percentage": self._percentage_of_server,
            "get_active_thread_percentage": self._percentage_of_server,
            "set_default_device_pinned_mem_limit": self._set_default_limit,
            "get_default_device_pinned_mem_limit": self._get_default_limit,
            "set_device_pinned_mem_limit": self._limit_of_server,
            "get_device_pinned_mem_limit": self._limit_of_server,
            "set_default_client_priority": self._set_default_priority,
            "get_default_client_priority": self._get_default_priority,
        }

    def finish(self, now: float) -> int | None:
        """Return the daemon's exit status once `quit` has been carried out; until then let time do its part."""
        if not self.is_quitting:
            return None
        server = self._hosting.server
        if server is None:
            return self._hosting.last_status
        if now >= self.deadline:
            self.deadline = math.inf
            if self._version >= WITH_STATUS:
                self._log.say(f"Force shutting down server {server.pid}")
            self._hosting.kill()
        return None

    def _get_server_list(self, _words: list[str], _uid: int) -> Iterable[str]:
        server = self._hosting.server
        return () if server is None else (str(server.pid),)

    def _get_server_status(self, words: list[str], _uid: int) -> Iterable[str]:
        if not words:
            return ("A server PID is required",)
        server = self._server(words)
        return _not_found(words) if server is None else (server.state,)

    def _get_client_list(self, words: list[str], _uid: int) -> Iterable[str]:
        server = self._server(words)
        if server is None:
            return _not_found(words)
        return () if self._is_busy(server) else tuple(str(each) for each in server.clients)

    def _get_device_client_list(self, words: list[str], _uid: int) -> Iterable[str]:
        server = self._server(words) if words else self._hosting.server
        if server is None:
            return _not_found(words) if words else ()
        return () if self._is_busy(server) else tuple(str(each) for each in server.clients)

    def _ps(self, words: list[str], _uid: int) -> Iterable[str]:
        server = self._hosting.server
        if words[:1] == ["-p"]:
            number = " ".join(_number(words[1:]))
            if server is None or str(server.pid) != number:
                return (f"Server {number} not found", f"Server {number} not found", "")
            if server.is_starting:
                return (f"Server {number} not found", "")
        if server is None or server.is_starting:
            return ("Server not found",)
        rows = (f"{pid:<9} {index:<5} {server.pid:<9} {'GPU-simulated':<18} {pid:<9} {_command(pid)}"
                for index, pid in enumerate(server.clients))  # fmt: skip
        return (_PS_HEADER, *rows)

    def _start_server(self, words: list[str], uid: int) -> Iterable[str]:
        wanted = _number(words[1:]) if words[:1] == ["-uid"] else ()
        if not words[1:] or not wanted:
            return ("A user id (UID) is required to start a new server",)
        if uid not in (0, int(wanted[0])):
            return self._refused(uid, " Only the root user may start server for another user.")
        self._hosting.want(int(wanted[0]))
        return ()

    def _shutdown_server(self, words: list[str], uid: int) -> Iterable[str]:
        server = self._server(words)
        if server is None:
            return _not_found(words)
        if uid not in (0, server.uid):
            return self._refused(uid, " Only the root user may shutdown another user's server.")
        if "-f" in words:
            self._hosting.kill()
        else:
            self._hosting.shut_down()
        return ()

    def _terminate_client(self, words: list[str], _uid: int) -> Iterable[str]:
        number = (*_number(words), "0")[0]
        server = self._server(words)
        if server is None:
            return (f"Server {number} not found", f"Server {number} not found!", "1")
        if self._is_busy(server):
            return (f"Server {number} not found!", "1")
        client = _number(words[1:])
        if not client or int(client[0]) not in server.clients:
            return ("1",)
        self._hosting.terminate(int(client[0]))
        return ("0",)

    def _set_default_percentage(self, words: list[str], uid: int) -> Iterable[str]:
        if self._may_not_set(uid):
            return self._may_not_set(uid)
        value = percentage(words[0] if words else "")
        if value is None:
            self._log.say("Invalid percentage, expected between (0.0, 100.0]")
        else:
            self._percentage = self._hosting.percentage = value
        return (f"{self._percentage:.1f}",)

    def _get_default_percentage(self, _words: list[str], _uid: int) -> Iterable[str]:
        return (f"{self._percentage:.1f}",)

    def _percentage_of_server(self, words: list[str], _uid: int) -> Iterable[str]:
        server = self._server(words)
        if server is None:
            return _not_found(words)
        if self._is_busy(server):
            return ()
        server.percentage = (percentage(words[1]) if words[1:] else None) or server.percentage
        return (f"{server.percentage:.1f}",)

    def _set_default_limit(self, words: list[str], uid: int) -> Iterable[str]:
        if self._may_not_set(uid):
            return self._may_not_set(uid)
        if len(words) > 1 and words[0].isdigit():  # a UUID is taken and has no effect
            self._limits[words[0]] = limit_mib(words[1])
        return ()

    def _get_default_limit(self, words: list[str], _uid: int) -> Iterable[str]:
        limit = self._limits.get(words[0], 0) if words else 0
        if not limit:
            self._log.say("No default pinned memory limit set for the device!")
        return as_limit(limit)

    def _limit_of_server(self, words: list[str], _uid: int) -> Iterable[str]:
        server = self._server(words)
        if server is None:
            return _not_found(words)
        if self._is_busy(server) or len(words) == 1:
            return ()
        if len(words) > 2:  # noqa: PLR2004  # PID DEVICE VALUE
            server.limits[words[1]] = limit_mib(words[2])
            return ()
        return as_limit(server.limits.get(words[1], self._limits.get(words[1], 0)))

    def _set_default_priority(self, words: list[str], uid: int) -> Iterable[str]:
        if self._may_not_set(uid):
            return self._may_not_set(uid)
        if words[:1] not in (["0"], ["1"]):
            return ("Invalid priority value - must be 0 or 1!",)
        self._priority = words[0]
        return ()

    def _get_default_priority(self, _words: list[str], _uid: int) -> Iterable[str]:
        return (self._priority,)

    def _quit(self, words: list[str], uid: int) -> Iterable[str]:
        if uid != 0:
            return ("Not enough privilege to execute quit command",)
        self.is_quitting = True
        if words[:1] == ["-t"]:
            wait_s = float((*_number(words[1:]), "0")[0])
            self.deadline = time.monotonic() + wait_s
            self._say_timeout(wait_s)
        self._hosting.shut_down()
        return ()

    def _say_timeout(self, wait_s: float) -> None:
        if self._version >= FIRST_VERSIONS["ps"]:  # 470 does not say so
            self._log.say(f"quit command issued with timeout of {wait_s:.0f}")

    def _server(self, words: list[str]) -> Server | None:
        server = self._hosting.server
        return server if server is not None and _number(words) == (str(server.pid),) else None

    def _is_busy(self, server: Server) -> bool:
        if server.is_starting:
            self._log.say(f"Server {server.pid} is <busy>")
        return server.is_starting

    def _may_not_set(self, uid: int) -> tuple[str, ...]:
        if uid == 0 or self._version < WITH_STATUS:
            return ()
        rule = " Control deamon settings can only be modified by the user started it or by the root user."
        return self._refused(uid, rule)

    def _refused(self, uid: int, rule: str) -> tuple[str, ...]:
        return (f"Insufficient privileges for UID {uid}{'.' + rule if self._version >= WITH_STATUS else ''}",)


def percentage(text: str) -> float | None:
    """Return a thread percentage; None where it is not within (0, 100]. What follows the number is ignored."""
    found = re.match(r"\s*\d+(\.\d*)?", text)
    value = float(found.group()) if found else 0.0
    return value if 0.0 < value <= _MOST_PERCENT else None


def limit_mib(text: str) -> int:
    """Return a pinned memory limit in MiB; 0, which is no limit, where it is none. Any unit but G is M."""
    found = re.match(r"(\d+)([gG]?)", text)
    return int(found[1]) * (_GIB if found[2] else 1) if found else 0


def as_limit(limit: int) -> Iterable[str]:
    """Return a limit as it is printed: from 1G on in whole G, cut down; nothing where there is none."""
    return (f"{limit // _GIB}G" if limit >= _GIB else f"{limit}M",) if limit else ()


def _number(words: list[str]) -> tuple[str, ...]:
    """Return the number that the first word begins with, as atoi(3) reads it; nothing where there is none."""
    found = re.match(r"\d+", words[0]) if words else None
    return (str(int(found.group())),) if found else ()


def _not_found(words: list[str]) -> Iterable[str]:
    return (f"Server {(*_number(words), '0')[0]} not found",)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "-"
