"""gres.conf as values: one record for each line with Name, and where GPUs are found by AutoDetect.

A line begins with Name or NodeName; NodeName after Name ends slurmd (seen on 22.05). Count is the sum over the files of
a line (mps, shard); of a gpu line it may only be the number of its files.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpsfleet.slurm.lint import settings
from mpsfleet.slurm.lint.findings import Finding, Place
from mpsfleet.slurm.lint.slurm_conf import names_of

if TYPE_CHECKING:
    from mpsfleet.slurm.lint.settings import Line, Setting, Source

SHARED = ("mps", "shard")
DETECTORS = ("nvml", "nvidia", "rsmi", "oneapi", "nrt")  # of AutoDetect; several may stand in one value
_OFF = "off"
_KEYS = (
    "AutoDetect", "Count", "CPUs", "Cores", "File", "Files", "Flags", "Link", "Links", "MultipleFiles", "Name",
    "NodeName", "Type",
)  # fmt: skip
_BY_LOWER = {each.lower(): each for each in _KEYS}
_KINDS = frozenset({"name", "nodename"})
_COUNT = re.compile(r"([0-9]{1,18})([KMGTP]?)", re.IGNORECASE)
_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


@dataclass(frozen=True)
class Record:
    """One line with Name."""

    place: Place
    nodes: tuple[str, ...] | None  # None: for every node that reads the file
    name: str
    type: str | None
    count: int | None  # as written; None where it is not
    files: tuple[str, ...]
    is_multiple: bool = False  # MultipleFiles: all files are one GPU

    @property
    def devices(self) -> tuple[str, ...]:
        """One word for each GPU: its file, or all its files (a MIG device has several)."""
        return (",".join(self.files),) if self.is_multiple and self.files else self.files

    @property
    def total(self) -> int:
        """How many there are."""
        return max(len(self.devices), 1) if self.count is None else self.count


@dataclass(frozen=True)
class AutoDetect:
    """Whether slurmd finds the GPUs by itself."""

    nodes: tuple[str, ...] | None
    is_on: bool


@dataclass(frozen=True)
class GresConf:
    """The file with all that it includes."""

    path: str
    records: tuple[Record, ...]
    autodetect: tuple[AutoDetect, ...]
    findings: tuple[Finding, ...]


def parse(path: str, text: str, source: Source) -> GresConf:
    """Read gres.conf. What is wrong in it is among the findings; nothing raises."""
    read = settings.read(path, text, source, _KINDS, lambda _: True)
    findings = list(read.findings)
    records: list[Record] = []
    detect: list[AutoDetect] = []
    for line in read.lines:
        findings += [found for each in line.settings for found in _of_key(line, each)]
        told = line.last()
        nodes = names_of(told["nodename"], findings) if "nodename" in told else None
        if "autodetect" in told:
            detect.append(_autodetect(nodes, told["autodetect"], findings))
        if "name" in told:
            records.append(_record(line.place, nodes, told, findings))
    return GresConf(path, tuple(records), tuple(detect), tuple(findings))


def _autodetect(nodes: tuple[str, ...] | None, setting: Setting, findings: list[Finding]) -> AutoDetect:
    word = setting.value.lower()
    is_on = any(each in word for each in DETECTORS)
    if not is_on and word != _OFF:
        message = f"AutoDetect={setting.value[:40]} is none of {', '.join((*DETECTORS, _OFF))}"
        findings.append(Finding("autodetect-unknown", setting.place, message))
    return AutoDetect(nodes, is_on)


def _of_key(line: Line, setting: Setting) -> list[Finding]:
    key = setting.key.lower()
    found = []
    if key not in _BY_LOWER:
        near = difflib.get_close_matches(key, _BY_LOWER, 1, 0.5)
        meant = f"; {_BY_LOWER[near[0]]} is one" if near else ""
        found.append(Finding("key-unknown", setting.place, f"{setting.key[:40]} is no key of gres.conf{meant}"))
    if key == "nodename" and line.kind == "name":
        found.append(Finding("key-unknown", setting.place, "NodeName stands after Name; it must come first"))
    if key == "cpus":
        found.append(
            Finding("cpus-key", setting.place, "CPUs is the old name of Cores and does not take thread numbers")
        )
    if sum(each.key.lower() == key for each in line.settings) > 1 and setting is not line.last()[key]:
        found.append(Finding("key-repeated", setting.place, f"{setting.key} stands twice on the line"))
    return found


def _record(place: Place, nodes: tuple[str, ...] | None, told: dict[str, Setting], findings: list[Finding]) -> Record:
    name = told["name"].value.lower()
    if name in ("gpu", *SHARED) and name != told["name"].value:
        findings.append(Finding("gres-name-case", place, f"Name={told['name'].value} is not Name={name}"))
    is_multiple = "multiplefiles" in told
    written = told.get("multiplefiles") or told.get("file") or told.get("files")
    files = names_of(written, findings) if written else ()
    count = None
    if "count" in told:
        match = _COUNT.fullmatch(told["count"].value)
        if match is None:
            findings.append(Finding("count-invalid", place, f"Count={told['count'].value[:40]} is not a count"))
        else:
            count = int(match.group(1)) * _UNIT[match.group(2).upper()]
    if name not in SHARED and files and not is_multiple and count not in (None, len(files)):
        message = f"Name={name} has Count={count} and {len(files)} device file(s)"
        findings.append(Finding("count-not-files", place, message))
    return Record(place, nodes, name, told["type"].value if "type" in told else None, count, files, is_multiple)
