"""Recording: audit a node, take notes of every answer, and leave them with the report in a new directory of root's."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from mpsfleet import __version__
from mpsfleet.errors import MpsfleetError, UsageError
from mpsfleet.node.host import children, files, processes
from mpsfleet.node.recorded import door, names
from mpsfleet.node.recorded.values import encode
from mpsfleet.node.render.json import report_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.node.host import Host
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
        self._run = children.run
        self._sleep = processes.sleep

    def answer(self, question: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # any answer
        """Ask the host; what is asked within a question is part of its answer."""
        if self._is_inside:
            return ask()
        with self._inside(is_inside=True):
            answer = ask()
        self.answers.setdefault(question, []).append(encode(answer))
        return answer

    def run(
        self,
        commands: tuple[children.Command, ...],
        again: children.Again,
        meanwhile: Callable[[], None],
        named: door.Naming,
    ) -> tuple[children.Answer, ...]:
        """Run the commands and keep what each gave, also where another was then tried in its place."""
        if self._is_inside:
            return self._run(commands, again, meanwhile)
        asked = list(commands)

        def keeping(index: int, answer: children.Answer) -> children.Command | None:
            kept, value = self.answers.setdefault(named(asked[index]), []), encode(answer)
            if kept[-1:] != [value]:  # a busy daemon says the same many times
                kept.append(value)
            with self._inside(is_inside=False):
                another = again(index, answer)
            asked[index] = another or asked[index]
            return another

        def outside() -> None:
            with self._inside(is_inside=False):
                meanwhile()

        with self._inside(is_inside=True):
            return self._run(commands, keeping, outside)

    def begin(self, start: Callable[[], children.Apart]) -> children.Apart:
        """Start it now, as the audit means it to run beside what follows."""
        return start()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    @contextlib.contextmanager
    def _inside(self, *, is_inside: bool) -> Iterator[None]:
        before, self._is_inside = self._is_inside, is_inside
        try:
            yield
        finally:
            self._is_inside = before


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
    documents: tuple[Any, ...] = (document, report_object(result))
    if host.root:
        documents = names.each_text(documents, lambda text: text.replace(f"{host.root}/", "/"))
    if not with_names:
        documents = names.replaced(documents, result.node, host)
    texts = [f"{json.dumps(each, indent=1)}\n".encode() for each in documents]
    try:
        files.write_new_directory(path, dict(zip((ANSWERS, REPORT), texts)))
    except OSError as error:
        raise MpsfleetError(f"the recording could not be written to {path}: {error.strerror}") from None
    return result, facts
