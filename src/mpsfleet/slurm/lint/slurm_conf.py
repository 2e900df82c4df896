"""slurm.conf as values: the settings that concern MPS, the nodes with their GRES, the partitions.

NodeName=DEFAULT and PartitionName=DEFAULT set what later lines of the kind do not say themselves; a further DEFAULT
line changes those keys alone (slurm.conf(5); seen on 22.05).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpsfleet.slurm import gres as gres_words
from mpsfleet.slurm import hostlist
from mpsfleet.slurm.lint import settings
from mpsfleet.slurm.lint.findings import Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.lint.settings import Line, Setting, Source

HOOKS = ("prolog", "epilog", "taskprolog", "healthcheckprogram")
_SEVERAL = frozenset({"prolog", "epilog"})  # may stand more than once from 24.05 on
_KEYS = frozenset(
    {"grestypes", "selecttype", "selecttypeparameters", "prologflags", "jobcontainertype", "namespacetype", *HOOKS}
)
_LINE_KINDS = frozenset({"nodename", "partitionname", "downnodes", "frontendname", "nodeset"})
_DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class NodeLine:
    """One NodeName line."""

    line: Line
    names: tuple[str, ...]
    gres: Setting | None  # as written, of the line or of a DEFAULT line
    claimed: tuple[gres_words.Gres, ...]  # the same as values; () where it is not understood

    @property
    def place(self) -> Place:
        """Where the line begins."""
        return self.line.place


@dataclass(frozen=True)
class Partition:
    """One PartitionName line."""

    line: Line
    name: str
    nodes: frozenset[str]
    is_all: bool
    is_one_users: bool  # no two users on a node at once

    @property
    def place(self) -> Place:
        """Where the line begins."""
        return self.line.place

    def has(self, node: str) -> bool:
        """Tell whether a node is in it."""
        return self.is_all or node in self.nodes


@dataclass(frozen=True)
class SlurmConf:
    """The file with all that it includes."""

    path: str
    scalars: tuple[Setting, ...]  # of the keys that concern MPS, in order
    nodes: tuple[NodeLine, ...]
    partitions: tuple[Partition, ...]
    findings: tuple[Finding, ...]

    def get(self, key: str) -> Setting | None:
        """Give the setting of a key (lower case) that Slurm uses, the last one."""
        found = [each for each in self.scalars if each.key.lower() == key]
        return found[-1] if found else None


def parse(path: str, text: str, source: Source) -> SlurmConf:
    """Read slurm.conf. What is wrong in it is among the findings; nothing raises."""
    read = settings.read(path, text, source, _LINE_KINDS, lambda kind: kind in _KEYS | _LINE_KINDS or not kind)
    findings = list(read.findings)
    scalars = tuple(line.settings[0] for line in read.lines if line.kind in _KEYS)
    findings += _repeated(scalars)
    nodes = tuple(_nodes(read.lines, findings))
    partitions = tuple(_partitions(read.lines, findings))
    return SlurmConf(path, scalars, nodes, partitions, tuple(findings))


def _repeated(scalars: tuple[Setting, ...]) -> Iterator[Finding]:
    first: dict[str, Setting] = {}
    for each in scalars:
        key = each.key.lower()
        if key in first and key not in _SEVERAL:
            where = f"{first[key].place.file}:{first[key].place.line}"
            yield Finding("key-repeated", each.place, f"{each.key} stands at {where} too; that one is not used")
        first[key] = each


def _nodes(lines: tuple[Line, ...], findings: list[Finding]) -> Iterator[NodeLine]:
    default: dict[str, Setting] = {}
    for line in lines:
        if line.kind != "nodename":
            continue
        own = line.last()
        if own["nodename"].value.upper() == _DEFAULT:
            default = {**default, **own}
            continue
        names = names_of(own["nodename"], findings)
        setting = {**default, **own}.get("gres")
        claimed: tuple[gres_words.Gres, ...] = ()
        if setting is not None:
            if setting.value.endswith(","):
                findings.append(Finding("gres-comma", setting.place, "Gres ends with a comma", names))
            try:
                claimed = gres_words.parse(setting.value)
            except gres_words.GresError as error:
                findings.append(Finding("gres-not-understood", setting.place, str(error), names))
        yield NodeLine(line, names, setting, claimed)


def _partitions(lines: tuple[Line, ...], findings: list[Finding]) -> Iterator[Partition]:
    default: dict[str, Setting] = {}
    for line in lines:
        if line.kind != "partitionname":
            continue
        own = line.last()
        if own["partitionname"].value.upper() == _DEFAULT:
            default = {**default, **own}
            continue
        told = {**default, **own}
        nodes = told.get("nodes")
        is_all = nodes is not None and nodes.value.upper() == "ALL"
        names = () if nodes is None or is_all else names_of(nodes, findings)
        yield Partition(line, own["partitionname"].value, frozenset(names), is_all, _is_one_users(told))


def _is_one_users(told: dict[str, Setting]) -> bool:
    words = {key: told[key].value.upper() for key in ("exclusiveuser", "oversubscribe", "shared") if key in told}
    is_exclusive = "EXCLUSIVE" in (words.get("oversubscribe"), words.get("shared"))
    return words.get("exclusiveuser") in ("YES", "TRUE") or is_exclusive


def names_of(setting: Setting, findings: list[Finding]) -> tuple[str, ...]:
    """Give the names of a host list, () with a finding where it is none."""
    try:
        return hostlist.expand(setting.value)
    except hostlist.EmptyEntry as error:
        findings.append(Finding("list-comma", setting.place, f"{setting.key}: {error}"))
        return hostlist.expand(setting.value, skip_empty=True)
    except hostlist.HostlistError as error:
        findings.append(Finding("line-not-understood", setting.place, f"{setting.key}: {error}"))
        return ()
