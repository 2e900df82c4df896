"""Unit files, read as systemd.unit(5) and systemd.service(5) say, for the settings that the simulation honours."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.sim.systemd.names import expand, template_of

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place

DIRECTORY = "/etc/systemd/system"
WANTS = f"{DIRECTORY}/multi-user.target.wants"
_PREFIXES = "@-:+!"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h)?")
_SECONDS = {"ms": 0.001, None: 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


class Command(NamedTuple):
    """One Exec line: words, and whether its failure counts."""

    argv: tuple[str, ...]
    may_fail: bool


class Unit(NamedTuple):
    """A unit file's settings by section and key, as the unit `name` has them; a key given twice has both values."""

    name: str
    settings: tuple[tuple[str, str, str], ...]  # section, key, value

    def values(self, section: str, key: str) -> tuple[str, ...]:
        """Return all values of a key, specifiers expanded; an empty value forgets those before it."""
        return tuple(expand(each, self.name) for each in self._written(section, key))

    def _written(self, section: str, key: str) -> tuple[str, ...]:
        found: list[str] = []
        for each_section, each_key, value in self.settings:
            if (each_section, each_key) == (section, key):
                found = [*found, value] if value else []
        return tuple(found)

    def value(self, section: str, key: str, default: str) -> str:
        """Return the last value of a key."""
        return (self.values(section, key) or (default,))[-1]

    def seconds(self, section: str, key: str, default: float) -> float:
        """Return a time span in seconds, as systemd.time(7) writes them."""
        text = self.value(section, key, "")
        return sum(float(number) * _SECONDS[unit or None] for number, unit in _SPAN.findall(text)) if text else default

    def commands(self, key: str) -> tuple[Command, ...]:
        """Return the Exec lines of a key, their prefixes read: `-` counts, the others change nothing here."""
        return tuple(_command(line, self.name) for line in self._written("Service", key))


def _command(line: str, name: str) -> Command:
    """Read an Exec line; what a specifier stands for is never split into words."""
    bare = line.lstrip(_PREFIXES)
    prefix = line[: len(line) - len(bare)]
    return Command(tuple(expand(word, name) for word in shlex.split(bare)), "-" in prefix)


def parse(text: str, name: str) -> Unit:
    """Read the text of a unit's file; lines it does not understand are passed over, as systemd does with a warning."""
    section, settings = "", []
    for line in text.replace("\\\n", " ").splitlines():
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        if bare.startswith("["):
            section = bare.strip("[]")
        elif "=" in bare:
            key, _, value = bare.partition("=")
            settings.append((section, key.strip(), value.strip()))
    return Unit(name, tuple(settings))


class OnDisk(NamedTuple):
    """A unit's file as it lies there."""

    path: str  # inside the node
    text: str
    mtime_ns: int


def fragment(place: Place, name: str) -> str:
    """Return the path of the file that a unit is loaded from: its own, else its template's; "" where neither is."""
    paths = (f"{DIRECTORY}/{each}" for each in (name, template_of(name)) if each)
    return next((path for path in paths if os.path.isfile(place.path(path))), "")


def on_disk(place: Place, name: str) -> OnDisk | None:
    """Return the unit's file; None where there is none."""
    path = fragment(place, name)
    try:
        with open(place.path(path), encoding="utf-8") as stream:
            return OnDisk(path, stream.read(), os.fstat(stream.fileno()).st_mtime_ns)
    except OSError:  # also of the path "", which is a directory here
        return None


def is_installable(place: Place, name: str) -> bool:
    """Return whether a unit's file says what it is enabled for."""
    found = on_disk(place, name)
    return found is not None and bool(parse(found.text, name).values("Install", "WantedBy"))


def wanted_link(place: Place, name: str) -> str:
    """Return the path of the link that enables a unit for the usual target."""
    return place.path(f"{WANTS}/{name}")
