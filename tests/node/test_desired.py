"""node.toml: what is right is read, and every mistake is one sentence with its line and the nearest name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.node.desired import Desired, parse

RIGHT = """\
schema = 1
mode = "resident"
[mps]
pipe_directory = "/tmp/nvidia-mps"
active_thread_percentage = 50
[gpus]
expected = 4
[slurm]
node_name = "gpu-001"
cluster = "lab"
"""


def test_a_right_file_is_read_whole() -> None:
    desired, mistakes = parse(RIGHT)

    assert mistakes == ()
    assert desired == Desired(
        pipe_directory="/tmp/nvidia-mps",  # noqa: S108  # the article's own path
        active_thread_percentage=50.0,
        gpus_expected=4,
        node_name="gpu-001",
        cluster="lab",
    )


def test_only_the_schema_is_required() -> None:
    assert parse("schema = 1") == (Desired(), ())


MISTAKES = [
    ("", 0, "the first line must say `schema = 1`"),
    ("schema = 2", 1, "schema 2 is not known to this program; it knows 1"),
    (
        "schema = 1\n[mps]\npipe_directroy = '/run/x'",
        3,
        'unknown key "pipe_directroy" in [mps]; did you mean pipe_directory?',
    ),
    ("schema = 1\n[mpss]\n", 2, 'unknown table "mpss"; did you mean mps?'),
    ("schema = 1\nmdoe = 'resident'", 2, 'unknown key "mdoe"; did you mean mode?'),
    ("schema = 1\n[mps]\nactive_thread_percentage = 0", 3, "must be a number above 0 and at most 100, not 0"),
    ("schema = 1\n[mps]\nactive_thread_percentage = '50'", 3, 'must be a number above 0 and at most 100, not "50"'),
    ("schema = 1\n[mps]\npipe_directory = 'run/x'", 3, 'must be an absolute path, not "run/x"'),
    ("schema = 1\n[mps]\npipe_directory = '/run/../x'", 3, "must be a plain path without //, . or .."),
    ("schema = 1\n[mps]\npipe_directory = '/run/a b'", 3, "may hold only letters, digits and . _ - /"),
    ("schema = 1\n[mps]\npipe_directory = '/tmp'", 3, "must be a directory of its own, not /tmp"),
    ("schema = 1\n[mps]\nlog_directory = '/tmp/logs'", 3, "must lie below a directory only root can write"),
    ("schema = 1\n[limits]\nquery_timeout_s = 600", 3, "must be a number of seconds from 0.1 to 60, not 600"),
    ("schema = 1\n[slurm]\nnode_name = 'n[1-4]'", 3, 'must be one plain name, not "n[1-4]"'),
    ("schema = 1\n[gpus]\nexpected = -1", 3, "must be a whole number from 0 to 1024, not -1"),
    ("schema = 1\n[slurm]\nenabled = 'yes'", 3, 'must be true or false, not "yes"'),
    ("schema = 1\nmode = 'slurm'", 2, "is not built yet"),
    ("schema = ", 0, "it is not valid TOML"),
]


@pytest.mark.parametrize(("text", "line", "sentence"), MISTAKES)
def test_a_mistake_is_named_with_its_place(text: str, line: int, sentence: str) -> None:
    _, mistakes = parse(text)

    assert [each.line for each in mistakes] == [line]
    assert sentence in str(mistakes[0])
    assert "\n" not in str(mistakes[0])


@pytest.mark.parametrize(("length", "accepted"), [(87, True), (88, False)])
def test_a_pipe_directory_holds_the_sockets_of_the_daemon(length: int, *, accepted: bool) -> None:
    path = "/run/" + "x" * (length - len("/run/"))

    _, mistakes = parse(f'schema = 1\n[mps]\npipe_directory = "{path}"')

    assert (mistakes == ()) is accepted
    if not accepted:
        assert "has 88 characters; the daemon's sockets allow 87" in str(mistakes[0])


def test_all_mistakes_are_told_at_once() -> None:
    _, mistakes = parse("schema = 1\n[mps]\na = 1\nactive_thread_percentage = 101\n[gpus]\nexpected = 'x'")

    assert [each.line for each in mistakes] == [3, 4, 6]


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    desired, mistakes = parse(text)

    assert isinstance(desired, Desired)
    assert all("\n" not in str(each) for each in mistakes)
