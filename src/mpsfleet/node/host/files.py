"""Files and directories by descriptor: no link is followed below a directory that was itself reached without one.

Root works here on paths that users may have planted. Every function takes a directory's descriptor and one name, except
the walk that opens the first directory from `/`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_EXCHANGE = 2  # linux/fs.h
_RECORD = 8192  # the longest record of /dev/kmsg (CONSOLE_EXT_LOG_MAX)
_AT_FDCWD_NAMES = 64  # attempts at a free temporary name


def open_root(path: str) -> int:
    """Open the root of the walk; it may not be a link."""
    return os.open(path or "/", DIRECTORY)


def open_directory(at: int, name: str) -> int:
    """Open a directory in `at`, never through a link (ENOTDIR or ELOOP then)."""
    return os.open(name, DIRECTORY, dir_fd=at)


def look(at: int, name: str) -> os.stat_result | None:
    """Return what `name` is, not following it; None when it does not exist."""
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None


def make_directory(at: int, name: str, mode: int = 0o755) -> None:
    """Make a directory with exactly `mode`. FileExistsError when the name is taken."""
    os.mkdir(name, 0o700, dir_fd=at)
    fd = open_directory(at, name)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def own_directory(fd: int, uid: int, gid: int, mode: int) -> bool:
    """Give the open directory this owner and mode; True when something changed. Mode first: users lose it at once."""
    now = os.fstat(fd)
    changed = False
    if stat.S_IMODE(now.st_mode) != mode:
        os.fchmod(fd, mode)
        changed = True
    if (now.st_uid, now.st_gid) != (uid, gid):
        os.fchown(fd, uid, gid)
        changed = True
    return changed


def exchange(at: int, first: str, second: str) -> bool:
    """Swap two names of one directory in one step (renameat2(2)); False where kernel or file system cannot."""
    import ctypes  # 2 ms, and only for a name that somebody else has taken

    library = ctypes.CDLL(None, use_errno=True)
    try:
        renameat2 = library.renameat2
    except AttributeError:  # a C library before 2.28
        return False
    if renameat2(at, os.fsencode(first), at, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), first)


def unlink(at: int, name: str) -> None:
    """Remove a name that is not a directory; a link is removed, not followed."""
    os.unlink(name, dir_fd=at)


def remove_directory(at: int, name: str) -> bool:
    """Remove an empty directory; False when it is not empty."""
    try:
        os.rmdir(name, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def set_aside(at: int, name: str, word: str) -> str:
    """Rename `name` within its directory to a free name that tells what it was; return that name."""
    moment = time.strftime("%Y%m%dT%H%M%S")
    for attempt in range(_AT_FDCWD_NAMES):
        aside = f"{name}.{word}-{moment}" + (f".{attempt}" if attempt else "")
        if look(at, aside) is None:
            os.rename(name, aside, src_dir_fd=at, dst_dir_fd=at)
            return aside
    raise FileExistsError(errno.EEXIST, f"no free name beside {name}")


def temporary_directory(at: int, name: str) -> str:
    """Make a fresh directory with a name nobody can guess beside `name`; return its name."""
    fresh = f".{name}.{os.urandom(8).hex()}"
    make_directory(at, fresh)
    return fresh


def create(at: int, name: str, mode: int) -> None:
    """Create an empty regular file that did not exist (O_EXCL, no link followed) with exactly `mode`."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def chmod_fifo(at: int, name: str, mode: int) -> bool:
    """Set the mode of a fifo through a descriptor that does not open it; False when it is no fifo."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        now = os.fstat(fd)
        if not stat.S_ISFIFO(now.st_mode):
            return False
        if stat.S_IMODE(now.st_mode) != mode:
            os.chmod(f"/proc/self/fd/{fd}", mode)  # the descriptor pins the inode; fchmod refuses O_PATH
        return True
    finally:
        os.close(fd)


def open_log(at: int, name: str) -> int:
    """Open a regular file with one link for appending, making it when absent; OSError for anything else."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, 0o644, dir_fd=at)
    now = os.fstat(fd)
    if not stat.S_ISREG(now.st_mode) or now.st_nlink != 1:
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file with one link", name)
    os.set_blocking(fd, True)
    return fd


