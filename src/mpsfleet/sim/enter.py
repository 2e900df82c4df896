"""Running a command with a node's tools: its own programs first on PATH, and `mpsfleet` as the node's own."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, UsageError
from mpsfleet.sim import interpreter, mps

if TYPE_CHECKING:
    from typing import NoReturn

    from mpsfleet.sim.place import Place

_LINK = "/usr/sbin/mpsfleet"


def become(place: Place, argv: list[str], user: str = "root") -> NoReturn:
    """Replace this process by the command. MpsfleetError where there is none of that name."""
    argv = argv[1:] if argv[:1] == ["--"] else argv
    if not argv:
        raise UsageError("mpsfleet sim exec: name a command, for example `mpsfleet sim exec n1 mpsfleet node audit`")
    environment = {**surroundings(place, dict(os.environ)), **_declared(place, user)}
    command = command_of(place, argv)
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        raise MpsfleetError(f"{place.name} has no program {command[0]}")
    sys.stdout.flush()
    os.execve(program, command, environment)  # noqa: S606  # no shell: the exit code is the command's own


def _declared(place: Place, user: str) -> dict[str, str]:
    if user == "root":
        return {}
    with open(place.path("/etc/passwd"), encoding="utf-8") as stream:
        known = {words[0]: words[2] for line in stream if len(words := line.split(":")) > 2}  # noqa: PLR2004  # the uid
    if user not in known:
        raise MpsfleetError(f"{place.name} has no user {user}: it has {', '.join(known)}")
    return mps.as_user(int(known[user]))


def command_of(place: Place, argv: list[str]) -> list[str]:
    """Return the command as one of this machine: the node's own mpsfleet, and this one where it has none."""
    if argv[0] not in ("mpsfleet", _LINK):
        return argv
    link = place.path(_LINK)
    if os.path.islink(link):
        installed = place.path(os.readlink(link))
        return [interpreter.path(place.fleet), interpreter.OPTIONS, installed, "--root", place.root, *argv[1:]]
    return [sys.executable, "-m", "mpsfleet", "--root", place.root, *argv[1:]]


def surroundings(place: Place, environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the node's tools in front and its directories as MPS's default ones."""
    folders = (place.path("/usr/sbin"), place.path("/usr/bin"), environment.get("PATH", os.defpath))
    return {**environment, "PATH": os.pathsep.join(folders), "SLURMD_NODENAME": place.name}
