"""Unit files, read as systemd.unit(5) and systemd.service(5) say, for the settings that the simulation honours."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place

DIRECTORY = "/etc/systemd/system"
_PREFIXES = "@-:+!"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h)?")
_SECONDS = {"ms": 0.001, None: 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


class Command(NamedTuple):
    """One Exec line: words, and whether its failure counts."""

    argv: tuple[str, ...]
    may_fail: bool


class Unit(NamedTuple):
    """A unit file's settings by section and key; a key given twice has both values."""

    settings: tuple[tuple[str, str, str], ...]  # section, key, value

    def values(self, section: str, key: str) -> tuple[str, ...]:
        """Return all values of a key; an empty value forgets those before it."""
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
        return tuple(_command(line) for line in self.values("Service", key))


def _command(line: str) -> Command:
    bare = line.lstrip(_PREFIXES)
    prefix = line[: len(line) - len(bare)]
    return Command(tuple(shlex.split(bare)), "-" in prefix)


def parse(text: str) -> Unit:
    """Read the text of a unit file; lines it does not understand are passed over, as systemd does with a warning."""
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
    return Unit(tuple(settings))


class OnDisk(NamedTuple):
    """A unit's file as it lies there."""

    text: str
    mtime_ns: int


def on_disk(place: Place, name: str) -> OnDisk | None:
    """Return the unit's file; None where there is none."""
    path = place.path(f"{DIRECTORY}/{name}")
    try:
        with open(path, encoding="utf-8") as stream:
            return OnDisk(stream.read(), os.fstat(stream.fileno()).st_mtime_ns)
    except OSError:
        return None


def wanted_link(place: Place, name: str) -> str:
    """Return the path of the link that enables a unit for the usual target."""
    return place.path(f"{DIRECTORY}/multi-user.target.wants/{name}")


def file_state(place: Place, name: str) -> str:
    """Return "enabled", "disabled", "static", or "" where there is no such file (UnitFileState of systemctl show)."""
    found = on_disk(place, name)
    if found is None:
        return ""
    if not parse(found.text).values("Install", "WantedBy"):
        return "static"
    return "enabled" if os.path.lexists(wanted_link(place, name)) else "disabled"
