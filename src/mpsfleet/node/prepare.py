"""Prepare: the only code that makes or cleans a pipe or log directory.

Root's control daemon opens what lies in its directories without care, so nobody else may be able to put anything there.
Each directory is reached from `/` by descriptors, no link followed; it is taken from users *before* it is cleaned; a
name that is somebody else's is exchanged in one step for a fresh directory of root's, and the foreign one set aside.
Used by deploy, by the unit before each start and by reset. It never touches the files of a daemon that runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, Refused
from mpsfleet.node.desired import DEFAULT_DIRECTORY
from mpsfleet.node.host import files, locks
from mpsfleet.node.judge.directories import MODE, SYSTEM_GIDS
from mpsfleet.node.model import Change, Unreadable
from mpsfleet.node.probe import mps, procfs
from mpsfleet.node.probe.directories import kind, look

if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance

_DAEMON_FILES = ("control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid")
_PRECREATED = ("control_lock", "nvidia-cuda-mps-control.pid")  # else the daemon makes them for everybody to lock
_LOGS = ("control.log", "server.log")
_LOG_CAP = 16 << 20  # bytes; a larger log is set aside at the next start
_TRIES = 3  # that changed something: each may leave a foreign name aside
_LOST_RACES = 2000  # that changed nothing: the name went away or came between two steps
_MOST_TOLD = 20  # names that are not MPS's, told one by one
OWN_PARENT = "/run/nvidia-mps"  # made by mpsfleet alone, so its mode is put right; no other parent's is touched
_LOCK_WAIT_S = 20.0


def prepare(host: Host, wanted: tuple[Instance, ...]) -> tuple[Change, ...]:
    """Bring the directories of the instances into the state a start needs and return what was done.

    NVIDIA's default directory is taken too where it is no instance's: every CUDA program that is told no other looks
    there first, so whoever owned it would stop them all.

    Refused when a directory above cannot be trusted; MpsfleetError when somebody keeps taking the name away.
    """
    with locks.held(host, "prepare", _LOCK_WAIT_S):
        changes: tuple[Change, ...] = ()
        for each in wanted:
            changes += _take(host, each.pipe_directory, _clean_pipe) + _take(host, each.log_directory, _clean_log)
        if DEFAULT_DIRECTORY not in {each.pipe_directory for each in wanted}:
            changes += _guard(host)
        return changes


def one(host: Host, wanted: tuple[Instance, ...], path: str) -> tuple[Change, ...]:
    """Bring one directory into that state: a pipe or log directory of the instances, or NVIDIA's own."""
    with locks.held(host, "prepare", _LOCK_WAIT_S):
        if any(each.log_directory == path for each in wanted):
            return _take(host, path, _clean_log)
        if any(each.pipe_directory == path for each in wanted):
            return _take(host, path, _clean_pipe)
        return _guard(host)


def _guard(host: Host) -> tuple[Change, ...]:
    """Own NVIDIA's default directory, and leave it empty; a daemon that serves it is somebody's and is left alone."""
    pipe, fd = look(host, DEFAULT_DIRECTORY)
    if fd >= 0:
        try:
            if is_in_use(host, fd):
                detail = f"a control daemon of user {pipe.uid} serves it"
                return () if pipe.uid == host.owner_uid else (Change(DEFAULT_DIRECTORY, "leave", detail),)
        finally:
            os.close(fd)
    return _take(host, DEFAULT_DIRECTORY, _clean_default)


def is_in_use(host: Host, directory_fd: int) -> bool:
    """Tell whether somebody listens on the sockets of a pipe directory, or root's daemon holds its lock."""
    peers = (mps.peer(host, directory_fd, name).outcome for name in ("control", "control_privileged"))
    return any(each in ("listening", "busy") for each in peers) or bool(users_of(host, directory_fd))


def _clean_default(_host: Host, path: str, fd: int) -> tuple[Change, ...]:
    changes = []
    for name in _DAEMON_FILES:
        now = files.look(fd, name)
        if now is not None and not stat.S_ISDIR(now.st_mode):
            files.unlink(fd, name)
            changes.append(Change(f"{path}/{name}", "remove", f"left-over {kind(now.st_mode)} of user {now.st_uid}"))
    return (*changes, *_foreign(path, fd))


def check(host: Host, instance: Instance) -> None:
    """Refuse now what `prepare` would refuse later, before anything is ended. Changes nothing but missing parents."""
    for path in (instance.pipe_directory, instance.log_directory):
        os.close(_walk(host, os.path.dirname(path)))
    pipe, fd = look(host, instance.pipe_directory)
    if fd >= 0:
        os.close(fd)
    for each in pipe.parents:
        if not each.mode & stat.S_IXOTH:
            raise Refused(
                f"{each.path} has mode {each.mode:04o}: users cannot pass it; chmod it to 0755, then run again"
            )


