"""The command line: what reaches which room, and how each failure ends as one sentence and an exit code."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Callable, NoReturn

import pytest

from mpsfleet import __version__, cli
from mpsfleet.codes import CODES
from mpsfleet.errors import MpsfleetError, Refused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

Room = Callable[[Callable[..., int]], None]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Put a function in the place of the node's audit."""
    return _standing_in(monkeypatch, "mpsfleet.node", "audit")


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Put a function in the place of the node's acting verbs."""
    return _standing_in(monkeypatch, "mpsfleet.node", "verbs")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Put a function in the place of Slurm's room."""
    return _standing_in(monkeypatch, "mpsfleet.slurm", "cli")


def _standing_in(monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> Room:
    def put(main: Callable[..., int]) -> None:
        room = ModuleType(f"{package}.{name}")
        room.main = main  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, room.__name__, room)
        monkeypatch.setattr(f"{package}.{name}", room, raising=False)

    return put


def failing(error: BaseException) -> Callable[..., NoReturn]:
    def main(*_: object) -> NoReturn:
        raise error

    return main


class TestDispatch:
    """The first words choose, the rest is handed on."""

    def test_an_audit_gets_the_rest_of_the_words(self, audit: Room) -> None:
        audit(lambda words, root: 2 if (words, root) == (["--json"], "") else 0)
        assert cli.main(["node", "audit", "--json"]) == 2

    @pytest.mark.parametrize("verb", ["apply", "remove", "reset", "prepare", "run-daemon"])
    def test_an_acting_verb_is_named_to_its_room(self, verbs: Room, verb: str) -> None:
        verbs(lambda named, words, _root: 2 if (named, words) == (verb, ["--dry-run"]) else 0)
        assert cli.main(["node", verb, "--dry-run"]) == 2

    def test_slurm_parses_its_own_words(self, slurm: Room) -> None:
        slurm(lambda words, root: 75 if (words, root) == (["undrain", "n1"], "") else 0)
        assert cli.main(["slurm", "undrain", "n1"]) == 75

    def test_debug_is_taken_out_wherever_it_stands(self, audit: Room) -> None:
        audit(lambda words, _root: len(words))
        assert cli.main(["node", "audit", "--debug", "--json"]) == 1

    def test_a_root_is_taken_off_the_front_and_handed_on(self, audit: Room, tmp_path: Path) -> None:
        audit(lambda words, root: 2 if (words, root) == (["--json"], str(tmp_path)) else 0)
        assert cli.main(["--root", str(tmp_path), "node", "audit", "--json"]) == 2

    @pytest.mark.parametrize("path", ["relative", "/nonexistent/root", ""])
    def test_a_root_that_is_no_directory_is_wrong_usage(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["--root", path, "node", "audit"]) == 64
        assert "--root takes the absolute path of a directory" in capsys.readouterr().err

    def test_a_root_is_refused_under_sudo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUDO_UID", "1000")
        assert cli.main(["--root", str(tmp_path), "node", "audit"]) == 64

    @pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["node", "--help"]])
    def test_help_lists_the_commands(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(words) == 0
        assert "mpsfleet node audit" in capsys.readouterr().out

    def test_the_version_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["--version"]) == 0
        assert capsys.readouterr().out == f"mpsfleet {__version__}\n"


class TestWrongWords:
    """Exit 64 and the nearest right word."""

    @pytest.mark.parametrize(
        ("words", "near"),
        [
            (["nod"], "did you mean `node`?"),
            (["explian"], "did you mean `explain`?"),
            (["--versoin"], "did you mean `--version`?"),
            (["node", "aply"], "did you mean `apply`?"),
            (["node", "zzz"], "known: audit, apply, remove, reset, quiesce, unquiesce, acknowledge, prepare"),
            (["node"], "needs one of audit"),
            ([], "mpsfleet --help"),
            (["--version", "--jsn"], "did you mean `--json`?"),
            (["explain", "daemon-weged"], "did you mean `daemon-wedged`?"),
        ],
    )
    def test_the_nearest_right_word_is_named(
        self, words: list[str], near: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(words) == 64
        error = capsys.readouterr().err
        assert near in error
        assert error.startswith("mpsfleet: ")
        assert error.count("\n") == 1

    def test_a_word_with_terminal_escapes_is_shown_escaped(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["\x1b[2J\nnode"]) == 64
        assert capsys.readouterr().err.rstrip("\n").isprintable()


class TestFailures:
    """Every failure is a sentence and an exit code."""

    @pytest.mark.parametrize(
        ("error", "code"), [(MpsfleetError("no."), 3), (UsageError("no."), 64), (Refused("no."), 75)]
    )
    def test_an_expected_one_says_its_sentence(
        self, audit: Room, error: MpsfleetError, code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        audit(failing(error))
        assert cli.main(["node", "audit"]) == code
        assert capsys.readouterr().err == "mpsfleet: no.\n"

    def test_an_unexpected_one_is_unknown_and_names_itself(
        self, audit: Room, capsys: pytest.CaptureFixture[str]
    ) -> None:
        audit(failing(ZeroDivisionError("division\nby zero")))
        assert cli.main(["node", "audit"]) == 3
        error = capsys.readouterr().err
        assert error.startswith("mpsfleet: internal error while running `node audit`: ZeroDivisionError: division by")
        assert error.count("\n") == 1

    def test_debug_adds_the_traceback(self, audit: Room, capsys: pytest.CaptureFixture[str]) -> None:
        audit(failing(ZeroDivisionError("x")))
        assert cli.main(["node", "audit", "--debug"]) == 3
        assert "Traceback (most recent call last)" in capsys.readouterr().err

    def test_an_interrupt_is_one_line(self, audit: Room, capsys: pytest.CaptureFixture[str]) -> None:
        audit(failing(KeyboardInterrupt()))
        assert cli.main(["node", "audit"]) == 130
        assert capsys.readouterr().err == "mpsfleet: interrupted.\n"

    @pytest.mark.parametrize(("stop", "code"), [(0, 0), (None, 0), (2, 64), (1, 1), ("text", 3)])
    def test_argparses_own_exit_is_not_taken_for_a_verdict(self, audit: Room, stop: object, code: int) -> None:
        audit(failing(SystemExit(stop)))
        assert cli.main(["node", "audit"]) == code

    def test_a_reader_that_goes_away_is_no_error_message(self) -> None:
        program = "from mpsfleet.cli import main; import sys; sys.exit(main(['explain']))"
        writer = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.close()
        with writer:
            assert writer.stderr.read() == ""
        assert writer.returncode == 141


class TestExplain:
    """A person pastes what Slurm shows."""

    @pytest.mark.parametrize(
        "words", [["daemon-wedged"], ["mpsfleet: daemon-wedged gpu2"], ["mpsfleet:", "daemon-wedged"]]
    )
    def test_a_code_and_a_whole_reason_are_both_understood(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["explain", *words]) == 0
        assert capsys.readouterr().out.startswith("daemon-wedged (critical): The control daemon runs")

    def test_without_a_code_all_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["explain"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == len(CODES)

    @pytest.mark.parametrize("code", [each.code for each in CODES] + ["reset"])
    def test_every_code_is_explained(self, code: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["explain", code]) == 0
        assert capsys.readouterr().out.startswith(code)
