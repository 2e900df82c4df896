"""What a node's report tells of MPS there, as values: the words of a stranger, of exactly the expected shape or none.

The other side is src/mpsfleet/node/judge/presence.py. A report of a program that does not tell it yet is no garbage.
"""

from __future__ import annotations

import re
from typing import Callable, NamedTuple, TypeVar

MOST = 64  # rows of each kind
_MOST_COUNTED = 65536
_KEYS = frozenset({"instances", "gpus", "found", "jobs"})
_INSTANCE = re.compile(r"node|[0-9]{1,5}")
_MODEL_LIMIT = 48  # characters
_T = TypeVar("_T")


class Instance(NamedTuple):
    """A control daemon that should be on the node."""

    name: str  # "node", or a GPU's index there
    serves: bool | None  # whether jobs can use it; None: not certain either way


class Gpu(NamedTuple):
    """A GPU that was recorded at the deploy, or shown by nvidia-smi where nothing is recorded."""

    minor: int  # -1: not told
    model: str  # lower case, blanks as underscores, as Slurm's AutoDetect compares it with a Type
    instance: str  # the control daemon that should serve it; "": left alone
    jobs: int  # records of jobs on it


class Presence(NamedTuple):
    """What of MPS is on a node."""

    instances: tuple[Instance, ...]
    gpus: tuple[Gpu, ...]
    found: int | None  # whole GPUs that nvidia-smi shows; None: not told, or one is split by MIG
    jobs: int | None  # records of jobs with GPUs; None: not read

    def serves(self, instance: str) -> bool | None:
        """Tell whether the daemon of that name serves; None too where none is told of."""
        return next((each.serves for each in self.instances if each.name == instance), None)

    @property
    def under_mps(self) -> tuple[Gpu, ...]:
        """The GPUs that a daemon should serve."""
        return tuple(each for each in self.gpus if each.instance)


class PresenceError(ValueError):
    """It has another shape; the message holds nothing of its content."""


def read(value: object) -> Presence | None:
    """Read the member `mps` of a report; None where nothing is told. Raises PresenceError."""
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise PresenceError("what it tells of MPS does not have the members of that")
    instances = _rows(value["instances"], _instance)
    gpus = _rows(value["gpus"], _gpu)
    names = [each.name for each in instances]
    if len(set(names)) < len(names) or not {each.instance for each in gpus} <= {"", *names}:
        raise PresenceError("its GPUs and daemons do not belong together")
    return Presence(instances, gpus, _count_or_none(value["found"]), _count_or_none(value["jobs"]))


def _rows(value: object, read_one: Callable[[list[object]], _T]) -> tuple[_T, ...]:
    if not isinstance(value, list) or len(value) > MOST or not all(isinstance(each, list) for each in value):
        raise PresenceError(f"what it tells of MPS is no list of at most {MOST} rows")
    return tuple(read_one(each) for each in value)


def _instance(row: list[object]) -> Instance:
    name, serves = _cells(row, 2)
    if not isinstance(name, str) or not _INSTANCE.fullmatch(name) or not isinstance(serves, (bool, type(None))):
        raise PresenceError("it tells of a daemon in another form")
    return Instance(name, serves)


def _gpu(row: list[object]) -> Gpu:
    minor, model, instance, jobs = _cells(row, 4)
    if not isinstance(model, str) or len(model) > _MODEL_LIMIT or not model.isprintable():
        raise PresenceError("it tells of a GPU in another form")
    if not isinstance(instance, str) or (instance and not _INSTANCE.fullmatch(instance)):
        raise PresenceError("it tells of a GPU in another form")
    return Gpu(_count(minor, least=-1), model, instance, _count(jobs))


def _cells(row: list[object], wanted: int) -> list[object]:
    if len(row) != wanted:
        raise PresenceError("a row of what it tells of MPS has another length")
    return row


def _count_or_none(value: object) -> int | None:
    return None if value is None else _count(value)


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _MOST_COUNTED:
        raise PresenceError("a number of what it tells of MPS is out of bounds")
    return value
