"""The one door of a node: only this package spawns, signals, locks or writes.

`Host` says where the node lies: the real machine, or a simulated node under its own root whose processes belong to
`owner_uid` instead of root.
"""

from __future__ import annotations

from typing import NamedTuple


class Host(NamedTuple):
    """Where a node's files and processes are."""

    root: str = ""  # prefix of every path; "" on a real node
    proc: str = "/proc"
    owner_uid: int = 0  # whose files and daemons are trusted
    owner_gid: int = 0

    def path(self, path: str) -> str:
        """Return an absolute path of the node as a path of this machine."""
        return self.root + path
