"""The values that node.toml may hold: each check returns the value as it is used, or what it must be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")
WORLD_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # named to be refused, not used
_MIB_PER_GIB = 1024
_MOST_MEMORY = 1 << 20  # more is a typo
_MOST_GPUS = 1024
_LONGEST_NAME = 80
_MOST_MINUTES = 1440  # a day


def _path(value: object) -> tuple[object, str]:
    if not isinstance(value, str) or not value.startswith("/"):
        return None, "must be an absolute path"
    if not set(value) <= _PLAIN:
        return None, "may hold only letters, digits and . _ - /"
    parts = value.rstrip("/").split("/")[1:]
    if "" in parts or "." in parts or ".." in parts:
        return None, "must be a plain path without //, . or .."
    return "/" + "/".join(parts), ""


def _percentage(value: object) -> tuple[object, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 100:  # noqa: PLR2004  # per cent
        return None, "must be a number above 0 and at most 100"
    return float(value), ""


def _count(value: object) -> tuple[object, str]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1024:  # noqa: PLR2004  # more is a typo
        return None, "must be a whole number from 0 to 1024"
    return value, ""


def _minutes(value: object) -> tuple[object, str]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_MINUTES:
        return None, "must be a whole number of minutes, 0 (none) to 1440"
    return value, ""


def _flag(value: object) -> tuple[object, str]:
    return (value, "") if isinstance(value, bool) else (None, "must be true or false")


def _name(value: object) -> tuple[object, str]:
    plain = isinstance(value, str) and bool(value) and "/" not in value and set(value) <= _PLAIN and value[0] != "-"
    return (value, "") if plain else (None, "must be one plain name")


def _seconds(value: object) -> tuple[object, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.1 <= value <= 60:  # noqa: PLR2004  # s
        return None, "must be a number of seconds from 0.1 to 60"
    return float(value), ""


def _mode(value: object) -> tuple[object, str]:
    if value == "slurm":
        return None, 'must be "resident" ("slurm", daemons around each job, is not built yet)'
    return (value, "") if value == "resident" else (None, 'must be "resident"')


def _daemons(value: object) -> tuple[object, str]:
    return (value, "") if value in ("node", "gpu") else (None, 'must be "node" or "gpu"')


def _compute_mode(value: object) -> tuple[object, str]:
    known = ("default", "exclusive_process")
    return (value, "") if value in known else (None, 'must be "default" or "exclusive_process"')


def _priority(value: object) -> tuple[object, str]:
    good = not isinstance(value, bool) and value in (0, 1)
    return (value, "") if good else (None, "must be 0 (normal) or 1 (below normal)")


def _memory(value: object) -> tuple[object, str]:
    """Read "512M" or "8G" as MiB; the daemon prints whole G from 1G on, so a limit above that must be whole."""
    number, unit = (value[:-1], value[-1:]) if isinstance(value, str) else ("", "")
    if not (number.isascii() and number.isdigit()) or unit not in ("M", "G") or not 0 < int(number) <= _MOST_MEMORY:
        return None, 'must be a size such as "512M" or "8G"'
    mib = int(number) * (_MIB_PER_GIB if unit == "G" else 1)
    if mib > _MIB_PER_GIB and mib % _MIB_PER_GIB:
        return None, "must be whole G above 1G (the daemon tells no finer, so it could not be verified)"
    return mib, ""


def _selectors(value: object) -> tuple[object, str]:
    message = 'must be a list of indices, UUIDs ("GPU-...") or models ("A100")'
    if not isinstance(value, list) or not value:
        return None, message
    for each in value:
        index = isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= _MOST_GPUS
        word = isinstance(each, str) and bool(each.strip()) and each.isprintable() and len(each) <= _LONGEST_NAME
        if not (index or word):
            return None, message
    return tuple(value), ""


def _selectors_or_all(value: object) -> tuple[object, str]:
    if value == "all":
        return (), ""
    good, message = _selectors(value)
    return good, message.replace("must be", 'must be "all" or', 1)


CHECKS: dict[str, Callable[[object], tuple[object, str]]] = {
    "path": _path,
    "percentage": _percentage,
    "count": _count,
    "flag": _flag,
    "name": _name,
    "seconds": _seconds,
    "mode": _mode,
    "minutes": _minutes,
    "daemons": _daemons,
    "memory": _memory,
    "priority": _priority,
    "compute mode": _compute_mode,
    "selectors": _selectors,
    "selectors or all": _selectors_or_all,
}
