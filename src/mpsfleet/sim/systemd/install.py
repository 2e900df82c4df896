"""Enabling and disabling units: the links in multi-user.target.wants, and systemctl's words about them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.sim.systemd.names import is_template, template_of
from mpsfleet.sim.systemd.unit_file import WANTS, fragment, is_installable, wanted_link

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place

_NOTHING_TO_INSTALL = """\
The unit files have no installation config (WantedBy=, RequiredBy=, Also=,
Alias= settings in the [Install] section, and DefaultInstance= for template
units). This means they are not meant to be enabled using systemctl.
"""  # the first of two paragraphs


class Outcome(NamedTuple):
    """How it went: systemctl's exit code, and what it writes to standard error."""

    rc: int
    words: str = ""


def enable(place: Place, names: list[str]) -> Outcome:
    """Link units into multi-user.target: all of them, or none where one cannot be."""
    files = {name: fragment(place, name) for name in names}
    wanted = [name for name in files if is_installable(place, name)]
    for name, path in files.items():
        if not path:
            return Outcome(1, f"Failed to enable unit: Unit file {name} does not exist.\n")
        if name in wanted and is_template(name):
            return Outcome(1, "Failed to enable unit: Destination unit multi-user.target is a non-template unit.\n")
    if not wanted:
        return Outcome(0, _NOTHING_TO_INSTALL)
    return Outcome(0, "".join(_link(place, name, files[name]) for name in wanted))


def _link(place: Place, name: str, path: str) -> str:
    link, words = wanted_link(place, name), ""
    if os.path.lexists(link):
        if os.readlink(link) == path:
            return ""
        words = _remove(place, name)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(path, link)
    return f"{words}Created symlink {WANTS}/{name} → {path}.\n"


def disable(place: Place, names: list[str]) -> Outcome:
    """Remove the links of units, and of all instances of a template; also of those whose file has gone.

    That a unit does not exist is told only where there was no link to remove at all.
    """
    linked = enabled(place)
    marked = sorted({each for each in linked if each in names or template_of(each) in names})
    missing = [name for name in names if not fragment(place, name)]
    if missing and not marked:
        return Outcome(1, f"Failed to disable unit: Unit file {missing[0]} does not exist.\n")
    return Outcome(0, "".join(_remove(place, name) for name in marked))


def _remove(place: Place, name: str) -> str:
    os.unlink(wanted_link(place, name))
    return f'Removed "{WANTS}/{name}".\n'


def enabled(place: Place) -> list[str]:
    """Return the units that multi-user.target wants, by their links."""
    folder = place.path(WANTS)
    return os.listdir(folder) if os.path.isdir(folder) else []


def file_state(place: Place, name: str) -> str:
    """Return what `systemctl is-enabled` says now; "" where the unit has no file."""
    if not fragment(place, name):
        return ""
    if not is_installable(place, name):
        return "static"
    if is_template(name):
        return "indirect" if any(template_of(each) == name for each in enabled(place)) else "disabled"
    return "enabled" if os.path.lexists(wanted_link(place, name)) else "disabled"
