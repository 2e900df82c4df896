"""nvidia-smi: one query for all GPUs, and its answer as values. Unsupported, error and silence stay apart.

Sources: nvidia-smi's manual page for the exit statuses and fields; the tokens in brackets are as it prints them. A
driver that does not know a field names it and answers nothing: it is asked once more, without that one and the newer.
"""

from __future__ import annotations

import os

from mpsfleet.node.gpu_facts import bus_of, outcome
from mpsfleet.node.host import children, files
from mpsfleet.node.model import Gpu, Gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command

# In the order of Gpu's own fields. The first seven are known to every driver; then the first driver that knows each.
_ALWAYS = ("index", "uuid", "pci.bus_id", "name", "driver_version", "compute_mode", "memory.total")
_SINCE = (
    ("mig.mode.current", 450),
    ("ecc.errors.uncorrected.volatile.total", 304),
    ("gpu_recovery_action", 570),
)
_PLACES = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/opt/bin/nvidia-smi")
_EXIT = {
    2: "bad argument",
    4: "no permission",
    6: "nothing found",
    9: "the NVIDIA driver is not loaded",
    12: "the NVML library is not found",
    14: "the infoROM is corrupted",
    15: "a GPU has fallen off the bus",
    255: "other error",
}
_BAD_FIELD = '" is not a valid field to query'
_BAD_INFOROM = "WARNING: infoROM is corrupted at gpu "
_VERSION = "/proc/driver/nvidia/version"


def tool(host: Host) -> str:
    """Return the nvidia-smi of the node, as a path of this machine; the usual place where there is none."""
    paths = tuple(host.path(each) for each in _PLACES)
    return next((each for each in paths if os.path.exists(each)), paths[0])


def driver_version(host: Host) -> str:
    """Return the version of the loaded kernel module, as in 535.261.03; "" where none is loaded.

    /proc/driver/nvidia/version names it behind "Kernel Module", or "Kernel Module for x86_64" for the open one.
    """
    try:
        text = files.read(host.path(_VERSION), 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    words = text.partition("Kernel Module")[2].split()
    return next((each for each in words if "." in each and each.replace(".", "").isdigit()), "")


def fields(version: str) -> tuple[str, ...]:
    """Return what is asked of a driver of that version; of one whose version is not known, what 470 knows."""
    major = version.partition(".")[0]
    known = int(major) if major.isdigit() else 470
    return (*_ALWAYS, *(name for name, since in _SINCE if since <= known))


class Query:
    """The question about all GPUs: asked once, and once more where the driver does not know a field."""

    def __init__(self, host: Host, limit_s: float) -> None:
        self._tool = tool(host)
        self._limit_s = limit_s
        self._version = driver_version(host)
        self._asked = fields(self._version)
        self._is_first = True

    def command(self) -> Command:
        """Return the query."""
        argv = (self._tool, f"--query-gpu={','.join(self._asked)}", "--format=csv,noheader")
        return children.Command(argv, self._limit_s)

    def again(self, answer: Answer) -> Command | None:
        """Return the second query where the answer is that a field is not known; else None."""
        fewer = known_fields(answer, self._asked)
        if fewer is None or not self._is_first:
            return None
        self._asked, self._is_first = fewer, False
        return self.command()

    def understand(self, answer: Answer) -> Gpus:
        """Return the last answer as values."""
        return understand(answer, self._limit_s, self._version)


def ask(host: Host, limit_s: float) -> Gpus:
    """Ask nvidia-smi alone."""
    query = Query(host, limit_s)
    (answer,) = children.run((query.command(),), lambda _, answer: query.again(answer))
    return query.understand(answer)


def known_fields(answer: Answer, asked: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what to ask instead, when the answer is that the driver does not know a field; else None."""
    before, found, _ = f"{answer.out}\n{answer.err}".partition(_BAD_FIELD)
    name = before.rpartition('"')[2]
    if not found or not answer.rc or name in _ALWAYS or name not in asked:
        return None
    return asked[: asked.index(name)]


def understand(answer: Answer, limit_s: float, version: str = "") -> Gpus:
    """Return the rows of nvidia-smi, or how it failed; rows beside a warning or a non-zero exit are kept.

    So are the rows before a silence, which tell at which GPU it began. `version` is the loaded kernel module's.
    """
    if answer.missing:
        return Gpus((), "missing", driver=version)
    said = f"{answer.out}\n{answer.err}"
    ended = answer.out if answer.rc is not None else answer.out[: answer.out.rfind("\n") + 1]
    gpus = _rows(ended)
    if answer.rc is None:
        how = "answered without end" if answer.capped else f"did not answer within {limit_s:g} s"
        told = f" (it told of {len(gpus)} GPU{'s' * (len(gpus) != 1)} before)" if gpus else ""
        return Gpus(gpus, "timeout", f"{how}{told}", state=answer.state, driver=version)
    if "Driver/library version mismatch" in said:
        return Gpus((), "mismatch", _library(said), answer.rc, driver=version)
    how, detail = ("ok", "") if gpus else _failure(said, answer.rc)
    return Gpus(gpus, how, detail, answer.rc, inforoms=_inforoms(said), driver=version)


def _failure(said: str, rc: int) -> tuple[str, str]:
    if "No devices were found" in said:
        return "none-found", "No devices were found"
    if "communicate with the NVIDIA driver" in said or rc == 9:  # noqa: PLR2004  # its exit status
        return "no-driver", "it cannot communicate with the NVIDIA driver"
    first = next((line.strip() for line in said.splitlines() if line.strip()), "no output")
    return "failed", f"exit status {rc} ({_EXIT.get(rc, 'not documented')}): {first}"


def _rows(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs among the lines. All rows of one answer are as long; another line is a warning between them."""
    rows = [cells for line in text.split("\n") if _is_row(cells := [cell.strip() for cell in line.split(",")])]
    longest = max(map(len, rows), default=0)
    not_asked = [""] * (len(Gpu._fields) - longest)
    return tuple(Gpu(*cells, *not_asked) for cells in rows if len(cells) == longest)


def _is_row(cells: list[str]) -> bool:
    if not len(_ALWAYS) <= len(cells) <= len(Gpu._fields):
        return False
    return cells[0].isdigit() or cells[1].startswith("GPU-") or outcome(cells[0]) in ("lost", "reset", "error")


def _library(said: str) -> str:
    for line in said.splitlines():
        if line.strip().startswith("NVML library version"):
            return line.partition(":")[2].strip()
    return ""


def _inforoms(said: str) -> tuple[str, ...]:
    if _BAD_INFOROM not in said:
        return ()
    places = (line.strip()[len(_BAD_INFOROM) :] for line in said.splitlines() if line.strip().startswith(_BAD_INFOROM))
    return tuple(dict.fromkeys(bus for each in places if (bus := bus_of(each))))
