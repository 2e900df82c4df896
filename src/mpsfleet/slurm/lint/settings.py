"""A file of Slurm's as logical lines of key and value, each with its place; Include is followed.

What the text means is Slurm's own (src/common/parse_config.c; seen on 22.05 and 24.11): `#` begins a comment unless a
backslash stands before it, also inside quotes; a line whose last character but spaces is a backslash goes on in the
next; a comment ends a continued line; keys are of any case; a value holds spaces only in double quotes; `Include PATH`
is read in its place, and PATH without a directory is looked up beside the first file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, NamedTuple, Union

from mpsfleet.slurm.commands import Unreadable
from mpsfleet.slurm.lint.findings import Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_FILES = 256
MOST_NESTED = 16
_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:\"([^\"]*)\"|(\S+))(?:\s|$)", re.ASCII)
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.ASCII | re.IGNORECASE)
_LAST_BACKSLASHES = re.compile(r"(\\+)\s*$", re.ASCII)

Source = Callable[[str], Union[str, Unreadable, None]]  # a path to its text; None where there is no such file


class Setting(NamedTuple):
    """One key with its value, as written, and where."""

    key: str
    value: str
    place: Place


class Line(NamedTuple):
    """One logical line: its first key decides what it is about."""

    place: Place
    settings: tuple[Setting, ...]

    @property
    def kind(self) -> str:
        """The first key, in lower case."""
        return self.settings[0].key.lower()

    def last(self) -> dict[str, Setting]:
        """Give the settings by key in lower case; of a key that stands twice the last one, which Slurm uses."""
        return {each.key.lower(): each for each in self.settings}


@dataclass
class _Reading:
    """What is gathered while files are read."""

    source: Source
    directory: str
    line_kinds: frozenset[str]
    is_strict: Callable[[str], bool]
    lines: list[Line] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    count: int = 0


class Read(NamedTuple):
    """A file with all that it includes."""

    lines: tuple[Line, ...]
    findings: tuple[Finding, ...]


def read(path: str, text: str, source: Source, line_kinds: Iterable[str], is_strict: Callable[[str], bool]) -> Read:
    """Read a text that lies at `path`, and through `source` what it includes.

    `line_kinds`: the first keys (lower case) after which further keys may stand on the line. `is_strict` tells for a
    first key in lower case whether a line that is not understood is a mistake for certain: of a key that this program
    does not know, it does not know the form either.
    """
    reading = _Reading(source, os.path.dirname(path), frozenset(line_kinds), is_strict)
    _read_text(reading, path, text, (path,))
    return Read(tuple(reading.lines), tuple(reading.findings))


def _read_text(reading: _Reading, path: str, text: str, open_files: tuple[str, ...]) -> None:
    for number, words in logical_lines(text):
        place = Place(path, number)
        include = _INCLUDE.match(words)
        if include:
            _include(reading, place, include.group(1), open_files)
        elif words.strip():
            _line(reading, place, words)


def _include(reading: _Reading, place: Place, name: str, open_files: tuple[str, ...]) -> None:
    path = name if name.startswith("/") else os.path.join(reading.directory, name)
    reading.count += 1
    if path in open_files or len(open_files) > MOST_NESTED or reading.count > MOST_FILES:
        what = "includes itself" if path in open_files else "includes too many files"
        reading.findings.append(Finding("include-cycle", place, f"{path} {what}"))
        return
    text = reading.source(path)
    if text is None:
        reading.findings.append(Finding("include-missing", place, f"there is no file {path}"))
    elif isinstance(text, Unreadable):
        reading.findings.append(Finding("unreadable", place, f"{path} cannot be read: {text.reason}"))
    else:
        _read_text(reading, path, text, (*open_files, path))


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Give each logical line with the number of its first line (from 1), without comments and escapes."""
    parts: list[str] = []
    first = 1
    for number, raw in enumerate(text.split("\n"), 1):
        line = _without_comment(raw)
        first = first if parts else number
        end = _LAST_BACKSLASHES.search(line)
        if end and len(end.group(1)) % 2:
            parts.append(line[: end.end(1) - 1])
            continue
        yield first, _without_escapes("".join((*parts, line)))
        parts = []
    if parts:
        yield first, _without_escapes("".join(parts))


def _without_comment(line: str) -> str:
    for match in re.finditer(r"(\\*)#", line):
        if len(match.group(1)) % 2 == 0:
            return line[: match.end() - 1]
    return line


def _without_escapes(line: str) -> str:
    return re.sub(r"\\(.?)", r"\1", line, flags=re.DOTALL) if "\\" in line else line


def _line(reading: _Reading, place: Place, words: str) -> None:
    settings: list[Setting] = []
    position = 0
    while position < len(words):
        match = _PAIR.match(words, position)
        if match is None:
            break
        value = match.group(4) if match.group(3) is None else match.group(3)
        settings.append(Setting(match.group(1), value, place))
        position = match.end()
    is_whole = not words[position:].strip()
    kind = settings[0].key.lower() if settings else ""
    is_one = len(settings) == 1 or kind in reading.line_kinds
    if not settings or (reading.is_strict(kind) and not (is_whole and is_one)):
        after = f" after {settings[-1].key}" if settings else ""
        reading.findings.append(Finding("line-not-understood", place, f"the line is not key=value{after}"))
    if settings:
        reading.lines.append(Line(place, tuple(settings if is_one else settings[:1])))
