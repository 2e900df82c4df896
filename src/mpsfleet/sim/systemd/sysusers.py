"""The simulated systemd-sysusers: adds the users of a sysusers.d(5) file to the node's own /etc/passwd."""

from __future__ import annotations

import shlex
import sys

from mpsfleet.sim.place import Place, locked

_FIRST = 999  # system users get the highest free number below 1000


def main(argv: list[str]) -> int:
    """Read the files named after the node's root and add what is missing; 1 where a file cannot be read."""
    place = Place(argv[0])
    rc = 0
    for name in argv[1:]:
        try:
            with open(place.path(name), encoding="utf-8") as stream:
                text = stream.read()
        except OSError as error:
            sys.stderr.write(f"Failed to open '{name}', ignoring: {error.strerror}\n")
            rc = 1
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["u"]:
                _add(place, words)
    return rc


def _add(place: Place, words: list[str]) -> None:
    path = place.path("/etc/passwd")
    with locked(place), open(path, "r+", encoding="utf-8") as stream:
        lines = [line.split(":") for line in stream.read().splitlines()]
        if any(line[0] == words[1] for line in lines):
            return
        used = {line[2] for line in lines}
        number = next(each for each in range(_FIRST, 100, -1) if str(each) not in used)
        comment, home, shell = (*words[3:], "", "/", "/usr/sbin/nologin")[:3]
        stream.write(f"{words[1]}:x:{number}:{number}:{comment}:{home}:{shell}\n")
        sys.stdout.write(f"Creating user '{words[1]}' ({comment}) with UID {number} and GID {number}.\n")
