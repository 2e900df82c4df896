"""The supervisor of a simulated node: the part of PID 1 that starts services and stays their parent.

It ends when its fleet is down, and takes what it started with it. Killed, it leaves its services running; the next
systemctl starts another, which adopts them.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket

from mpsfleet.sim import processes
from mpsfleet.sim.place import Place, is_up
from mpsfleet.sim.systemd import install, state
from mpsfleet.sim.systemd.loop import Loop
from mpsfleet.sim.systemd.names import is_template
from mpsfleet.sim.systemd.request import Request, carry_out
from mpsfleet.sim.systemd.service import Job, Service
from mpsfleet.sim.systemd.unit_file import fragment

_SLICE_S = 0.5
_REQUEST_S = 2.0
_CHANGED = (
    "Warning: The unit file, source configuration file or drop-ins of {0} changed on disk. "
    "Run 'systemctl daemon-reload' to reload units.\n"
)
_TEMPLATE = """\
Failed to {0} {1}: Unit name {1} is missing the instance name.
See system logs and 'systemctl status {1}' for details.
"""


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
            asked = json.loads(connection.makefile("rb").readline())
        except (OSError, ValueError):
            connection.close()
            return
        carry_out(self, connection, asked)

    def job(self, verb: str, name: str, request: Request) -> None:
        """Queue a job for a unit; answer at once where there is none to do."""
        if is_template(name):
            request.answer(1, _TEMPLATE.format(verb, name))
            return
        service = self._load(name)
        if service is None:
            words = {"stop": f"Failed to stop {name}: Unit {name} not loaded.\n"}
            request.answer(5, words.get(verb, f"Failed to {verb} {name}: Unit {name} not found.\n"))
            return
        if state.is_stale(self._place, service.state):
            request.warn(_CHANGED.format(name))
        if verb == "try-restart" and service.state.active != "active":
            request.answer(0, "")
            return
        self._loop.jobs[name].append(Job("restart" if verb == "try-restart" else verb, request.job_done))

    def _load(self, name: str) -> Service | None:
        """Return a unit, read now unless systemd has it loaded; None where there is none of that name."""
        unit = self._units.get(name)
        if unit is None or not unit.is_held or unit.load == "not-found":
            if not fragment(self._place, name) and (unit is None or unit.active == "inactive"):
                return None
            self._service(name).state.read(self._place)
        return self._service(name)

    def install(self, request: Request, names: list[str], *, is_on: bool, is_now: bool, is_quiet: bool) -> None:
        """Enable units, or disable them, and read all units again; then start or stop them where that is asked for."""
        done = (install.enable if is_on else install.disable)(self._place, names)
        if done.rc == 0:
            self.reload()
        if done.rc or not is_quiet:
            request.warn(done.words)
        for name in names:
            if is_now and done.rc == 0:
                self.job("start" if is_on else "stop", name, request)
            else:
                request.answer(done.rc, "")

    def reset_failed(self, name: str, request: Request) -> None:
        """Forget that a unit failed, and its starts."""
        unit = self._units.get(name)
        if unit is None or not unit.is_held:
            request.answer(1, f"Failed to reset failed state of unit {name}: Unit {name} not loaded.\n")
            return
        unit.starts, unit.result = [], "success"
        if unit.active == "failed":
            unit.active, unit.sub = "inactive", "dead"
        self._keep()
        request.answer(0, "")

    def failed(self) -> list[str]:
        """Return the units that have failed."""
        return [name for name, each in self._units.items() if each.active == "failed"]

    def reload(self) -> None:
        """Read all units again: those that are enabled, and those that run or have failed."""
        for name in {*self._units, *install.enabled(self._place)}:
            self._service(name).state.read(self._place)
        self._keep()