def _take(host: Host, path: str, clean: _Clean) -> tuple[Change, ...]:
    """Walk to `path`, make it root's own, then clean it."""
    at = _walk(host, os.path.dirname(path))
    try:
        changes: tuple[Change, ...] = ()
        tries = lost = 0
        while tries < _TRIES and lost < _LOST_RACES:
            fd, more = _own(host, at, path)
            changes += more
            tries, lost = (tries + 1, lost) if more else (tries, lost + 1)
            if fd >= 0:
                try:
                    return changes + clean(host, path, fd)
                finally:
                    os.close(fd)
        raise MpsfleetError(
            f"{path} could not be taken: somebody keeps replacing it; find who writes in {os.path.dirname(path)}"
        )
    finally:
        os.close(at)


def _walk(host: Host, path: str) -> int:
    """Open the directory `path`, making what is missing; every step must be root's and nobody else's to change."""
    fd = files.open_root(host.root)
    walked = ""
    try:
        for part in path.split("/")[1:]:
            _trusted(host, fd, walked or "/")
            walked += "/" + part
            if files.look(fd, part) is None:
                with contextlib.suppress(FileExistsError):
                    files.make_directory(fd, part)
            inner = files.open_directory(fd, part)
            os.close(fd)
            fd = inner
            if walked == OWN_PARENT and os.fstat(fd).st_uid == host.owner_uid:
                files.own_directory(fd, host.owner_uid, host.owner_gid, MODE)
        _trusted(host, fd, walked or "/")
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Refused(f"{walked} is a link or no directory; name the real path, or give it back to root") from None
        raise MpsfleetError(f"{walked} cannot be opened: {error.strerror}") from None
    except Refused:
        os.close(fd)
        raise
    return fd


def _trusted(host: Host, fd: int, path: str) -> None:
    now = os.fstat(fd)
    mode = stat.S_IMODE(now.st_mode)
    by_group = mode & stat.S_IWGRP and now.st_gid >= SYSTEM_GIDS
    if now.st_uid not in (0, host.owner_uid):
        raise Refused(f"{path} belongs to user {now.st_uid}; give it back to root, then run again")
    if (mode & stat.S_IWOTH or by_group) and not mode & stat.S_ISVTX:
        raise Refused(
            f"{path} has mode {mode:04o}: others can replace what lies in it; chmod it to 0755, then run again"
        )


def _own(host: Host, at: int, path: str) -> tuple[int, tuple[Change, ...]]:
    """Return a descriptor of root's own directory at `path`, or -1 when somebody was quicker; and what was done."""
    name = os.path.basename(path)
    try:
        fd = files.open_directory(at, name)
    except FileNotFoundError:
        try:
            files.make_directory(at, name, MODE)
        except FileExistsError:
            return -1, ()
        return files.open_directory(at, name), (Change(path, "create", "directory root:root 0755"),)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return -1, _exchange(at, path, "is not a directory")
        raise MpsfleetError(f"{path} cannot be opened: {error.strerror}") from None
    now = os.fstat(fd)
    if now.st_dev != os.fstat(at).st_dev:
        os.close(fd)
        raise Refused(f"{path} is a mount point; mount above it, or choose a directory inside it")
    if now.st_uid != host.owner_uid:
        os.close(fd)
        return -1, _exchange(at, path, f"belongs to user {now.st_uid}")
    before = stat.S_IMODE(now.st_mode)
    if files.own_directory(fd, host.owner_uid, host.owner_gid, MODE):
        return fd, (Change(path, "chmod", f"{before:04o} → 0755, root:root, before anything in it is touched"),)
    return fd, ()


def _exchange(at: int, path: str, why: str) -> tuple[Change, ...]:
    """Put a fresh directory of root's in the place of a foreign name, in one step, and set the foreign one aside."""
    name = os.path.basename(path)
    fresh = files.temporary_directory(at, name)
    try:
        swapped = files.exchange(at, fresh, name)
    except FileNotFoundError:  # the foreign name went away
        files.remove_directory(at, fresh)
        return ()
    if not swapped:  # an old kernel or file system: two steps, and the caller looks again
        files.remove_directory(at, fresh)
        try:
            aside = files.set_aside(at, name, "foreign")
        except FileNotFoundError:
            return ()
        return (Change(path, "set aside", f"it {why}; now {os.path.join(os.path.dirname(path), aside)}"),)
    return (Change(path, "replace", f"it {why}: {_discard(at, fresh, path)}, a directory of root's put there"),)


def _discard(at: int, foreign: str, path: str) -> str:
    """Remove what was exchanged away, or leave it beside under a plain name; its owner may still be moving it."""
    try:
        now = files.look(at, foreign)
        if now is not None and not stat.S_ISDIR(now.st_mode):
            files.unlink(at, foreign)  # the link or file itself; what it pointed to is not touched
            return f"the {kind(now.st_mode)} was removed"
        if now is None or files.remove_directory(at, foreign):
            return "an empty directory was removed"
        aside = files.set_aside(at, foreign, "foreign")
    except OSError as error:
        return f"what was there is left as {foreign} ({error.strerror})"
    return f"set aside as {os.path.join(os.path.dirname(path), aside)}"


