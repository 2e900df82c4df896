"""What the simulated systemd knows of each unit, as the supervisor writes it and systemctl reads it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from mpsfleet.sim import processes
from mpsfleet.sim.place import read_json, write_json
from mpsfleet.sim.systemd.install import file_state
from mpsfleet.sim.systemd.unit_file import on_disk

if TYPE_CHECKING:
    from mpsfleet.sim.place import Place

FILE = "units.json"
SOCKET = "systemd.sock"


@dataclass
class UnitState:
    """One unit. `load`, `active`, `sub` and `result` are systemd's own words."""

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    main_pid: int = 0
    main_start: int = 0  # proc(5), field 22
    restarts: int = 0
    path: str = ""  # of the unit file as it was loaded, inside the node
    text: str = ""
    mtime_ns: int = 0
    file_state: str = ""  # systemd remembers it, too: a link that is removed by hand is noticed at a daemon-reload
    starts: list[float] = field(default_factory=list)  # monotonic seconds, for the start limit

    def read(self, place: Place) -> None:
        """Load the unit's file as it is now."""
        found = on_disk(place, self.name)
        self.load = "not-found" if found is None else "loaded"
        self.file_state = file_state(place, self.name)
        if found is not None:
            self.path, self.text, self.mtime_ns = found

    @property
    def is_held(self) -> bool:
        """Whether systemd keeps the unit loaded: it is wanted, it does something, or it has failed."""
        return self.active != "inactive" or self.file_state == "enabled"


def known(place: Place) -> dict[str, UnitState]:
    """Return the units that are loaded, by name."""
    return {name: UnitState(**values) for name, values in read_json(place.state(FILE), {}).items()}


def keep(place: Place, units: dict[str, UnitState]) -> None:
    """Write what is known of the units."""
    write_json(place.state(FILE), {name: asdict(each) for name, each in units.items()})


def look(place: Place, name: str) -> UnitState:
    """Return a unit as `systemctl show` sees it: a unit that is not loaded is read for the occasion."""
    found = known(place).get(name)
    if found is None or not found.is_held:
        found = UnitState(name)
        found.read(place)
    return found


def is_stale(place: Place, unit: UnitState) -> bool:
    """Return whether the unit's file has changed since it was read."""
    try:
        return unit.load == "loaded" and os.stat(place.path(unit.path)).st_mtime_ns != unit.mtime_ns
    except FileNotFoundError:
        return True


def properties(place: Place, unit: UnitState) -> dict[str, str]:
    """Return the properties of `systemctl show`, in the order in which it prints them."""
    return {
        "MainPID": str(unit.main_pid),
        "Result": unit.result,
        "NRestarts": str(unit.restarts),
        "Id": unit.name,
        "LoadState": unit.load,
        "ActiveState": unit.active,
        "SubState": unit.sub,
        "UnitFileState": unit.file_state,
        "NeedDaemonReload": "yes" if is_stale(place, unit) else "no",
    }


def is_left_alone(place: Place) -> bool:
    """Return whether a unit should be looked after and nobody does: the supervisor was killed."""
    if not any(each.active in ("active", "activating", "deactivating") for each in known(place).values()):
        return False
    return not any(each.kind == "systemd" for each in processes.registered(place))
