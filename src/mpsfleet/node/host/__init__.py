"""The one door of a node: only this package spawns, signals, locks or writes.

`Host` says where the node lies: the real machine, or a simulated node under its own root whose processes belong to
`owner_uid` instead of root.
"""

from __future__ import annotations

import os

from mpsfleet.tuples import NamedTuple


class Host(NamedTuple):
    """Where a node's files and processes are."""

    root: str = ""  # prefix of every path; "" on a real node
    proc: str = "/proc"
    owner_uid: int = 0  # whose files and daemons are trusted
    owner_gid: int = 0

    @classmethod
    def at(cls, root: str) -> Host:
        """Return the node under `root` ("" is this machine). Under a root, its owner is whoever runs this.

        Its processes are those listed under its own /proc: none in an image, the registered ones in a simulated node.
        """
        return cls(root, f"{root}/proc", os.geteuid(), os.getegid()) if root else cls()

    def path(self, path: str) -> str:
        """Return an absolute path of the node as a path of this machine."""
        return self.root + path
