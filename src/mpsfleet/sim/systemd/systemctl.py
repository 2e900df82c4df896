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
from mpsfleet.sim.systemd.unit_file import file_state

_ASKED = ("start", "stop", "restart", "try-restart", "enable", "disable", "daemon-reload", "reset-failed")
_CUT = "Warning! D-Bus connection terminated.\nFailed to wait for response: Connection reset by peer\n"
_WAIT_S = 300.0
_INACTIVE = 3  # systemctl(1): unit is not active
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
            wanted += next(words, "").split(",")
        elif word.startswith("--property="):
            wanted += word.partition("=")[2].split(",")
        elif word.startswith("-"):
            flags.add(word.lstrip("-"))
        else:
            plain.append(word)
    units = tuple(each if "." in each else f"{each}.service" for each in plain[1:])
    return Words(plain[0] if plain else "list-units", units, tuple(wanted), frozenset(flags))


def _show(place: Place, words: Words) -> int:
    for name in words.units:
        found = state.properties(place, state.look(place, name))
        for key, value in found.items():
            if not words.properties or key in words.properties:
                sys.stdout.write(f"{value}\n" if "value" in words.flags else f"{key}={value}\n")
    return 0


def _is(place: Place, words: Words) -> int:
    wanted = {"is-active": ("active", "reloading"), "is-failed": ("failed",)}[words.verb]
    found = [state.look(place, name).active for name in words.units]
    if not words.flags & {"q", "quiet"}:
        sys.stdout.write("".join(f"{each}\n" for each in found))
    return 0 if any(each in wanted for each in found) else (_INACTIVE if words.verb == "is-active" else 1)


def _is_enabled(place: Place, words: Words) -> int:
    rc = 1
    for name in words.units:
        found = file_state(place, name)
        if found:
            sys.stdout.write(f"{found}\n")
            rc = 0 if found in ("enabled", "static") else rc
        else:
            sys.stderr.write(f"Failed to get unit file state for {name}: No such file or directory\n")
    return rc


def _status(place: Place, words: Words) -> int:
    rc = 0
    for name in words.units:
        unit = state.look(place, name)
        if unit.load != "loaded" and unit.active == "inactive":
            sys.stderr.write(f"Unit {name} could not be found.\n")
            return 4
        sys.stdout.write(f"{_DOTS.get(unit.active, '○')} {name}\n")
        sys.stdout.write(f"     Loaded: {unit.load} (/etc/systemd/system/{name}; {file_state(place, name)})\n")
        why = f"Result: {unit.result}" if unit.active == "failed" else unit.sub
        sys.stdout.write(f"     Active: {unit.active} ({why})\n")
        sys.stdout.write(f"   Main PID: {unit.main_pid}\n" if unit.main_pid else "")
        rc = rc if unit.active == "active" else _INACTIVE
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
