"""Where things lie: the directory of a fleet, the roots of its nodes in it, and the state of each, kept as JSON.

A fleet is one directory F. Each node's root is F/NAME, the controller's F/ctl. What the simulator itself knows of a
node lies in F/NAME/sim: plain JSON files, read by anybody, written by rename under one lock per node.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROLLER = "ctl"
MARK = "fleet.json"  # the fleet is up while this file is there; every lasting process of it looks


class Place(NamedTuple):
    """A node or the controller of a fleet, by the path of its root on this machine."""

    root: str

    @property
    def fleet(self) -> str:
        """The directory of the fleet."""
        return os.path.dirname(self.root)

    @property
    def name(self) -> str:
        """The node's name."""
        return os.path.basename(self.root)

    @property
    def controller(self) -> Place:
        """The controller of the same fleet."""
        return Place(f"{self.fleet}/{CONTROLLER}")

    def path(self, path: str) -> str:
        """Return an absolute path of the node as one of this machine."""
        return self.root + path

    def state(self, name: str) -> str:
        """Return the path of one of the simulator's own files."""
        return f"{self.root}/sim/{name}"


def is_up(fleet: str) -> bool:
    """Return whether the fleet is there and not being taken down."""
    return os.path.exists(f"{fleet}/{MARK}")


def read_json(path: str, default: Any) -> Any:  # noqa: ANN401  # what the file holds
    """Return what a state file holds, or `default` where it does not exist."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return default


def write_json(path: str, value: Any) -> None:  # noqa: ANN401  # what the file is to hold
    """Replace a state file in one step: a reader sees the old or the new, whoever is killed when."""
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1)
    os.rename(partial, path)


@contextlib.contextmanager
def locked(place: Place, name: str = "lock") -> Iterator[None]:
    """Hold one of a node's locks; it ends with its process, however that ends."""
    fd = os.open(place.state(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
