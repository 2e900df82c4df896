"""The table of all that mpsfleet owns on a node: deploy writes it, remove takes it away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node import extras, files, hook_files

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.files import Owned


def wanted(desired: Desired, config_text: str, record: str | None) -> tuple[Owned, ...]:
    """Return the files of a node, in the order in which they are written.

    `record` is the content of the record of GPUs; None leaves that file as it is.
    """
    return (*files.table(desired, config_text, record), *hook_files.owned(), *extras.owned(desired))


def every_path() -> tuple[str, ...]:
    """Return the paths of all files that any configuration puts on a node."""
    return (*files.every_path(), *(each.path for each in hook_files.owned()), *extras.every_path())
