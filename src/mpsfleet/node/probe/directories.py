"""Directories as they are: walked from `/` without following a link, then their names, looked at but not opened."""

from __future__ import annotations

import errno
import os
import stat

from mpsfleet.node.model import Directory, Name, Parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_MOST_NAMES = 256  # of a directory that others may have filled
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
}


def kind(mode: int) -> str:
    """Return the kind of a file by its st_mode."""
    return _KINDS.get(stat.S_IFMT(mode), "other")


def look(host: Host, path: str) -> tuple[Directory, int]:
    """Return the directory at `path` and a descriptor that pins it (-1 when it is no directory)."""
    parts = path.split("/")[1:]
    parents: list[Parent] = []
    fd = os.open(host.root or "/", _PATH | os.O_DIRECTORY)
    walked = ""
    try:
        for number, part in enumerate(parts):
            here = os.fstat(fd)
            parents.append(Parent(walked or "/", here.st_uid, here.st_gid, stat.S_IMODE(here.st_mode), "directory"))
            walked += "/" + part
            last = number == len(parts) - 1
            inner = os.open(
                part, (os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) if last else _PATH, dir_fd=fd
            )
            os.close(fd)
            fd = inner
            now = os.fstat(fd)
            if not stat.S_ISDIR(now.st_mode):
                os.close(fd)
                fd = -1
                return Directory(path, kind(now.st_mode), parents=tuple(parents), reason=walked), -1
        now = os.fstat(fd)
        names = _names(fd)
    except OSError as error:
        if fd >= 0:
            found = _why(fd, walked, error)
            os.close(fd)
        else:
            found = ("unreadable", walked)
        return Directory(path, found[0], parents=tuple(parents), reason=found[1]), -1
    return Directory(path, "directory", now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode), tuple(parents), names), fd


def _why(at: int, walked: str, error: OSError) -> tuple[str, str]:
    """Tell what stopped the walk at the last part of `walked`, which lies in the directory `at`."""
    if error.errno == errno.ENOENT:
        return "missing", walked
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        try:
            return kind(os.stat(os.path.basename(walked), dir_fd=at, follow_symlinks=False).st_mode), walked
        except OSError:
            return "missing", walked
    return "unreadable", f"{walked}: {error.strerror}"


def _names(fd: int) -> tuple[Name, ...]:
    names = []
    with os.scandir(fd) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_NAMES:
                break
            try:
                now = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone since it was listed
                continue
            names.append(
                Name(
                    entry.name,
                    kind(now.st_mode),
                    now.st_uid,
                    stat.S_IMODE(now.st_mode),
                    now.st_ino,
                    now.st_dev,
                    now.st_nlink,
                    now.st_size,
                )
            )
    return tuple(sorted(names))
