"""Asking the daemons, side by side with all else: a busy one again, and of its ready servers their clients.

The clients of a server that is still starting are never asked for: 550 answers that from memory it has not written, at
such length that it serves nobody else meanwhile (measured).
"""

from __future__ import annotations

import time

from mpsfleet.node.host import children
from mpsfleet.node.model import Answers, Silence
from mpsfleet.node.probe import mps
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command


class Question(NamedTuple):
    """What the daemon of a pinned pipe directory is asked."""

    name: str  # of its instance
    directory_fd: int
    about: mps.About


class Others(NamedTuple):
    """What is asked and done beside the daemons; `of_first` may have another command for the first one's answer."""

    commands: tuple[Command, ...] = ()
    of_first: Callable[[Answer], Command | None] = lambda _: None
    meanwhile: Callable[[], None] = lambda: None


def ask(
    questions: tuple[Question, ...], others: Others, host: Host, desired: Desired
) -> tuple[dict[str, Answers | Silence], tuple[Answer, ...]]:
    """Ask the daemons and others; return what the daemons said by their instances' names, and the others' answers."""
    daemons = _Daemons(questions, host.path(desired.control_binary), desired.query_timeout_s)

    def again(index: int, answer: Answer) -> Command | None:
        if index < len(questions):
            return daemons.again(index, answer)
        return others.of_first(answer) if index == len(questions) else None

    answers = children.run((*daemons.commands(), *others.commands), again, others.meanwhile)
    said = {each.name: daemons.said(index, answers[index]) for index, each in enumerate(questions)}
    return said, answers[len(questions) :]


class _Daemons:
    """The conversations with all daemons, under one time limit."""

    def __init__(self, questions: tuple[Question, ...], binary: str, limit_s: float) -> None:
        self._questions = questions
        self._binary = binary
        self._limit_s = limit_s
        self._end = time.monotonic() + limit_s
        self._first: dict[int, tuple[Answer, Answers]] = {}  # of those that were asked a second time, about clients

    def commands(self) -> tuple[Command, ...]:
        return tuple(
            mps.question(self._binary, each.directory_fd, self._limit_s, each.about) for each in self._questions
        )

    def again(self, index: int, answer: Answer) -> Command | None:
        """Return what to ask this daemon next; None where it has been asked everything, or the time is over."""
        each = self._questions[index]
        left_s = self._end - time.monotonic() - mps.BUSY_PAUSE_S
        if left_s <= 0:
            return None
        before = self._first.get(index)
        if mps.is_unheard(answer):
            if before is not None:
                return self._of_clients(each, before[1], left_s, mps.BUSY_PAUSE_S)
            return mps.question(self._binary, each.directory_fd, left_s, each.about, mps.BUSY_PAUSE_S)
        said = mps.understand(answer, self._limit_s, each.about) if before is None and each.about.servers else None
        if not isinstance(said, Answers) or not mps.ready(said):
            return None
        self._first[index] = answer, said
        return self._of_clients(each, said, left_s)

    def _of_clients(self, each: Question, said: Answers, left_s: float, delay_s: float = 0.0) -> Command:
        return mps.clients_question(self._binary, each.directory_fd, left_s, mps.ready(said), delay_s)

    def said(self, index: int, answer: Answer) -> Answers | Silence:
        """Return what a daemon said in all."""
        if index not in self._first:
            return mps.understand(answer, self._limit_s, self._questions[index].about)
        first, said = self._first[index]
        return said if answer is first else mps.with_clients(said, answer)
