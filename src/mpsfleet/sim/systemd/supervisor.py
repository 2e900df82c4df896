"""The supervisor of a simulated node: the part of PID 1 that starts services and stays their parent.

It ends when its fleet is down, and takes what it started with it. Killed, it leaves its services running; the next
systemctl starts another, which adopts them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import Any

from mpsfleet.sim import processes
from mpsfleet.sim.place import Place, is_up
from mpsfleet.sim.systemd import state
from mpsfleet.sim.systemd.loop import Loop
from mpsfleet.sim.systemd.service import Job, Service
from mpsfleet.sim.systemd.unit_file import DIRECTORY, file_state, on_disk, wanted_link

_SLICE_S = 0.5
_REQUEST_S = 2.0
_CHANGED = (
    "Warning: The unit file, source configuration file or drop-ins of {0} changed on disk. "
    "Run 'systemctl daemon-reload' to reload units.\n"
)


def main(root: str, listener_fd: int) -> None:
    """Look after the node's units until the fleet is down."""
    place = Place(root)
    processes.register(place, "systemd")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Supervisor(place, socket.socket(fileno=listener_fd)).run()


class Supervisor:
    """The node's units, and those who ask for something to be done to them."""

    def __init__(self, place: Place, listener: socket.socket) -> None:
        self._place = place
        self._listener = listener
        self._units = state.known(place)
        self._services: dict[str, Service] = {}
        self._loop = Loop(listener, self._hear, lambda: is_up(place.fleet))

    def run(self) -> None:
        """Take over what runs already, then serve until the fleet is down; end what was started."""
        for unit in self._units.values():
            if unit.main_pid:
                self._loop.adopt(unit.main_pid, unit.main_start)
            elif unit.active in ("activating", "deactivating") and unit.sub != "auto-restart":
                unit.active, unit.sub, unit.result = "failed", "failed", "signal"
            self._service(unit.name)
        self._loop.run(_SLICE_S)
        for unit in self._units.values():
            if unit.main_pid:
                processes.send(processes.Known(unit.main_pid, unit.main_start, "service"), signal.SIGKILL)

    def _service(self, name: str) -> Service:
        if name not in self._services:
            unit = self._units.setdefault(name, state.UnitState(name))
            self._services[name] = Service(self._place, unit, self._keep)
            self._loop.add(name, self._services[name].life())
        return self._services[name]

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # the fleet's directory is being removed
            state.keep(self._place, self._units)

    def _hear(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_REQUEST_S)
        try:
            request = json.loads(connection.makefile("rb").readline())
        except (OSError, ValueError):
            connection.close()
            return
        _Request(connection, len(request["units"])).carry_out(self, request)

    def job(self, verb: str, name: str, request: _Request) -> None:
        """Queue a job for a unit; answer at once where there is none to do."""
        unit = self._units.get(name)
        is_known = unit is not None and (unit.load != "not-found" or unit.active != "inactive")
        if on_disk(self._place, name) is None and not is_known:
            words = {"stop": f"Failed to stop {name}: Unit {name} not loaded.\n"}
            request.answer(5, words.get(verb, f"Failed to {verb} {name}: Unit {name} not found.\n"))
            return
        service = self._service(name)
        if unit is None or unit.load == "not-found":
            service.state.read(self._place)
        if state.is_stale(self._place, service.state):
            request.warn(_CHANGED.format(name))
        if verb == "try-restart" and service.state.active != "active":
            request.answer(0, "")
            return
        self._loop.jobs[name].append(Job("restart" if verb == "try-restart" else verb, request.answer))

    def enable(self, name: str, request: _Request, *, now: bool, is_quiet: bool) -> None:
        """Link the unit into multi-user.target, and read all units again."""
        found = file_state(self._place, name)
        if not found:
            request.answer(1, f"Failed to enable unit: Unit file {name} does not exist.\n")
            return
        link, words = wanted_link(self._place, name), ""
        if found == "disabled":
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(f"{DIRECTORY}/{name}", link)
            shown = f"{DIRECTORY}/multi-user.target.wants/{name}"
            words = "" if is_quiet else f"Created symlink {shown} → {DIRECTORY}/{name}.\n"
        elif found == "static":
            words = "The unit files have no installation config (WantedBy=, RequiredBy=, Also=, Alias= settings).\n"
        self.reload()
        request.warn(words)
        if now:
            self.job("start", name, request)
        else:
            request.answer(0, "")

    def disable(self, name: str, request: _Request, *, is_quiet: bool) -> None:
        """Remove the link again; that works for a unit whose file has gone, too."""
        link = wanted_link(self._place, name)
        if not os.path.lexists(link):
            is_there = bool(file_state(self._place, name))
            words = "" if is_there else f"Failed to disable unit: Unit file {name} does not exist.\n"
            request.answer(0 if is_there else 1, words)
            return
        os.unlink(link)
        self.reload()
        shown = f"{DIRECTORY}/multi-user.target.wants/{name}"
        request.answer(0, "" if is_quiet else f'Removed "{shown}".\n')

    def reset_failed(self, name: str, request: _Request) -> None:
        """Forget that a unit failed, and its starts."""
        unit = self._units.get(name)
        if unit is None:
            request.answer(1, f"Failed to reset failed state of unit {name}: Unit {name} not loaded.\n")
            return
        unit.starts, unit.result = [], "success"
        if unit.active == "failed":
            unit.active, unit.sub = "inactive", "dead"
        self._keep()
        request.answer(0, "")

    def reload(self) -> None:
        """Read all units again: those that are enabled, and those that run or have failed."""
        folder = self._place.path(f"{DIRECTORY}/multi-user.target.wants")
        enabled = os.listdir(folder) if os.path.isdir(folder) else []
        for name in {*self._units, *enabled}:
            self._service(name).state.read(self._place)
        self._keep()


class _Request:
    """One connection of systemctl: answered when every unit it named has been."""

    def __init__(self, connection: socket.socket, count: int) -> None:
        self._connection = connection
        self._left = count
        self._rc, self._words = 0, ""

    def warn(self, words: str) -> None:
        """Add to what goes to standard error."""
        self._words += words

    def answer(self, rc: int, words: str) -> None:
        """Note what came of one unit; after the last one, send it."""
        self._rc, self._words, self._left = self._rc or rc, self._words + words, self._left - 1
        if self._left <= 0:
            with contextlib.suppress(OSError), self._connection:  # who asked may have gone
                self._connection.sendall(json.dumps({"rc": self._rc, "err": self._words}).encode() + b"\n")

    def carry_out(self, supervisor: Supervisor, request: dict[str, Any]) -> None:
        """Do what was asked for."""
        verb, flags = request["verb"], request["flags"]
        is_quiet = "quiet" in flags or "q" in flags
        if verb == "daemon-reload":
            supervisor.reload()
            self.answer(0, "")
        for name in request["units"]:
            if verb == "enable":
                supervisor.enable(name, self, now="now" in flags, is_quiet=is_quiet)
            elif verb == "disable":
                supervisor.disable(name, self, is_quiet=is_quiet)
            elif verb == "reset-failed":
                supervisor.reset_failed(name, self)
            elif verb != "daemon-reload":
                supervisor.job(verb, name, self)
