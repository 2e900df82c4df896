"""The desired state of a node: /etc/mpsfleet/node.toml as a value, every mistake with its place and the nearest name.

Parsing TOML costs more than asking a daemon, so the values of a file that was found right are kept beside the locks,
keyed by its device, inode, size and modification time.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

CONFIG = "/etc/mpsfleet/node.toml"
SOCKET_PATH_LIMIT = 87  # bytes of a pipe directory: sun_path holds 107, and /control_privileged takes 19


class Desired(NamedTuple):
    """What a node should be. Paths are absolute and plain; seconds are seconds."""

    mode: str = "resident"
    control_binary: str = "/usr/bin/nvidia-cuda-mps-control"
    pipe_directory: str = "/run/nvidia-mps/node"
    log_directory: str = "/var/log/nvidia-mps"
    active_thread_percentage: float = 100.0
    gpus_expected: int = -1  # -1: not checked
    slurm_enabled: bool = True
    node_name: str = ""  # "": the short host name
    cluster: str = ""
    query_timeout_s: float = 2.0
    nvidia_smi_timeout_s: float = 4.0


class Mistake(NamedTuple):
    """One mistake in node.toml."""

    line: int  # 0: not a line's
    sentence: str

    def __str__(self) -> str:
        return f"node.toml{f', line {self.line}' if self.line else ''}: {self.sentence}"


class _Key(NamedTuple):
    field: str
    kind: str  # "path" | "percentage" | "count" | "flag" | "name" | "seconds" | "mode"


_KEYS: dict[str, dict[str, _Key]] = {
    "": {"mode": _Key("mode", "mode")},
    "mps": {
        "control_binary": _Key("control_binary", "path"),
        "pipe_directory": _Key("pipe_directory", "path"),
        "log_directory": _Key("log_directory", "path"),
        "active_thread_percentage": _Key("active_thread_percentage", "percentage"),
    },
    "gpus": {"expected": _Key("gpus_expected", "count")},
    "slurm": {
        "enabled": _Key("slurm_enabled", "flag"),
        "node_name": _Key("node_name", "name"),
        "cluster": _Key("cluster", "name"),
    },
    "limits": {
        "query_timeout_s": _Key("query_timeout_s", "seconds"),
        "nvidia_smi_timeout_s": _Key("nvidia_smi_timeout_s", "seconds"),
    },
}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")
_WORLD_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # named to be refused, not used


def parse(text: str) -> tuple[Desired, tuple[Mistake, ...]]:
    """Read the text of a node.toml; with any mistake the value is not to be used."""
    if sys.version_info >= (3, 11):
        import tomllib as toml  # 10 ms, only when the file changed
    else:
        import tomli as toml  # the pure-Python library bundled with the program
    try:
        document = toml.loads(text)
    except toml.TOMLDecodeError as error:
        return Desired(), (Mistake(0, f"it is not valid TOML: {error}"),)
    return _Reading(text).read(document)


class _Reading:
    """One pass over a document, collecting its mistakes."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.mistakes: list[Mistake] = []

    def read(self, document: dict[str, Any]) -> tuple[Desired, tuple[Mistake, ...]]:
        values: dict[str, Any] = {}
        self.schema(document)
        for name, content in document.items():
            if name == "schema":
                continue
            if name in _KEYS and isinstance(content, dict):
                for key, value in content.items():
                    self.value(values, name, key, value)
            elif name in _KEYS[""]:
                self.value(values, "", name, content)
            else:
                known = [each for each in _KEYS if each] + list(_KEYS[""]) + ["schema"]
                self.wrong(
                    "", name, f"unknown {'table' if isinstance(content, dict) else 'key'} {_quoted(name)}", known
                )
        desired = Desired(**values)
        self.together(desired)
        return desired, tuple(self.mistakes)

    def schema(self, document: dict[str, Any]) -> None:
        if "schema" not in document:
            self.mistakes.append(Mistake(0, "the first line must say `schema = 1`"))
        elif document["schema"] != 1 or isinstance(document["schema"], bool):
            self.wrong("", "schema", f"schema {document['schema']!r} is not known to this program; it knows 1", [])

    def value(self, values: dict[str, Any], table: str, key: str, value: Any) -> None:  # noqa: ANN401  # TOML's own types
        where = f"[{table}] {key}" if table else key
        known = _KEYS[table].get(key)
        if known is None:
            self.wrong(table, key, f"unknown key {_quoted(key)} in [{table}]", list(_KEYS[table]))
            return
        good, message = _CHECKS[known.kind](value)
        if message:
            self.wrong(table, key, f"{where} {message}, not {_quoted(value)}", [])
        else:
            values[known.field] = good

    def together(self, desired: Desired) -> None:
        for key in ("pipe_directory", "log_directory"):
            path = getattr(desired, key)
            if len(path) > SOCKET_PATH_LIMIT and key == "pipe_directory":
                sentence = (
                    f"[mps] pipe_directory has {len(path)} characters; the daemon's sockets allow {SOCKET_PATH_LIMIT}, "
                    "so choose a shorter path"
                )
                self.wrong("mps", key, sentence, [])
            if path in ("/", "/run", "/var", "/etc", "/usr", "/var/log", "/root", "/home", *_WORLD_WRITABLE):
                self.wrong("mps", key, f"[mps] {key} must be a directory of its own, not {path}", [])
        if desired.log_directory.startswith(tuple(f"{each}/" for each in _WORLD_WRITABLE)):
            sentence = (
                f"[mps] log_directory must lie below a directory only root can write, not {desired.log_directory}"
            )
            self.wrong("mps", "log_directory", sentence, [])
        if desired.pipe_directory == desired.log_directory:
            self.wrong("mps", "log_directory", "[mps] log_directory must differ from pipe_directory", [])

    def wrong(self, table: str, key: str, sentence: str, known: list[str]) -> None:
        if known:
            from difflib import get_close_matches  # only for a mistake

            near = get_close_matches(key, known, 1)
            sentence += f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
        self.mistakes.append(Mistake(self.line(table, key), sentence))

    def line(self, table: str, key: str) -> int:
        """Return the number of the line that sets `key`; 0 when it cannot be told."""
        current = ""
        for number, line in enumerate(self.lines, 1):
            bare = line.strip()
            if bare.startswith("["):
                current = bare.strip("[]").strip()
                if not table and current == key:
                    return number
            elif current == table and bare.split("=")[0].strip().strip("\"'") == key:
                return number
        return 0


def _quoted(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 80 else text[:77] + "…"  # noqa: PLR2004  # a line of a terminal


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


_CHECKS = {
    "path": _path,
    "percentage": _percentage,
    "count": _count,
    "flag": _flag,
    "name": _name,
    "seconds": _seconds,
    "mode": _mode,
}
