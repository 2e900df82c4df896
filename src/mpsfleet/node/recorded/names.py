"""What a recording tells about people and machines, replaced by invented words: equal ones stay equal.

Replaced are the names of the node, its domain and its cluster, of people who have an account here, network addresses
and the UUIDs of GPUs. Numbers stay: process and user numbers, versions, sizes, positions on the PCI bus.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable

from mpsfleet.node.host import files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.node.host import Host

_FIRST_PERSON = 1000  # below that are the system's own users (login.defs, UID_MIN)
_NOBODY = 65534
_SHORTEST = 2  # a name of one letter is in every word
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_ADDRESSES = (
    ("192.0.2.", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")),
    ("02:00:00:00:00:", re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")),
    ("2001:db8::", re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){3,7}(?::|[0-9a-fA-F]{1,4})(?![\w:.])")),
)


def replaced(documents: tuple[Any, ...], node: str, host: Host) -> tuple[Any, ...]:
    """Return the documents of one recording with invented names, the same in all."""
    texts = [each for document in documents for each in _texts(document)]
    words: dict[str, str] = {}
    for word, invented in (*_machines(documents, node, host), *_people(host)):
        if len(word) >= _SHORTEST:
            words.setdefault(word, invented)
    for number, uuid in enumerate(_found(_UUID, texts)):
        words[uuid] = f"00000000-0000-4000-8000-{number:012d}"
    for prefix, pattern in _ADDRESSES:
        for number, address in enumerate(_found(pattern, texts), 1):
            words.setdefault(address, f"{prefix}{number}")
    if not words:
        return documents
    longest_first = sorted(words, key=len, reverse=True)
    whole = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])")
    return each_text(documents, lambda text: whole.sub(lambda found: words[found[0]], text))  # type: ignore[no-any-return]


def each_text(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401  # JSON
    """Return a document with every text changed, be it a member's name or a value."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): each_text(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(each_text(each, change) for each in value)
    return value


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  # JSON
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    each_text(value, note)
    yield from found


def _machines(documents: tuple[Any, ...], node: str, host: Host) -> Iterator[tuple[str, str]]:
    yield node, "node1"
    for name in (_line(host, "/etc/hostname"), *(() if host.root else (os.uname().nodename,))):
        yield name, "node1"
        short, _, domain = name.partition(".")
        yield short, "node1"
        yield domain, "example.org"
    yield from _configured(documents)


def _configured(value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  # JSON
    if isinstance(value, dict):
        for key, invented in (("cluster", "cluster1"), ("node_name", "node1")):
            if isinstance(value.get(key), str):
                yield value[key], invented
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _configured(each)


def _people(host: Host) -> Iterator[tuple[str, str]]:
    number = 0
    for line in _line(host, "/etc/passwd", whole=True).split("\n"):
        words = line.split(":")
        if len(words) > 5 and words[2].isdigit() and _FIRST_PERSON <= int(words[2]) != _NOBODY:  # noqa: PLR2004  # passwd(5)
            number += 1
            yield words[0], f"user{number}"


def _line(host: Host, path: str, *, whole: bool = False) -> str:
    try:
        text = files.read(host.path(path), 1 << 22).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if whole else text.strip()


def _found(pattern: re.Pattern[str], texts: list[str]) -> list[str]:
    """Return what a pattern finds, once each, in the order of the text."""
    return list(dict.fromkeys(each for text in texts for each in pattern.findall(text)))
