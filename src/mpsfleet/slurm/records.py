"""The text of `scontrol show nodes` cut into records and fields, before anything is known of what a field means.

A record starts with `NodeName=` at the start of a line. In the many-line form each further line starts with three
blanks. Some lines hold several fields; some hold one, whose value runs to the end of the line, and for Comment and
Extra beyond it (a Reason's further lines start with ten blanks). In the one-line form (`-o`) a field ends where a
later one of the known order begins.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mpsfleet.show import show

# In the order of printing, over all versions from 20.11 to 24.11.
_ORDER = tuple(
    """
    NodeName Arch CpuBind CoresPerSocket CPUAlloc CPUEfctv CPUErr
    CPUTot CPULoad AvailableFeatures ActiveFeatures Gres GresDrain GresUsed
    NodeAddr NodeHostName BcastAddr Port Version OS RealMemory
    AllocMem FreeMem Sockets Boards CoreSpecCount CPUSpecList MemSpecLimit
    RestrictedCoresPerGPU State ThreadsPerCore TmpDisk Weight Owner MCS_label
    NextState Partitions BootTime SlurmdStartTime LastBusyTime ResumeAfterTime SuspendTime CfgTRES
    AllocTRES CapWatts CurrentWatts AveWatts ExtSensorsJoules ExtSensorsWatts ExtSensorsTemp
    Reason Comment Extra InstanceId InstanceType ReservationName
    """.split(),  # noqa: SIM905  53 names are read more easily so
)
_PLACE = {key: place for place, key in enumerate(_ORDER)}
_PEOPLES = ("Comment", "Extra")  # what people write, line ends and all
_FREE = ("Reason", *_PEOPLES)
_AFTER_REASON = frozenset(_ORDER[_PLACE["Reason"] :])
_WHOLE_LINE = frozenset(
    {"AvailableFeatures", "ActiveFeatures", "Gres", "GresDrain", "GresUsed", "OS", "NextState", "Partitions"}
    | {"CfgTRES", "AllocTRES", "ReservationName", "Reason", *_PEOPLES},
)
_FIELD_LINE = re.compile(r"   ([A-Za-z][A-Za-z_]*)=(.*)", re.DOTALL)
_NEXT_FIELD = re.compile(r" +(?=[A-Z][A-Za-z_]*=)")
_CONTINUED_REASON = " " * 10
_BRACKET = re.compile(r" \[[^\[\]@ ]+@[^@\[\]]*\]")
_ANY_KEY = re.compile(r"(?<= )(" + "|".join(sorted(_ORDER, key=len, reverse=True)) + r")=")


class RecordError(ValueError):
    """A record that cannot be read, or can be read in two ways; names the field where it is known."""

    def __init__(self, field: str | None, sentence: str) -> None:
        """Keep the field beside the sentence."""
        super().__init__(sentence)
        self.field = field


class Record(NamedTuple):
    """The lines of one node, without line ends; the first starts with NodeName=."""

    name: str
    lines: tuple[str, ...]


def records_of(text: str) -> tuple[list[Record], list[str]]:
    """Cut the text at each line that starts with NodeName=; give the records, and lines before the first of them."""
    records: list[list[str]] = []
    strays: list[str] = []
    for line in text.split("\n"):  # not splitlines: it also cuts at form feeds and the like inside values
        if line.startswith("NodeName="):
            records.append([line])
        elif records:
            records[-1].append(line)
        elif line.strip(" ") and not line.startswith("Node data as of"):
            strays.append(line)
    return [Record(each[0][len("NodeName=") :].split(" ", 1)[0], tuple(each)) for each in records], strays


def fields_of(record: Record) -> dict[str, str]:
    """Give the fields of one record by name. Raises RecordError where that cannot be done without a guess."""
    first = record.lines[0]
    if " State=" in first:
        if any(line.strip(" ") for line in record.lines[1:]):
            raise RecordError(None, "a one-line record goes on in a second line")
        return _one_line(first)
    return _many_lines(record.lines)


def _many_lines(lines: tuple[str, ...]) -> dict[str, str]:
    fields: dict[str, str] = {}
    last = ""
    for line in ("   " + lines[0], *_without_end(lines[1:])):
        match = _FIELD_LINE.fullmatch(line)
        key = match.group(1) if match else ""
        if last == "Reason" and line.startswith(_CONTINUED_REASON):
            fields[last] += "\n" + line[len(_CONTINUED_REASON) :]
        elif last in _PEOPLES and key not in _AFTER_REASON:
            fields[last] += "\n" + line
        elif not line.strip(" "):
            continue  # 24.11 prints an empty line before Comment where there is no Reason
        elif match is None or (last in _PEOPLES and key == "Reason"):
            raise RecordError(
                last or None, f"{last or 'NodeName'} is followed by a line that Slurm does not print there"
            )
        elif key in _WHOLE_LINE:
            last = _put(fields, key, match.group(2))
        else:
            for part in _NEXT_FIELD.split(line.strip(" ")):
                name, _, value = part.partition("=")
                last = _put(fields, name, value)
    return fields


def _without_end(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Drop the empty lines that end a record."""
    end = len(lines)
    while end and not lines[end - 1].strip(" "):
        end -= 1
    return lines[:end]


def _put(fields: dict[str, str], key: str, value: str) -> str:
    if key in fields:
        raise RecordError(key, f"the field {show(key, 40)} is there twice")
    fields[key] = value
    return key


def _one_line(line: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key, start = "NodeName", len("NodeName=")
    for match in _ANY_KEY.finditer(line):
        if key in _FREE and match.group(1) not in _AFTER_REASON:
            continue  # printed before, so here it is part of what somebody wrote
        if _PLACE[match.group(1)] <= _PLACE[key]:
            raise RecordError(match.group(1), f"{match.group(1)}= stands inside {key} or twice; ask without -o")
        fields[key] = line[start : match.start()].strip(" ")
        key, start = match.group(1), match.end()
    fields[key] = line[start:].rstrip(" ")
    if "Reason" in fields:
        fields["Reason"] = _one_line_reason(fields["Reason"], line[line.index(" Reason=") :])
    return fields


def _one_line_reason(reason: str, tail: str) -> str:
    """Put the line ends of a reason of several lines back: there scontrol printed eight blanks, after the bracket."""
    brackets = list(_BRACKET.finditer(reason))
    if len(brackets) != len(_BRACKET.findall(tail)) or len(brackets) > 1:
        raise RecordError("Reason", "it is not clear where the reason ends; ask without -o")
    if not brackets:
        return reason
    end = brackets[0].end()
    return reason[:end] + reason[end:].replace(" " * 8, "\n")
