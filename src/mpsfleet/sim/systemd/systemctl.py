"""The simulated systemctl: reads the units' state itself, and has the supervisor carry out all else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import NamedTuple

from mpsfleet.sim import interpreter
from mpsfleet.sim.place import Place, is_up, locked
from mpsfleet.sim.systemd import state
from mpsfleet.sim.systemd.install import file_state
from mpsfleet.sim.systemd.names import is_template

_ASKED = ("start", "stop", "restart", "try-restart", "enable", "disable", "daemon-reload", "reset-failed")
_NEED_UNITS = ("start", "stop", "restart", "try-restart", "enable", "disable", "is-enabled", "is-active", "is-failed")
_ON = ("enabled", "static", "indirect")  # systemctl(1): is-enabled returns 0
_CUT = "Warning! D-Bus connection terminated.\nFailed to wait for response: Connection reset by peer\n"
_WAIT_S = 300.0
_INACTIVE, _NO_UNIT = 3, 4  # systemctl(1): unit is not active; no such unit
_QUIET = frozenset(("q", "quiet"))
_DOTS = {"failed": "×", "active": "●"}  # noqa: RUF001  # systemd's own sign
_GONE = "Failed to connect to bus: Connection refused\n"


class Words(NamedTuple):
    """A command line, read."""

    verb: str
    units: tuple[str, ...]
    properties: tuple[str, ...]
    flags: frozenset[str]


def main(argv: list[str]) -> int:
    """Run one command: the first word is the node's root, the rest systemctl's own. Exit codes are systemd's."""
    place, words = Place(argv[0]), read(argv[1:])
    if words.verb in _NEED_UNITS and not words.units:
        sys.stderr.write("Too few arguments.\n")
        return 1
    if words.verb == "daemon-reload" and words.units:
        sys.stderr.write("Too many arguments.\n")
        return 1
    if words.verb in _ASKED:
        return _ask(place, words)
    if state.is_left_alone(place):
        _supervisor(place).close()
    if words.verb == "show":
        return _show(place, words)
    if words.verb in ("is-active", "is-failed"):
        return _is(place, words)
    if words.verb == "is-enabled":
        return _is_enabled(place, words)
    if words.verb == "status":
        return _status(place, words)
    if words.verb == "is-system-running":
        sys.stdout.write("running\n")
        return 0
    sys.stderr.write(f"Unknown command verb {words.verb}.\n")
    return 1


def read(argv: list[str]) -> Words:
    """Read a command line of systemctl; a unit without a suffix is a service."""
    plain: list[str] = []
    wanted: list[str] = []
    flags = set()
    words = iter(argv)
    for word in words:
        if word in ("-p", "--property", "-P"):
            flags |= {"value"} if word == "-P" else set()
            wanted += next(words, "").split(",")
        elif word.startswith("--property="):
            wanted += word.partition("=")[2].split(",")
        elif word.startswith("-"):
            flags.add(word.lstrip("-"))
        else:
            plain.append(word)
    units = tuple(each if "." in each else f"{each}.service" for each in plain[1:])
    return Words(plain[0] if plain else "list-units", units, tuple(wanted), frozenset(flags))


def _is_no_unit(name: str, failed_to: str) -> bool:
    """Say so of a template, which has no state: systemctl then stops."""
    if is_template(name):
        sys.stderr.write(f"Failed to {failed_to}: Unit name {name} is neither a valid invocation ID nor unit name.\n")
    return is_template(name)


def _show(place: Place, words: Words) -> int:
    """Print one block for each unit, whether there is such a unit or not, with an empty line between two."""
    for position, name in enumerate(words.units):
        if _is_no_unit(name, "get properties"):
            return 1
        sys.stdout.write("\n" if position else "")
        found = state.properties(place, state.look(place, name))
        for key, value in found.items():
            if not words.properties or key in words.properties:
                sys.stdout.write(f"{value}\n" if "value" in words.flags else f"{key}={value}\n")
    return 0


