"""The values of a plan: what an acting verb can do, what the node has, what it should have."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.files import Owned
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Change


class Kind(enum.Enum):
    """The closed set of what an acting verb can do to a node's files and units."""

    PROGRAM = "write the program"
    LINK = "point the link at the program"
    WRITE = "write a file"
    ADD_USER = "add the system user"
    RELOAD = "have the service manager read its units again"
    PREPARE = "prepare the directories"
    ENABLE = "enable a unit"
    START = "start a unit"
    PERCENTAGE = "set the default thread percentage"
    MEMORY = "set the default memory limits"
    PRIORITY = "set the default priority of clients"
    COMPUTE_MODE = "set a compute mode"
    STOP = "stop a daemon"
    DISABLE = "disable a unit"
    REMOVE = "remove a file"
    CLEAR = "remove a pipe directory"
    UNINSTALL = "remove the program"


class Action(NamedTuple):
    """One step, with what a person reads about it."""

    kind: Kind
    change: Change
    path: str = ""  # the file or directory it is about
    content: bytes = b""
    mode: int = 0
    instance: Instance | None = None
    unit: str = ""  # the unit it is about
    gpu: str = ""  # the GPU (UUID) it is about
    word: str = ""  # the value to set


class UnitState(NamedTuple):
    """What the service manager says about one of our units."""

    unit: str
    load: str  # "loaded" | "not-found" | ...
    active: str  # "active" | "inactive" | "failed" | "activating" | ...
    enabled: str  # "enabled" | "disabled" | ""
    main_pid: int
    stale: bool  # its file changed since it was read

    @property
    def runs(self) -> bool:
        """Whether it has a daemon, or is getting one or losing it."""
        return self.active not in ("inactive", "failed", "")


class Installed(NamedTuple):
    """What is on the node of what mpsfleet owns."""

    contents: tuple[tuple[str, bytes | None], ...]  # by path; None where the file is not there
    program: bool  # this very program is installed
    link: str | None  # where /usr/sbin/mpsfleet points
    user: bool  # the system user exists
    units: tuple[UnitState, ...]  # every unit of ours that the node has or should have
    booted: bool = True  # systemd runs; not so in an image
    modes: tuple[tuple[str, int], ...] = ()  # by path, of the files that are there; -1 of one that is not root's

    def has(self, wanted: Owned) -> bool:
        """Return whether a file is there with its content and its mode, and is root's."""
        mode = dict(self.modes).get(wanted.path, wanted.mode)
        return self.content(wanted.path) == wanted.content and mode == wanted.mode

    def content(self, path: str) -> bytes | None:
        """Return the content of one file."""
        return dict(self.contents).get(path)

    def unit(self, name: str) -> UnitState:
        """Return the state of a unit."""
        return next((each for each in self.units if each.unit == name), UnitState(name, "", "inactive", "", 0, False))


class Wanted(NamedTuple):
    """What the node should have."""

    desired: Desired
    files: tuple[Owned, ...]
    program: str  # path of this program
    instances: tuple[Instance, ...]
    extra_units: tuple[str, ...] = ()  # to be enabled beside the daemons'
    restored: tuple[Card, ...] = ()  # GPUs whose compute mode of before is to be put back
    abandoned: tuple[str, ...] = ()  # pipe directories of ours that no instance has any more
