"""What a systemctl asks of the supervisor, over one connection, and the answer to it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from mpsfleet.sim.systemd.supervisor import Supervisor


class Request:
    """One connection of systemctl: answered when every unit it named has been."""

    def __init__(self, connection: socket.socket, count: int) -> None:
        self._connection = connection
        self._left = count
        self._rc, self._words = 0, ""

    def warn(self, words: str) -> None:
        """Add to what goes to standard error."""
        self._words += words

    def answer(self, rc: int, words: str) -> None:
        """Note what came of one unit, of which the first failure counts; after the last one, send it."""
        self._rc, self._words, self._left = self._rc or rc, self._words + words, self._left - 1
        if self._left <= 0:
            with contextlib.suppress(OSError), self._connection:  # who asked may have gone
                self._connection.sendall(json.dumps({"rc": self._rc, "err": self._words}).encode() + b"\n")

    def job_done(self, rc: int, words: str) -> None:
        """Note what came of a job; one that failed counts for more than a unit that was not there."""
        self._rc = rc or self._rc
        self.answer(rc, words)


def carry_out(supervisor: Supervisor, connection: socket.socket, asked: dict[str, Any]) -> None:
    """Do what was asked for; the answer comes when all of it is done."""
    verb, flags, names = asked["verb"], asked["flags"], asked["units"]
    if not names and verb == "reset-failed":
        names = supervisor.failed()
    request = Request(connection, len(names))
    if verb == "daemon-reload":
        supervisor.reload()
    if verb in ("enable", "disable"):
        is_quiet = "quiet" in flags or "q" in flags
        supervisor.install(request, names, is_on=verb == "enable", is_now="now" in flags, is_quiet=is_quiet)
    elif not names:
        request.answer(0, "")
    for name in names:
        if verb == "reset-failed":
            supervisor.reset_failed(name, request)
        elif verb not in ("enable", "disable", "daemon-reload"):
            supervisor.job(verb, name, request)