def read(path: str, cap: int = 1 << 20) -> bytes:
    """Read a regular file of ours, no link followed, at most `cap` bytes; OSError for anything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = stream.read(cap + 1)
    if len(data) > cap:
        raise OSError(errno.EFBIG, f"larger than {cap} bytes", path)
    return data


def read_or_none(path: str, cap: int = 1 << 20) -> bytes | None:
    """Like `read`; None when the file does not exist."""
    try:
        return read(path, cap)
    except (FileNotFoundError, NotADirectoryError):
        return None


def own_mode(path: str, uid: int) -> int | None:
    """Return the permission bits of a file, -1 where it belongs to another user than `uid`; None when it is absent."""
    try:
        now = os.lstat(path)
    except OSError:
        return None
    return stat.S_IMODE(now.st_mode) if now.st_uid == uid else -1


def records(path: str, limit_s: float) -> Iterator[bytes]:
    """Yield the records of the kernel log at `path`, oldest first, to its present end; TimeoutError beyond `limit_s`.

    /dev/kmsg gives one record a read, EAGAIN at its end and EPIPE where records were overwritten meanwhile. In the
    device's place may be a regular file or a fifo, a line a record; a line that begins with a blank belongs to the one
    before.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    end = time.monotonic() + limit_s
    try:
        if not stat.S_ISCHR(os.fstat(fd).st_mode):
            with contextlib.suppress(BlockingIOError), open(fd, "rb", closefd=False) as stream:
                for line in iter(lambda: stream.readline(_RECORD), b""):
                    _in_time(end)
                    if not line.startswith(b" "):
                        yield line
            return
        while True:
            _in_time(end)
            try:
                data = os.read(fd, _RECORD)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                return
            if not data:
                return
            yield data
    finally:
        os.close(fd)


def _in_time(end: float) -> None:
    if time.monotonic() > end:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def publish(path: str, data: bytes, mode: int) -> None:
    """Write a file by a temporary one (O_EXCL) beside it and a rename; `path` must be in a root-only place."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.urandom(6).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def publish_link(path: str, target: str) -> None:
    """Point the link `path` at `target` in one step."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.urandom(6).hex()}")
    os.symlink(target, temporary)
    os.rename(temporary, path)


def link_target(path: str) -> str | None:
    """Return what the link at `path` points to; None when there is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def ensure_directory(path: str, mode: int) -> None:
    """Make a directory of ours and what is missing above it, each with exactly `mode` whatever the umask.

    In a root-only place (not for pipe or log directories: see prepare).
    """
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    except FileNotFoundError:
        ensure_directory(os.path.dirname(path), mode)
        os.mkdir(path, mode)
    os.chmod(path, mode)


def remove(path: str) -> bool:
    """Remove a file or link of ours; False when it was not there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_empty(path: str) -> bool:
    """Remove a directory of ours if it is empty."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def names(path: str) -> tuple[str, ...]:
    """Return the names in a directory of ours, sorted; none when it is not there."""
    try:
        return tuple(sorted(os.listdir(path)))
    except FileNotFoundError:
        return ()


def exists(path: str) -> bool:
    """Return whether the name is there, be it a link to nowhere."""
    return os.path.lexists(path)


def executable(path: str) -> bool:
    """Return whether `path` is a program this process can execute."""
    return os.access(path, os.X_OK)


def write_new_directory(path: str, contents: dict[str, bytes]) -> None:
    """Make a directory only its owner can enter, with files only they can read; OSError where it is there."""
    above, name = os.path.split(path)
    at = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        make_directory(at, name, 0o700)
        inside = open_directory(at, name)
    finally:
        os.close(at)
    try:
        for each, data in contents.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(each, flags, 0o600, dir_fd=inside), "wb") as stream:
                stream.write(data)
    finally:
        os.close(inside)
