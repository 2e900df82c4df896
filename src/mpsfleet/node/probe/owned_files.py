"""The files that mpsfleet owns, compared with what the configuration asks for.

The comparison needs the whole table of files. So the marks of files that were found right (device, inode, size, times,
mode, owner) are kept beside the locks, with the configuration they are right for, and the next audit looks at marks
alone; the change time of a file cannot be set by whoever changes it.
"""

from __future__ import annotations

import json
import os
import stat

from mpsfleet import __version__
from mpsfleet.node.desired import CONFIG
from mpsfleet.node.files import LOGROTATE_PATH, PROGRAM_LINK, TMPFILES_PATH, UNIT_PATHS
from mpsfleet.node.host import files, locks
from mpsfleet.node.host_facts import Drift

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.files import Owned
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Unreadable

_KEPT = f"{locks.STATE}/files.json"
_CAP = 65536
_NULL = "/dev/null"


def are_deployed(host: Host) -> bool:
    """Tell whether a deploy has put files here, be some of them gone."""
    return any(files.exists(host.path(each)) for each in (TMPFILES_PATH, LOGROTATE_PATH, *UNIT_PATHS))


def drifts(host: Host, desired: Desired) -> tuple[Drift, ...] | Unreadable:
    """Return the files that are not as a deploy of this configuration leaves them."""
    if _are_as_kept(host, desired):
        return ()
    from mpsfleet.node import table  # all that mpsfleet writes; only where something changed

    wanted = tuple(each for each in table.wanted(desired, "", None) if each.path != CONFIG)
    found = (*(each for one in wanted if (each := _compare(host, one)) is not None), *_program(host))
    if not found:
        _keep(host, _marks(host, desired, (*(each.path for each in wanted), PROGRAM_LINK)))
    return found


def _compare(host: Host, wanted: Owned) -> Drift | None:
    path = host.path(wanted.path)
    try:
        now = os.lstat(path)
        if stat.S_ISLNK(now.st_mode) and files.link_target(path) == _NULL:
            return Drift(wanted.path, "masked")
        if not stat.S_ISREG(now.st_mode):
            return Drift(wanted.path, "no file")
        if now.st_uid != host.owner_uid:
            return Drift(wanted.path, "owner", str(now.st_uid))
        if now.st_size != len(wanted.content) or files.read(path) != wanted.content:
            return Drift(wanted.path, "content")
    except (FileNotFoundError, NotADirectoryError):
        return Drift(wanted.path, "missing")
    except OSError as error:
        return Drift(wanted.path, "unreadable", error.strerror or "")
    mode = stat.S_IMODE(now.st_mode)
    return None if mode == wanted.mode else Drift(wanted.path, "mode", f"{mode:04o}")


def _program(host: Host) -> tuple[Drift, ...]:
    target = files.link_target(host.path(PROGRAM_LINK))
    is_there = target is not None and files.executable(host.path(target))
    return () if is_there else (Drift(PROGRAM_LINK, "missing"),)


def _marks(host: Host, desired: Desired, paths: tuple[str, ...]) -> dict[str, object] | None:
    """Return what the files are now, in the form in which it is kept; None where one cannot be looked at."""
    marks: list[object] = []
    try:
        for each in paths:
            now = os.lstat(host.path(each))
            times = (now.st_mtime_ns, now.st_ctime_ns)
            marks.append([each, now.st_dev, now.st_ino, now.st_size, *times, now.st_mode, now.st_uid])
    except OSError:
        return None
    program = files.link_target(host.path(PROGRAM_LINK))
    # as JSON gives it back, in which a tuple is a list
    known: dict[str, object] = json.loads(json.dumps({"for": [__version__, program, desired], "files": marks}))
    return known


def _are_as_kept(host: Host, desired: Desired) -> bool:
    try:
        kept = json.loads(files.read(host.path(_KEPT), _CAP))
        return bool(kept == _marks(host, desired, tuple(each[0] for each in kept["files"])))
    except (OSError, ValueError, KeyError, TypeError, IndexError):  # nothing is lost: the files are read then
        return False


def _keep(host: Host, marks: dict[str, object] | None) -> None:
    if marks is None:
        return
    try:
        files.publish(os.path.join(locks.state_directory(host), "files.json"), json.dumps(marks).encode(), 0o600)
    except OSError:  # a read-only /run: the next reader compares again
        return
