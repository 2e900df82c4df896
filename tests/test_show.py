"""Text of others is one printable line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.show import LIMIT, show


@given(st.text())
def test_it_is_printable_and_bounded(text: str) -> None:
    shown = show(text)

    assert shown.isprintable()
    assert len(shown) <= LIMIT


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N"]), max_size=LIMIT))
def test_plain_text_is_left_alone(text: str) -> None:
    assert show(text) == text


def test_escapes_newlines_and_direction_marks_are_spelled_out() -> None:
    assert show("a\x1b[31m\n\u202eb") == r"a\x1b[31m\n\u202eb"