def clear(host: Host, path: str) -> tuple[Change, ...]:
    """Take a pipe directory of root's away again: the daemon's left-over files, then the directory if nothing is left.

    Refused while a daemon serves it. Nothing happens when the name is not a directory of root's.
    """
    with locks.held(host, "prepare", _LOCK_WAIT_S):
        at = _walk(host, os.path.dirname(path))
        try:
            try:
                fd = files.open_directory(at, os.path.basename(path))
            except OSError:
                return ()
            try:
                return _clear(host, path, fd, at)
            finally:
                os.close(fd)
        finally:
            os.close(at)


def _clear(host: Host, path: str, fd: int, at: int) -> tuple[Change, ...]:
    users = users_of(host, fd)
    if users:
        raise Refused(f"{path} is in use by a control daemon; stop it first")
    if os.fstat(fd).st_uid != host.owner_uid:
        return ()
    for name in _DAEMON_FILES:
        now = files.look(fd, name)
        if now is not None and not stat.S_ISDIR(now.st_mode):
            files.unlink(fd, name)
    if files.remove_directory(at, os.path.basename(path)):
        return (Change(path, "remove", "with the daemon's left-over files"),)
    return (Change(path, "leave", "emptied of the daemon's files; something else is in it"),)


def users_of(host: Host, directory_fd: int) -> tuple[int, ...] | Unreadable:
    """Return the pids of root's control daemons that hold the control_lock lying in the open directory."""
    lock = files.look(directory_fd, "control_lock")
    if lock is None:
        return ()
    found = procfs.named_mps(host)
    if isinstance(found, Unreadable):
        return found
    return tuple(each.process.pid for each in procfs.daemons(host, found) if each.lock == (lock.st_dev, lock.st_ino))


def _clean_pipe(host: Host, path: str, fd: int) -> tuple[Change, ...]:
    """Remove the daemon's left-over files by name and pre-create what users must not be able to lock."""
    users = users_of(host, fd)
    if isinstance(users, Unreadable):
        raise MpsfleetError(f"{path} is left as it is: {users.reason}")
    if users:
        return ()  # a daemon serves it: only its owner and mode were put right
    changes = []
    for name in _DAEMON_FILES:
        now = files.look(fd, name)
        if now is None:
            continue
        if stat.S_ISDIR(now.st_mode):
            aside = files.set_aside(fd, name, "foreign")
            detail = f"a directory of user {now.st_uid}; now {path}/{aside}"
            changes.append(Change(f"{path}/{name}", "set aside", detail))
        elif name not in _PRECREATED or not _is_fresh(host, now):
            files.unlink(fd, name)
            changes.append(Change(f"{path}/{name}", "remove", f"left-over {kind(now.st_mode)} of user {now.st_uid}"))
    for name in _PRECREATED:
        if files.look(fd, name) is None:
            files.create(fd, name, 0o600)
            changes.append(Change(f"{path}/{name}", "create", "0600, so that only root can lock it"))
    return (*changes, *_foreign(path, fd))


def _foreign(path: str, fd: int) -> tuple[Change, ...]:
    """Tell what else lies in the pipe directory. It is left: nobody but root can add to it any more."""
    names = sorted(set(os.listdir(fd)) - set(_DAEMON_FILES))
    told = tuple(Change(f"{path}/{name}", "leave", "it is not MPS's") for name in names[:_MOST_TOLD])
    more = len(names) - len(told)
    return (*told, Change(path, "leave", f"{more} more names that are not MPS's")) if more else told


def _is_fresh(host: Host, now: os.stat_result) -> bool:
    """Tell whether it is a pre-created file of an earlier prepare, as root left it."""
    plain = stat.S_ISREG(now.st_mode) and stat.S_IMODE(now.st_mode) == 0o600 and now.st_nlink == 1  # noqa: PLR2004  # mode
    return plain and now.st_uid == host.owner_uid and now.st_size == 0


def _clean_log(host: Host, path: str, fd: int) -> tuple[Change, ...]:
    """Set aside logs that are not plain files of root's with one link, or too large. Logs are never deleted."""
    changes = []
    for name in _LOGS:
        now = files.look(fd, name)
        if now is None:
            continue
        if not stat.S_ISREG(now.st_mode) or now.st_nlink != 1 or now.st_uid != host.owner_uid:
            what = f"a {kind(now.st_mode)} of user {now.st_uid} with {now.st_nlink} links, not a log of root's"
            word = "foreign"
        elif now.st_size > _LOG_CAP:
            what, word = f"{now.st_size >> 20} MiB", "old"
        else:
            continue
        aside = files.set_aside(fd, name, word)
        changes.append(Change(f"{path}/{name}", "set aside", f"{what}; now {path}/{aside}"))
    return tuple(changes)


if TYPE_CHECKING:
    from typing import Callable

    _Clean = Callable[[Host, str, int], tuple[Change, ...]]
