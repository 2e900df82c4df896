"""Recording: audit a node, take notes of every answer, and leave them with the report in a new directory of root's."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from mpsfleet import __version__
from mpsfleet.errors import MpsfleetError, UsageError
from mpsfleet.node.host import files
from mpsfleet.node.recorded import door, names
from mpsfleet.node.recorded.values import encode
from mpsfleet.node.render.json import report_object

if TYPE_CHECKING:
    from mpsfleet.node.host import Host, children
    from mpsfleet.node.model import Facts, Report

SCHEMA = 1
ANSWERS = "answers.json"
REPORT = "report.json"
Look = Callable[[], "tuple[Report, Facts | None]"]


class Notes:
    """Lets questions through to the host and keeps the answers, in the order in which they came."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self._is_inside = False

    def answer(self, questions: tuple[str, ...], ask: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Ask the host; what is asked within a question is part of its answer."""
        if self._is_inside:
            return ask()
        self._is_inside = True
        try:
            answers = ask()
        finally:
            self._is_inside = False
        for question, each in zip(questions, answers):
            self.answers.setdefault(question, []).append(encode(each))
        return answers

    def begin(self, start: Callable[[], children.Apart]) -> children.Apart:
        """Start it now, as the audit means it to run beside what follows."""
        return start()


def directory(word: str) -> str:
    """Return the path to record to. UsageError where it is taken, or where root would follow a caller's path."""
    if not word:
        raise UsageError("--record takes a directory that does not exist yet: `mpsfleet node audit --record DIR`")
    if "SUDO_UID" in os.environ:
        message = "--record is not accepted under sudo: root does not write to a path of the caller's; log in as root"
        raise UsageError(message)
    path = os.path.abspath(word)
    if files.exists(path):
        raise UsageError(f"--record takes a directory that does not exist yet; {word} is there already")
    return path


def record(host: Host, path: str, look: Look, *, with_names: bool) -> tuple[Report, Facts | None]:
    """Audit by `look`, write what was answered, and return the judgement. MpsfleetError where it cannot be written."""
    notes, clock = Notes(), time.time()
    with door.answered_by(notes, host.root):
        result, facts = look()
    document = {
        "schema": SCHEMA,
        "program": __version__,
        "clock": round(clock, 3),
        "owner": [host.owner_uid, host.owner_gid],
        "answers": notes.answers,
    }
    texts = [json.dumps(each, indent=1) + "\n" for each in (document, report_object(result))]
    if host.root:
        texts = [each.replace(f"{host.root}/", "/") for each in texts]
    if not with_names:
        texts = names.replaced(texts, result.node, host)
    try:
        files.write_new_directory(path, dict(zip((ANSWERS, REPORT), map(str.encode, texts))))
    except OSError as error:
        raise MpsfleetError(f"the recording could not be written to {path}: {error.strerror}") from None
    return result, facts