def _is(place: Place, words: Words) -> int:
    wanted = {"is-active": ("active", "reloading"), "is-failed": ("failed",)}[words.verb]
    rc = _INACTIVE if words.verb == "is-active" else 1
    for name in words.units:
        if _is_no_unit(name, "retrieve unit state"):
            return 1
        found = state.look(place, name).active
        sys.stdout.write("" if words.flags & _QUIET else f"{found}\n")
        rc = 0 if found in wanted else rc
    return rc


def _is_enabled(place: Place, words: Words) -> int:
    rc = 1
    for name in words.units:
        found = file_state(place, name)
        if not found:
            sys.stderr.write(f"Failed to get unit file state for {name}: No such file or directory\n")
            return 1
        sys.stdout.write("" if words.flags & _QUIET else f"{found}\n")
        rc = 0 if found in _ON else rc
    return rc


def _status(place: Place, words: Words) -> int:
    rc, before = 0, ""
    for name in words.units:
        if _is_no_unit(name, "get properties"):
            return 1
        unit = state.look(place, name)
        if unit.load != "loaded" and unit.active == "inactive":
            sys.stderr.write(f"Unit {name} could not be found.\n")
            rc = rc or _NO_UNIT
            continue
        sys.stdout.write(f"{before}{_DOTS.get(unit.active, '○')} {name}\n")
        sys.stdout.write(f"     Loaded: {unit.load} ({unit.path}; {unit.file_state})\n")
        why = f"Result: {unit.result}" if unit.active == "failed" else unit.sub
        sys.stdout.write(f"     Active: {unit.active} ({why})\n")
        sys.stdout.write(f"   Main PID: {unit.main_pid}\n" if unit.main_pid else "")
        rc, before = rc or (0 if unit.active == "active" else _INACTIVE), "\n"
    return rc


def _ask(place: Place, words: Words) -> int:
    """Send the command to the supervisor, starting it where it does not run, and print what it answers."""
    if not is_up(place.fleet):
        sys.stderr.write(_GONE)
        return 1
    request = json.dumps({"verb": words.verb, "units": words.units, "flags": sorted(words.flags)})
    try:
        with _supervisor(place) as connection:
            connection.settimeout(_WAIT_S)
            connection.sendall(f"{request}\n".encode())
            if "no-block" in words.flags:
                return 0
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline() or b"{}")
    except (OSError, ValueError):
        answer = {}
    if not answer:
        sys.stderr.write(_CUT)
        return 1
    sys.stderr.write(answer["err"])
    return int(answer["rc"])


def _supervisor(place: Place) -> socket.socket:
    """Return a connection to the node's supervisor."""
    connection = socket.socket(socket.AF_UNIX)
    path = place.state(state.SOCKET)
    try:
        connection.connect(path)
    except OSError:
        with locked(place, "systemd.lock"):
            try:
                connection.connect(path)
            except OSError:
                _start_supervisor(place, path)
                connection.connect(path)
    return connection


def _start_supervisor(place: Place, path: str) -> None:
    """Start the supervisor on a socket that already listens, so nobody has to wait for it."""
    with socket.socket(socket.AF_UNIX) as listener:
        fresh = f"{path}.new"
        if os.path.lexists(fresh):
            os.unlink(fresh)
        listener.bind(fresh)
        listener.listen(32)
        os.rename(fresh, path)
        code = (
            f"import sys; sys.path.insert(0, {interpreter.package_parent()!r}); "
            f"from mpsfleet.sim.systemd.supervisor import main; main({place.root!r}, {listener.fileno()})"
        )
        with open(place.path("/var/log/systemd.log"), "ab") as journal:
            subprocess.Popen(
                (interpreter.path(place.fleet, "systemd"), interpreter.OPTIONS, "-c", code),
                stdin=subprocess.DEVNULL,
                stdout=journal,
                stderr=journal,
                env={},
                cwd="/",
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
