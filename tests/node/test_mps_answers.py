"""The control daemon's replies, matched to a grammar. Texts as measured on 470 to 555."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.node.host.children import Answer
from mpsfleet.node.model import Answers, Silence
from mpsfleet.node.probe.mps import About, is_busy, understand, user_views

MARK = 'Unknown command "mpsfleet-next"\n'


def test_an_idle_daemon_has_no_servers_and_is_well() -> None:
    said = understand(Answer(0, f"100.0\n{MARK}{MARK}", ""), 2.0)

    assert said == Answers(100.0, (), (), f"100.0\n{MARK}{MARK}")


def test_servers_are_listed_by_pid() -> None:
    said = understand(Answer(0, f"50.0\n{MARK}2590\n2591\n{MARK}", ""), 2.0)

    assert isinstance(said, Answers)
    assert said.servers == (2590, 2591)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(None, "", ""), "timeout"),
        (Answer(None, "x" * 65536, "", capped=True), "garbled"),
        (Answer(None, "", "", missing=True), "no-binary"),
        (Answer(1, "", "Cannot find MPS control daemon process\n"), "no-daemon"),
        (Answer(1, "", "Cannot send command to MPS control daemon process\n"), "busy"),
        (Answer(0, "", ""), "busy"),
        (Answer(1, "", ""), "busy"),
        (Answer(0, "sorry", ""), "garbled"),
        (Answer(0, f"100.0\n{MARK}", ""), "garbled"),
        (Answer(0, f"many\n{MARK}{MARK}", ""), "garbled"),
        (Answer(0, f"100.0\n{MARK}12; rm\n{MARK}", ""), "garbled"),
    ],
)
def test_anything_else_is_a_silence_of_its_kind(answer: Answer, outcome: str) -> None:
    said = understand(answer, 2.0)

    assert isinstance(said, Silence)
    assert said.outcome == outcome


def test_busy_is_told_from_absent() -> None:
    assert is_busy(Answer(1, "", "Cannot send command to MPS control daemon process\n"))
    assert not is_busy(Answer(1, "", "Cannot find MPS control daemon process\n"))
    assert not is_busy(Answer(None, "", ""))


@given(st.text())
def test_no_reply_makes_it_fail(text: str) -> None:
    assert isinstance(understand(Answer(0, text, ""), 2.0), (Answers, Silence))


def test_a_users_view_names_where_it_ended() -> None:
    stopped, through = user_views(b"/run/nvidia-mps/0|EACCES\n/run/nvidia-mps/1/log|")

    assert (stopped.reached, stopped.step, stopped.error) == (False, "/run/nvidia-mps/0", "EACCES")
    assert through.reached


@pytest.mark.parametrize(
    ("said", "mib"),
    [("", 0), ("512M", 512), ("8G", 8192), ('Unknown command "get_default_device_pinned_mem_limit"', None)],
)
def test_a_memory_limit_is_read_as_the_daemon_prints_it(said: str, mib: int | None) -> None:
    answer = understand(Answer(0, f"100.0\n{MARK}{MARK}{said}\n{MARK}", ""), 2.0, About(1))

    assert isinstance(answer, Answers)
    assert answer.memory_limits_mib == (mib,)
