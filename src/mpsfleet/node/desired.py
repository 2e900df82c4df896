"""The desired state of a node: /etc/mpsfleet/node.toml as a value, every mistake with its place and the nearest name.

Parsing TOML costs more than asking a daemon, so the values of a file that was found right are kept beside the locks,
keyed by its device, inode, size and modification time.
"""

from __future__ import annotations

import sys

from mpsfleet.node.toml_values import CHECKS, WORLD_WRITABLE
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONFIG = "/etc/mpsfleet/node.toml"
DEFAULT_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  # where every CUDA program looks that is told no other
PIPE_DIRECTORY = "/run/nvidia-mps/node"  # the default of a node-wide daemon
SOCKET_PATH_LIMIT = 87  # bytes of a pipe directory: sun_path holds 107, and /control_privileged takes 19


class Share(NamedTuple):
    """Settings for some of the GPUs; None leaves the node's own."""

    gpus: tuple[int | str, ...] = ()
    active_thread_percentage: float | None = None
    memory_limit_mib: int | None = None
    client_priority: int | None = None
    multi_user: bool | None = None


class Desired(NamedTuple):
    """What a node should be. Paths are absolute and plain; seconds are seconds."""

    mode: str = "resident"
    daemons: str = "node"  # "node": one for all GPUs under MPS; "gpu": one for each
    control_binary: str = "/usr/bin/nvidia-cuda-mps-control"
    pipe_directory: str = PIPE_DIRECTORY
    log_directory: str = "/var/log/nvidia-mps"
    active_thread_percentage: float = 100.0
    memory_limit_mib: int = 0  # device memory a client may pin, of each GPU; 0: no limit
    client_priority: int = 0  # 0 normal, 1 below normal
    multi_user: bool = False  # one server for the clients of all users; drivers from 580 on
    shares: tuple[Share, ...] = ()
    mps_gpus: tuple[int | str, ...] = ()  # indices, UUIDs, parts of a model's name; (): all
    compute_mode: str = ""  # "default" | "exclusive_process"; "": left as it is
    gpus_expected: int = -1  # -1: not checked
    audit_minutes: int = 0  # of the audit's timer; 0: none
    nhc: bool = False  # a check for LBNL NHC
    profile: bool = False  # logins are told the pipe directory
    slurm_enabled: bool = True
    node_name: str = ""  # "": the short host name
    cluster: str = ""
    publish: bool = True  # the health check keeps the node's Extra or Comment
    own_reset: bool = False  # the health check has daemons put right
    own_drain: bool = False  # the health check drains the node, as best effort
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
        "daemons": _Key("daemons", "daemons"),
        "active_thread_percentage": _Key("active_thread_percentage", "percentage"),
        "pinned_memory_limit": _Key("memory_limit_mib", "memory"),
        "client_priority": _Key("client_priority", "priority"),
        "multi_user": _Key("multi_user", "flag"),
    },
    "gpus": {
        "mps": _Key("mps_gpus", "selectors or all"),
        "compute_mode": _Key("compute_mode", "compute mode"),
        "expected": _Key("gpus_expected", "count"),
    },
    "audit": {
        "timer_minutes": _Key("audit_minutes", "minutes"),
        "nhc": _Key("nhc", "flag"),
    },
    "jobs": {"profile": _Key("profile", "flag")},
    "slurm": {
        "enabled": _Key("slurm_enabled", "flag"),
        "node_name": _Key("node_name", "name"),
        "cluster": _Key("cluster", "name"),
        "publish": _Key("publish", "flag"),
        "own_reset": _Key("own_reset", "flag"),
        "own_drain": _Key("own_drain", "flag"),
    },
    "limits": {
        "query_timeout_s": _Key("query_timeout_s", "seconds"),
        "nvidia_smi_timeout_s": _Key("nvidia_smi_timeout_s", "seconds"),
    },
}
_SHARE: dict[str, _Key] = {
    "gpus": _Key("gpus", "selectors"),
    "active_thread_percentage": _KEYS["mps"]["active_thread_percentage"],
    "pinned_memory_limit": _KEYS["mps"]["pinned_memory_limit"],
    "client_priority": _KEYS["mps"]["client_priority"],
    "multi_user": _KEYS["mps"]["multi_user"],
}
_LONGEST_INDEX = 5  # characters that "_" and a GPU's index add to a pipe directory


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
            elif name == "share":
                values["shares"] = self.shares(content)
            else:
                known = [each for each in _KEYS if each] + list(_KEYS[""]) + ["schema", "share"]
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
        good, message = CHECKS[known.kind](value)
        if message:
            self.wrong(table, key, f"{where} {message}, not {_quoted(value)}", [])
        else:
            values[known.field] = good

    def shares(self, content: Any) -> tuple[Share, ...]:  # noqa: ANN401  # TOML's own types
        """Read the [[share]] tables; each names its GPUs and at least one setting."""
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            self.wrong("", "share", "shares are written as [[share]] tables", [])
            return ()
        found = []
        for number, table in enumerate(content, 1):
            values: dict[str, Any] = {}
            for key, value in table.items():
                if key not in _SHARE:
                    self.wrong("share", key, f"unknown key {_quoted(key)} in [[share]] {number}", list(_SHARE), number)
                    continue
                good, message = CHECKS[_SHARE[key].kind](value)
                if message:
                    self.wrong("share", key, f"[[share]] {number} {key} {message}, not {_quoted(value)}", [], number)
                else:
                    values[_SHARE[key].field] = good
            if "gpus" not in table or len(table) == 1:
                self.wrong(
                    "share", "", f"[[share]] {number} must say gpus = [...] and at least one setting", [], number
                )
            found.append(Share(**values))
        return tuple(found)

    def together(self, desired: Desired) -> None:
        most = SOCKET_PATH_LIMIT - (0 if desired.daemons == "node" else _LONGEST_INDEX)
        for key in ("pipe_directory", "log_directory"):
            path = getattr(desired, key)
            if len(path) > most and key == "pipe_directory":
                sentence = (
                    f"[mps] pipe_directory has {len(path)} characters; the daemon's sockets allow {most}"
                    f"{'' if most == SOCKET_PATH_LIMIT else ' with a GPU after it'}, so choose a shorter path"
                )
                self.wrong("mps", key, sentence, [])
            if path in ("/", "/run", "/var", "/etc", "/usr", "/var/log", "/root", "/home", *WORLD_WRITABLE):
                self.wrong("mps", key, f"[mps] {key} must be a directory of its own, not {path}", [])
        if desired.log_directory.startswith(tuple(f"{each}/" for each in WORLD_WRITABLE)):
            sentence = (
                f"[mps] log_directory must lie below a directory only root can write, not {desired.log_directory}"
            )
            self.wrong("mps", "log_directory", sentence, [])
        if _logs_in_pipe_directory(desired):
            sentence = "[mps] log_directory must differ from every pipe directory and lie in none"
            self.wrong("mps", "log_directory", sentence, [])
        if desired.daemons == "node" and any(
            (each.active_thread_percentage, each.client_priority, each.multi_user) != (None, None, None)
            for each in desired.shares
        ):
            sentence = (
                "a [[share]] of thread percentage, priority or multi_user needs a daemon for each GPU: "
                '[mps] daemons = "gpu"'
            )
            self.wrong("share", "", sentence, [])

    def wrong(self, table: str, key: str, sentence: str, known: list[str], nth: int = 1) -> None:
        if known:
            from difflib import get_close_matches  # only for a mistake

            near = get_close_matches(key, known, 1)
            sentence += f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
        self.mistakes.append(Mistake(self.line(table, key, nth), sentence))

    def line(self, table: str, key: str, nth: int) -> int:
        """Return the number of the line that sets `key` in the nth table of that name; 0 when it cannot be told."""
        current, seen = "", 0
        for number, line in enumerate(self.lines, 1):
            bare = line.strip()
            if bare.startswith("["):
                current = bare.strip("[]").strip()
                seen += current == table
                if (not table and current == key) or (not key and current == table and seen == nth):
                    return number
            elif current == table and (not table or seen == nth) and bare.split("=")[0].strip().strip("\"'") == key:
                return number
        return 0


def _logs_in_pipe_directory(desired: Desired) -> bool:
    """Tell whether logs would lie where a daemon makes its own names, from which `prepare` clears the others."""
    if desired.daemons == "node":
        return f"{desired.log_directory}/".startswith(f"{desired.pipe_directory}/")
    is_default = desired.pipe_directory == PIPE_DIRECTORY
    stem = f"{desired.pipe_directory.rpartition('/')[0]}/" if is_default else f"{desired.pipe_directory}_"
    path = f"{desired.log_directory}/0"
    return path.startswith(stem) and path[len(stem) :].partition("/")[0].isdigit()


def _quoted(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 80 else text[:77] + "…"  # noqa: PLR2004  # a line of a terminal
