"""Who is on a GPU, as the Prolog recorded it: one file a job under /run/mpsfleet/jobs, for root's eyes.

Beside it lies, for the job's own eyes, one file a job under /run/mpsfleet-jobs with what TaskProlog exports: TaskProlog
runs as the user and cannot enter root's directory. It holds no more than a pipe directory and UUIDs, which nvidia-smi
tells everybody too, and no uid. Both lie in /run, a tmpfs, so no record outlives a boot.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple, Union

from mpsfleet.node.host import files, locks
from mpsfleet.node.model import Unreadable

if TYPE_CHECKING:
    from typing import Any

    from mpsfleet.node.host import Host

DIRECTORY = f"{locks.STATE}/jobs"
EXPORTS = "/run/mpsfleet-jobs"
EXPORTED = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES")
SCHEMA = 1
KINDS = ("mps", "gpu", "shard")
STALE_S = 300.0  # a job may have no process for a while: between its Prolog and its first step, or with salloc
_CAP = 8192  # bytes of a record
_MOST = 4096  # records that are read
_OTHERS_WRITE = 0o022
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/,")


class Job(NamedTuple):
    """One job with GPUs on this node. A record without `gpus` is of a job whose GPUs are not known: any may be its."""

    job: int
    uid: int  # -1: not known
    gres: str  # "mps"; "gpu" also stands for shard, which a Prolog cannot tell from a whole GPU
    gpus: tuple[str, ...]  # UUIDs
    indices: tuple[int, ...]  # Slurm's, as SLURM_JOB_GPUS named them
    start: int  # seconds since the epoch

    @property
    def name(self) -> str:
        """The record's file name."""
        return str(self.job)

    def may_use(self, gpus: frozenset[str]) -> bool:
        """Return whether one of these GPUs may be the job's."""
        return not self.gpus or not gpus.isdisjoint(self.gpus)


class Garbled(NamedTuple):
    """A record that cannot be read. Somebody is there all the same."""

    name: str
    reason: str

    def may_use(self, _gpus: frozenset[str]) -> bool:
        """Return True: nothing is known of it."""
        return True


Record = Union[Job, Garbled]


def read_all(host: Host) -> tuple[Record, ...] | Unreadable:
    """Return every record of the node, by name. A name that begins with a dot is a record not yet published."""
    folder = host.path(DIRECTORY)
    try:
        names = [each for each in files.names(folder) if not each.startswith(".")]
    except OSError as error:
        return Unreadable(f"{DIRECTORY} cannot be listed: {error.strerror}")
    found = tuple(_read(host, f"{folder}/{name}", name) for name in names[:_MOST])
    return found if len(names) <= _MOST else (*found, Garbled("…", f"there are {len(names) - _MOST} more"))


def _read(host: Host, path: str, name: str) -> Record:
    try:
        values = _document(host, path)
        job = Job(
            _whole(values["job"]),
            _whole(values["uid"], least=-1),
            values["gres"],
            tuple(_uuid(each) for each in values["gpus"]),
            tuple(_whole(each) for each in values["indices"]),
            _whole(values["start"]),
        )
    except OSError as error:
        return Garbled(name, error.strerror or str(error))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Garbled(name, "it is not what a Prolog writes")
    if job.name != name or job.gres not in KINDS:
        return Garbled(name, "it is not what a Prolog writes")
    return job


def _document(host: Host, path: str) -> dict[str, Any]:
    """Read one JSON object from a plain file of the owner's that nobody else can write."""
    now = os.lstat(path)
    if not stat.S_ISREG(now.st_mode) or now.st_uid != host.owner_uid or now.st_mode & _OTHERS_WRITE:
        raise ValueError(path)
    values: dict[str, Any] = json.loads(files.read(path, _CAP))
    if values["schema"] != SCHEMA:
        raise ValueError(path)
    return values


def _whole(value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TypeError(value)
    return value


def _uuid(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("GPU-"):
        raise TypeError(value)
    return value


def write(host: Host, job: Job) -> None:
    """Publish the record of a job, in the place of an older one of the same number."""
    locks.state_directory(host)
    folder = host.path(DIRECTORY)
    files.ensure_directory(folder, 0o700)
    content = json.dumps({"schema": SCHEMA, **job._asdict()})
    files.publish(f"{folder}/{job.name}", f"{content}\n".encode(), 0o600)


def export(host: Host, job: int, variables: tuple[tuple[str, str], ...], leader: int = -1) -> None:
    """Publish what the tasks of a job are told, or take it away where that is nothing.

    A component of a heterogeneous job has a number of its own in its Prolog, and its leader's in its tasks.
    """
    folder = host.path(EXPORTS)
    name = str(job) if leader < 0 else f"{leader}.{job}"
    if not variables:
        files.remove(f"{folder}/{name}")
        return
    files.ensure_directory(folder, 0o755)
    content = json.dumps({"schema": SCHEMA, "exports": dict(variables)})
    files.publish(f"{folder}/{name}", f"{content}\n".encode(), 0o644)


def exports(host: Host, job: int) -> tuple[tuple[str, str], ...] | Unreadable:
    """Return what the tasks of a job, or of a heterogeneous job's components here, are told. For any user.

    () where there is nothing.
    """
    try:
        names = files.names(host.path(EXPORTS))
    except OSError as error:
        return Unreadable(f"{EXPORTS} cannot be listed: {error.strerror}")
    found = {_exports(host, f"{EXPORTS}/{name}") for name in names if name == str(job) or name.startswith(f"{job}.")}
    if len(found) > 1:
        return Unreadable(
            f"job {job} has components with different GPUs on this node, and a task cannot tell which it is"
        )
    return found.pop() if found else ()


def _exports(host: Host, path: str) -> tuple[tuple[str, str], ...] | Unreadable:
    try:
        values = _document(host, host.path(path))["exports"]
        found = tuple((name, values[name]) for name in EXPORTED if name in values)
        if not all(isinstance(value, str) and value and set(value) <= _PLAIN for _, value in found):
            return Unreadable(f"{path} is not what a Prolog writes")
    except FileNotFoundError:
        return ()
    except OSError as error:
        return Unreadable(f"{path} cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Unreadable(f"{path} is not what a Prolog writes")
    return found


def forget(host: Host, job: int) -> bool:
    """Take away all that is recorded of a job, also what a killed Prolog left half written; False: nothing was."""
    found = False
    for folder in (host.path(EXPORTS), host.path(DIRECTORY)):
        for name in files.names(folder):
            published = name[1:].rpartition(".")[0] if name.startswith(".") else name
            if published.rpartition(".")[2] == str(job):
                found = files.remove(f"{folder}/{name}") or found
    return found


def is_stale(record: Record, known: frozenset[int], now: float) -> bool:
    """Return whether Slurm's step daemons do not know a job that has had the time to start a step.

    It may still be there: `salloc` holds GPUs without a step. So a stale record is told and counts like any other.
    """
    return isinstance(record, Job) and record.job not in known and now - record.start > STALE_S
