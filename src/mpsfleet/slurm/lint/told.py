"""What both files tell one node, and its GPUs as recorded there; nodes that are told the same are one value."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mpsfleet.errors import MpsfleetError
from mpsfleet.slurm import gres as gres_words
from mpsfleet.slurm.lint.gres_conf import SHARED

if TYPE_CHECKING:
    from mpsfleet.slurm.lint.findings import Place
    from mpsfleet.slurm.lint.gres_conf import GresConf, Record
    from mpsfleet.slurm.lint.slurm_conf import NodeLine, SlurmConf

_MINOR = re.compile(r"/dev/nvidia([0-9]{1,4})")
_SCHEMA = 1


class Gpu(NamedTuple):
    """One GPU of the node's record. `minor` is N of /dev/nvidiaN, -1 where it is not known."""

    minor: int
    name: str
    is_under_mps: bool


class RecordError(MpsfleetError):
    """The record of GPUs is not one."""


@dataclass(frozen=True)
class Told:
    """What slurm.conf and gres.conf say about some nodes, alike for all of them."""

    names: tuple[str, ...]
    line: NodeLine
    records: tuple[Record, ...]
    is_detected: bool  # GPUs are found by AutoDetect

    @property
    def place(self) -> Place:
        """Where the nodes' Gres stands, or else their line."""
        return self.line.gres.place if self.line.gres else self.line.place

    def claimed(self, name: str) -> int:
        """Give how many of a resource slurm.conf says there are."""
        return gres_words.count_of(self.line.claimed, name)

    def of(self, name: str) -> tuple[Record, ...]:
        """Give the lines of gres.conf for a resource."""
        return tuple(each for each in self.records if each.name == name)

    @property
    def gpu_files(self) -> tuple[str, ...]:
        """The device file of every GPU that a gpu line names, in order; of several files all in one word."""
        return tuple(file for each in self.of("gpu") for file in each.devices)

    def per_file(self, name: str) -> dict[str, int]:
        """Give how many shares of `name` each GPU has, by device file; {} where it is not known."""
        files = self.gpu_files
        lines = self.of(name)
        shares: dict[str, int] = {}
        if not files or not self.claimed(name):
            return shares
        if not any(each.files for each in lines):
            return dict.fromkeys(files, self.claimed(name) // len(files))
        for each in lines:
            for file in each.devices:
                shares[file] = shares.get(file, 0) + each.total // len(each.devices)
        return shares


def tell(conf: SlurmConf, gres: GresConf | None, only: str | None) -> tuple[Told, ...]:
    """Join the files for every node, or for one.

    Lines of gres.conf without NodeName are meant for whoever has the file: among all nodes, for those with a GRES.
    """
    found: dict[tuple[int, tuple[int, ...], bool], tuple[list[str], NodeLine, tuple[Record, ...], bool]] = {}
    by_name, for_all = _by_node(gres)
    detect_by_name, detect_all = _detection(gres)
    seen: set[str] = set()
    for number, line in enumerate(conf.nodes):
        for name in line.names:
            if only not in (None, name) or name in seen:  # a second line of a node is a finding of its own
                continue
            seen.add(name)
            everybodys = for_all if line.claimed or only is not None else []
            records = tuple(sorted((*everybodys, *by_name.get(name, ())), key=lambda each: each[0]))
            is_detected = detect_by_name.get(name, detect_all)
            key = (number, tuple(each[0] for each in records), is_detected)
            found.setdefault(key, ([], line, tuple(each[1] for each in records), is_detected))[0].append(name)
    return tuple(Told(tuple(names), line, records, detected) for names, line, records, detected in found.values())


_Numbered = tuple[int, "Record"]


def _by_node(gres: GresConf | None) -> tuple[dict[str, list[_Numbered]], list[_Numbered]]:
    by_name: dict[str, list[_Numbered]] = {}
    for_all: list[_Numbered] = []
    for numbered in enumerate(gres.records if gres else ()):
        if numbered[1].nodes is None:
            for_all.append(numbered)
        for name in numbered[1].nodes or ():
            by_name.setdefault(name, []).append(numbered)
    return by_name, for_all


def _detection(gres: GresConf | None) -> tuple[dict[str, bool], bool]:
    by_name, for_all = {}, False
    for each in gres.autodetect if gres else ():
        if each.nodes is None:
            for_all = each.is_on
        by_name.update(dict.fromkeys(each.nodes or (), each.is_on))
    return by_name, for_all


def shares(told: Told) -> bool:
    """Tell whether the nodes share GPUs by mps or shard."""
    return any(told.claimed(name) for name in SHARED)


def minor_of(file: str) -> int | None:
    """Give N of /dev/nvidiaN; None for another file, such as /dev/null of a test."""
    match = _MINOR.fullmatch(file)
    return int(match.group(1)) if match else None


def gpus_of(text: str) -> tuple[Gpu, ...]:
    """Read a node's record of GPUs (/etc/mpsfleet/gpus.json). Raises RecordError."""
    try:
        document = json.loads(text)
        if document["schema"] != _SCHEMA:
            raise RecordError("The record of GPUs is of another version of mpsfleet.")
        return tuple(_gpu(each) for each in document["gpus"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RecordError("The record of GPUs is not what mpsfleet writes (/etc/mpsfleet/gpus.json).") from None


def _gpu(values: dict[str, Any]) -> Gpu:
    minor, name, instance = values["minor"], values["name"], values["instance"]
    if type(minor) is not int or not isinstance(name, str) or not isinstance(instance, str):
        raise TypeError
    return Gpu(minor, name, instance != "")
