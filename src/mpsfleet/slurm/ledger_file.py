"""Where the ledger lies, and the one lock under which the controller's runs drain and give back.

It lies beside slurmctld's own state, which a second controller shares, else in /var/lib/mpsfleet, or where a site says.
The directory is ours alone and is used by its descriptor; no link is followed in it. The file is replaced by rename, so
that a run that is killed leaves the old ledger or the new one. What cannot be read is kept aside and begun anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.errors import MpsfleetError
from mpsfleet.show import show
from mpsfleet.slurm import ledger as values
from mpsfleet.slurm.ledger import Ledger, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "mpsfleet"  # in StateSaveLocation
OTHERWISE = "/var/lib/mpsfleet"
NAME, LOCK = "ledger.json", "ledger.lock"
SIZE_LIMIT = 64 * 1024 * 1024  # bytes
WAIT_S = 30.0  # for another run to end
_POLL_S = 0.05
_NOT_HERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)  # of a place that cannot be ours


class LedgerUnusable(MpsfleetError):
    """The ledger cannot be read or written, so nothing is drained or given back (exit status 3)."""


class LedgerAbsent(LedgerUnusable):
    """There is no ledger yet."""


class Store(NamedTuple):
    """An open ledger directory."""

    path: str
    descriptor: int


class Loaded(NamedTuple):
    """The ledger, and what is to be told about how it was had ("" for nothing)."""

    ledger: Ledger
    trouble: str = ""


def places(asked: str | None, state_directory: str | None, root: str = "") -> tuple[str, ...]:
    """Give the directories to try in order: the site's, or slurmctld's state with /var/lib/mpsfleet behind it."""
    if asked is not None:
        return (root + asked,)
    beside = (f"{root}{state_directory.rstrip('/')}/{FOLDER}",) if state_directory else ()
    return (*beside, root + OTHERWISE)


def is_controller(state_directory: str | None, root: str = "") -> bool:
    """Tell whether this machine has slurmctld's state; where that is not told, whether a ledger is kept here."""
    return os.path.isdir(f"{root}{state_directory or OTHERWISE}")


@contextlib.contextmanager
def opened(directories: tuple[str, ...], *, makes: bool) -> Iterator[Store]:
    """Open the first directory that can be ours; with `makes` it is made. Raises LedgerUnusable."""
    reason, is_absent = "", True
    for path in directories:
        try:
            descriptor = _open_directory(path, makes=makes)
        except OSError as error:
            reason, is_absent = f"{show(path)}: {error.strerror}", is_absent and error.errno == errno.ENOENT
            if error.errno not in _NOT_HERE:
                break
            continue
        try:
            _require_ours(path, os.fstat(descriptor))
            yield Store(path, descriptor)
        finally:
            os.close(descriptor)
        return
    kind = LedgerAbsent if is_absent else LedgerUnusable
    raise kind(f"The ledger cannot be kept ({reason}); name a directory of this user's with --ledger.")


def _open_directory(path: str, *, makes: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if makes:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    return os.open(path, flags)


def _require_ours(path: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LedgerUnusable(
            f"The ledger's directory {show(path)} must belong to the user who runs this (user {os.geteuid()}, and not "
            f"{status.st_uid}) and be writable by nobody else; put that right, or name another with --ledger."
        )


@contextlib.contextmanager
def locked(store: Store, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock; a second run waits for the first to end. Raises LedgerUnusable where that takes too long."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(LOCK, flags, 0o600, dir_fd=store.descriptor)
    except OSError as error:
        raise LedgerUnusable(f"The lock {show(store.path)}/{LOCK} cannot be opened: {error.strerror}.") from None
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    message = f"The lock {show(store.path)}/{LOCK} cannot be had: {error.strerror}."
                    raise LedgerUnusable(message) from None
            if time.monotonic() >= deadline:
                message = f"Another run has held {show(store.path)}/{LOCK} for {wait_s:g} s; run this again later."
                raise LedgerUnusable(message)
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def load(store: Store, cluster: str) -> Loaded:
    """Read the ledger of a cluster; none is an empty one. Raises LedgerUnusable where it is another cluster's."""
    try:
        found = from_file(store)
    except LedgerError as error:
        return Loaded(Ledger(cluster), f"The ledger {show(store.path)}/{NAME} is not used: {error}.")
    if found is None:
        return Loaded(Ledger(cluster))
    if found.cluster != cluster:
        raise LedgerUnusable(
            f"The ledger {show(store.path)}/{NAME} is of cluster {show(found.cluster)} and not {show(cluster)}; give "
            "each cluster a directory of its own with --ledger."
        )
    return Loaded(found)


def from_file(store: Store) -> Ledger | None:
    """Read the file, whatever cluster it is of; None where there is none. Raises LedgerError and LedgerUnusable."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(NAME, flags, dir_fd=store.descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LedgerError("it is a link") from None
        raise LedgerUnusable(f"{show(store.path)}/{NAME} cannot be read: {error.strerror}.") from None
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise LedgerError("it is not a regular file of this user's")
        data = stream.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise LedgerError(f"it is larger than {SIZE_LIMIT} bytes")
    return values.from_text(data.decode("utf-8", "replace"))


def save(store: Store, ledger: Ledger, *, replaces_unread: bool = False) -> None:
    """Replace the ledger's file; one that could not be read is kept beside it. Raises LedgerUnusable."""
    temporary = f".{NAME}.{secrets.token_hex(8)}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=store.descriptor)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(values.to_text(ledger).encode())
                stream.flush()
                os.fsync(stream.fileno())
            if replaces_unread:
                with contextlib.suppress(FileNotFoundError):
                    _rename(store, NAME, f"{NAME}.unread")
            _rename(store, temporary, NAME)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=store.descriptor)
            raise
    except OSError as error:
        message = f"The ledger {show(store.path)}/{NAME} could not be written: {error.strerror}."
        raise LedgerUnusable(message) from None


def _rename(store: Store, old: str, new: str) -> None:
    os.replace(old, new, src_dir_fd=store.descriptor, dst_dir_fd=store.descriptor)
