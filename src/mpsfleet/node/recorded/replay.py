"""Replaying: the same audit, answered by a recording alone. Needs no rights but to read it, and touches no host."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from mpsfleet.errors import UsageError
from mpsfleet.node.host import Host, files
from mpsfleet.node.recorded import door
from mpsfleet.node.recorded.record import ANSWERS, SCHEMA
from mpsfleet.node.recorded.values import RecordingError, decode

if TYPE_CHECKING:
    from mpsfleet.node.host import children
    from mpsfleet.node.model import Facts, Report

_CAP = 16 << 20  # bytes


class Recording(NamedTuple):
    """A node as it was once: whose it was, when, and what each question was answered."""

    host: Host
    clock: float  # seconds since 1970
    answers: dict[str, list[Any]]


class _Notes:
    """Answers each question by its next answer; the last one stays."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self._answers = answers
        self._given: dict[str, int] = {}

    def answer(self, question: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # any answer
        """Return the recorded answer. RecordingError for a question that nobody asked then."""
        del ask
        kept, given = self._answers.get(question), self._given.get(question, 0)
        if not kept:
            raise RecordingError(f"the recording has no answer to `{question}`; record the node again")
        self._given[question] = given + 1
        return decode(kept[min(given, len(kept) - 1)])

    def run(
        self,
        commands: tuple[children.Command, ...],
        again: children.Again,
        meanwhile: Callable[[], None],
        named: door.Naming,
    ) -> tuple[children.Answer, ...]:
        """Return what each command gave; another is tried in its place where one was then."""
        meanwhile()
        answers = []
        for index, command in enumerate(commands):
            answer = self.answer(named(command), lambda: None)
            another = again(index, answer)
            while another is not None and self._has_more(named(another)):
                answer = self.answer(named(another), lambda: None)
                another = again(index, answer)
            answers.append(answer)
        return tuple(answers)

    def begin(self, start: Callable[[], children.Apart]) -> None:
        """Start nothing."""

    def sleep(self, seconds: float) -> None:
        """Do not wait: nothing changes."""

    def _has_more(self, question: str) -> bool:
        return self._given.get(question, 0) < len(self._answers.get(question, ()))


def directory(word: str) -> str:
    """Return the path of a recording; under sudo root does not open a path of the caller's."""
    if not word:
        raise UsageError("--replay takes the directory of a recording: `mpsfleet node audit --replay DIR`")
    if "SUDO_UID" in os.environ:
        raise UsageError("--replay is not accepted under sudo; it needs no root: run it without")
    return os.path.abspath(word)


def read(path: str) -> Recording:
    """Read a recording. RecordingError where there is none, or it is of another form."""
    try:
        document = json.loads(files.read(os.path.join(path, ANSWERS), _CAP))
        if document["schema"] != SCHEMA:
            raise RecordingError(f"{path} is a recording of another version of mpsfleet")
        uid, gid = document["owner"]
        answers = {str(question): list(each) for question, each in document["answers"].items()}
        return Recording(Host("", "/proc", int(uid), int(gid)), float(document["clock"]), answers)
    except OSError as error:
        raise RecordingError(f"{path} is no recording: {ANSWERS} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RecordingError(f"{path} is no recording: {ANSWERS} is not what `--record` writes") from None


def replay(recording: Recording, look: Callable[[Host], tuple[Report, Facts | None]]) -> tuple[Report, Facts | None]:
    """Return the judgement of a recorded node by `look`, which audits a host."""
    with door.answered_by(_Notes(recording.answers)):
        return look(recording.host)
