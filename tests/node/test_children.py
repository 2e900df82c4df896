"""Children: side by side, under limits, with nothing inherited, and never an exception for what they do."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mpsfleet.node.host.children import Answer, Apart, Command, run, state_of

if TYPE_CHECKING:
    import pytest

SH = "/bin/sh"


def sh(script: str, limit_s: float = 5.0, **more: object) -> Command:
    return Command((SH, "-c", script), limit_s, **more)  # type: ignore[arg-type]


def gone(pid: int, limit_s: float = 5.0) -> bool:
    """Wait until a killed process that is not our child is dead or buried."""
    end = time.monotonic() + limit_s
    while state_of(pid) not in ("", "Z") and time.monotonic() < end:
        time.sleep(0.01)
    return state_of(pid) in ("", "Z")


def test_streams_status_and_input_are_kept_apart() -> None:
    (answer,) = run((sh("cat; echo oops >&2; exit 3", stdin=b"hello"),))

    assert answer == Answer(3, "hello", "oops\n")


def test_answers_come_in_order_and_side_by_side() -> None:
    begin = time.monotonic()

    answers = run(tuple(sh(f"sleep 0.5; echo {number}") for number in range(4)))

    assert [each.out for each in answers] == ["0\n", "1\n", "2\n", "3\n"]
    assert time.monotonic() - begin < 4 * 0.5


def test_a_child_that_does_not_end_is_killed_with_its_own_children() -> None:
    (answer,) = run((sh("sleep 600 & echo $!; wait", limit_s=0.3),))

    assert answer.rc is None
    assert answer.state == "S"
    assert gone(int(answer.out))


def test_what_it_printed_before_its_limit_is_kept() -> None:
    (answer,) = run((sh("echo half; sleep 600", limit_s=0.3),))

    assert (answer.rc, answer.out) == (None, "half\n")


def test_one_that_hangs_does_not_hold_up_the_other() -> None:
    slow, quick = run((sh("sleep 600", limit_s=0.4), sh("echo quick")))

    assert slow.rc is None
    assert quick == Answer(0, "quick\n", "")


def test_output_without_end_is_cut_and_the_child_ended() -> None:
    (answer,) = run((sh("yes", cap=1000),))

    assert answer.capped
    assert len(answer.out) == 1000
    assert answer.rc != 0


def test_a_program_that_is_not_there_is_an_answer() -> None:
    (answer,) = run((Command(("/nonexistent/program",), 1.0),))

    assert answer.missing
    assert answer.rc is None


def test_a_daemon_that_keeps_the_streams_does_not_keep_us() -> None:
    begin = time.monotonic()

    (answer,) = run((sh("setsid sleep 3 & echo started", limit_s=5.0),))

    assert answer.out == "started\n"
    assert answer.rc == 0
    assert time.monotonic() - begin < 2.5


def test_nothing_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPSFLEET_TEST", "x")
    inlet, outlet = os.pipe()

    (answer,) = run((sh("env; ls /proc/self/fd; pwd"),))

    os.close(inlet)
    os.close(outlet)
    assert "MPSFLEET_TEST" not in answer.out
    assert str(outlet) not in answer.out.split("\n")


def test_a_busy_answer_can_be_asked_again() -> None:
    seen = []

    def again(index: int, answer: Answer) -> Command | None:
        seen.append((index, answer.out))
        return sh("echo second", delay_s=0.05) if len(seen) == 1 else None

    (answer,) = run((sh("echo first"),), again)

    assert answer.out == "second\n"
    assert seen == [(0, "first\n"), (0, "second\n")]


def test_work_apart_returns_bytes() -> None:
    assert Apart(lambda: b"done", 5.0).result() == b"done"


def test_work_apart_that_hangs_is_given_up() -> None:
    def hang() -> bytes:
        time.sleep(600)
        return b""

    begin = time.monotonic()

    assert Apart(hang, 0.2).result() is None
    assert time.monotonic() - begin < 2


def test_work_apart_that_returns_nothing_is_not_a_failure() -> None:
    assert Apart(lambda: b"", 5.0).result() == b""
