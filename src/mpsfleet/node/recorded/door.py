"""The questions of an audit, and the door they go through while a node is recorded or replayed.

A question is a call that looks at the host: a function of the probe's rooms whose first parameter is the host, a file
or a command by the host's door, or a piece of reading done apart. What is kept of it is the value it returns, which is
what the judges see; a whole file or environment is never kept. Within a question no other is asked of the notes.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pkgutil
from typing import TYPE_CHECKING, Any, Callable, Protocol

from mpsfleet.node.host import Host, children

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_ROOM = "mpsfleet.node."
_ROOMS = ("jobs", "sampled", "steps", "topology")  # beside those of the probe
_BY_NAME = (  # of modules that also hold what only puts questions in order
    ("audit", ("short_name",)),
    ("config", ("load",)),
    ("probe", ("short_name", "probe_user", "_has_nvidia_device")),
    ("probe.units", ("now_s",)),
)
_NO_QUESTIONS = {"question", "command", "commands", "as_user"}  # they make commands, or run in a question's own child
_FILES = ("exists", "executable", "read", "read_or_none", "names", "link_target")
_PINNED = "/proc/self/fd/"


Naming = Callable[[children.Command], str]


class Answering(Protocol):
    """Who answers: the host with notes taken, or the notes."""

    def answer(self, question: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # any answer
        """Return the answer to a question; `ask` gets it from the host."""

    def run(
        self,
        commands: tuple[children.Command, ...],
        again: children.Again,
        meanwhile: Callable[[], None],
        named: Naming,
    ) -> tuple[children.Answer, ...]:
        """Run commands, or return what they gave, each by the question that `named` makes of it."""

    def begin(self, start: Callable[[], children.Apart]) -> children.Apart | None:
        """Start a piece of reading whose result is asked for later; None where the notes have it."""

    def sleep(self, seconds: float) -> None:
        """Wait for the host to change."""


class Door:
    """The functions to be put in the place of those that look at a host."""

    def __init__(self, answering: Answering, root: str) -> None:
        self._answering = answering
        self._root = root
        self._pinned: dict[int, str] = {}  # the directories that descriptors stand for

    def replacements(self) -> Iterator[tuple[object, str, object]]:
        """Yield module, name and replacement for each question."""
        from mpsfleet.node.host import files, processes
        from mpsfleet.node.probe import directories

        for module, name in _questions():
            yield module, name, self._of_host(getattr(module, name), name)
        for name in _FILES:
            yield files, name, self._of_path(getattr(files, name), name)
        yield directories, "look", self._look(directories.look)
        yield children, "run", self._run
        yield children, "state_of", self._of_path(children.state_of, "state_of")
        yield children, "Apart", self._apart(children.Apart)
        yield processes, "sleep", self._answering.sleep

    def _one(self, question: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # any answer
        answer = self._answering.answer(question, lambda: _tried(ask))
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _of_host(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        label = f"{original.__module__.removeprefix(_ROOM).removeprefix('probe.')}.{name.lstrip('_')}"
        names = tuple(inspect.signature(original).parameters)

        def asked(*given: Any, **named: Any) -> Any:  # noqa: ANN401  # any question
            words = [self._word(key, each) for key, each in (*zip(names, given), *named.items())]
            return self._one(" ".join((label, *filter(None, words))), lambda: original(*given, **named))

        return asked

    def _of_path(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def asked(path: object, *given: Any) -> Any:  # noqa: ANN401  # any question
            return self._one(f"{name} {self._word('path', path)}", lambda: original(path, *given))

        return asked

    def _look(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Keep which directory a descriptor stands for; a replayed one pins nothing."""
        opened: list[int] = []

        def asked(host: Host, path: str) -> Any:  # noqa: ANN401  # a directory and a descriptor
            def ask() -> tuple[Any, bool]:
                found, fd = original(host, path)
                opened.append(fd)
                return found, fd >= 0

            found, is_pinned = self._one(f"directories.look {path}", ask)
            fd = opened.pop() if opened else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if is_pinned else -1)
            self._pinned[fd] = path
            return found, fd

        return asked

    def _run(
        self,
        commands: tuple[children.Command, ...],
        again: children.Again | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> tuple[children.Answer, ...]:
        return self._answering.run(commands, again or (lambda *_: None), meanwhile, self._command)

    def _apart(self, original: type[children.Apart]) -> object:
        one, answering = self._one, self._answering

        class Apart:
            """A piece of reading done apart, by the name of the function that asks for it."""

            def __init__(self, work: Callable[[], bytes], limit_s: float, cap: int = 262_144) -> None:
                self._question = f"apart {work.__qualname__.partition('.<locals>')[0].lstrip('_')}"
                self._begun = answering.begin(lambda: original(work, limit_s, cap))

            def result(self) -> Any:  # noqa: ANN401  # bytes or None
                return one(self._question, lambda: None if self._begun is None else self._begun.result())

        return Apart

    def _command(self, command: children.Command) -> str:
        """Return what a command asks, by program, place and words; the marks between words are no part of it."""
        where = dict(command.environment).get("CUDA_MPS_PIPE_DIRECTORY", "")
        said = [each for each in command.stdin.decode("utf-8", "replace").split("\n") if each and "-next" not in each]
        words = (*command.argv[1:], *said)
        place = f" of {self._word('path', where)}" if where else ""
        return f"{os.path.basename(command.argv[0])}{place}: {'; '.join(words)}"

    def _word(self, name: str, value: object) -> str:
        """Return an argument as a word of a question; "" for what only says how to ask."""
        if isinstance(value, bool) or name in ("limit_s", "cap", "proc"):
            return ""
        if isinstance(value, int):
            return self._pinned.get(value, "?") if name.endswith("fd") else str(value)
        if isinstance(value, str):
            if value.startswith(_PINNED) and value[len(_PINNED) :].isdigit():
                return self._pinned.get(int(value[len(_PINNED) :]), "?")
            return value.removeprefix(self._root) if self._root else value
        pid = getattr(getattr(value, "process", value), "pid", None)
        return str(pid) if isinstance(pid, int) else ""


def _tried(ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # any answer
    try:
        return ask()
    except OSError as error:
        return error


def _questions() -> Iterator[tuple[ModuleType, str]]:
    """Yield every function of the probe's rooms that looks at a host, and those named above."""
    from mpsfleet.node import probe

    found = [f"probe.{each.name}" for each in pkgutil.iter_modules(probe.__path__)]
    for room in (*found, *_ROOMS):
        module = importlib.import_module(_ROOM + room)
        for name, each in vars(module).items():
            is_own = inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
            if is_own and name not in _NO_QUESTIONS and next(iter(inspect.signature(each).parameters), "") == "host":
                yield module, name
    for room, names in _BY_NAME:
        module = importlib.import_module(_ROOM + room)
        for name in names:
            yield module, name


@contextlib.contextmanager
def answered_by(answering: Answering, root: str = "") -> Iterator[None]:
    """Have every question answered by `answering` meanwhile."""
    before = []
    try:
        for owner, name, made in tuple(Door(answering, root).replacements()):
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, made)
        yield
    finally:
        for owner, name, was in reversed(before):
            setattr(owner, name, was)
