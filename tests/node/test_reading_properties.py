"""No answer ends its reader, and no reader invents a value: each that it gives stands in the text that it was given."""

from __future__ import annotations

import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.node import cards, steps
from mpsfleet.node.host.children import Answer
from mpsfleet.node.model import Answers, Silence, Unreadable
from mpsfleet.node.probe import gpu, kernel_log, mps, units, uses

MARK = 'Unknown command "mpsfleet-next"\n'
RC = st.none() | st.integers(-9, 255)
# What Python takes for a number and no program prints; and what programs print.
NUMBERS = st.sampled_from(
    [
        "100.0",
        "50",
        "33.3",
        "2590",
        "0",
        "nan",
        "inf",
        "-1",
        "+5",
        "1_0",
        "1e3",
        "\u0663",
        "\u00b2",
        "0x10",
        ".5",
        "5.",
        "9" * 5000,
    ]
)
SERVER_WORDS = st.one_of(
    NUMBERS,
    st.sampled_from(
        [
            "",
            "ACTIVE",
            "FAULT",
            "Server 7 not found",
            'Unknown command "ps"',
            "PID ID SERVER DEVICE",
            "8G",
            "512M",
            "GG",
        ]
    ),
    st.text(max_size=12),
)
PARTS = st.lists(SERVER_WORDS, max_size=2).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, st.lists(NUMBERS | st.integers(1, 99_999).map(str), max_size=3), st.lists(PARTS, max_size=6), RC)
def test_what_a_daemon_said_is_in_its_answer(
    percentage: str, listed: list[str], more: list[str], rc: int | None
) -> None:
    out = "".join(f"{each}\n{MARK}" for each in (percentage, "\n".join(listed), *more))
    for about in (mps.NOTHING_ELSE, mps.About(1), mps.About(0, (7,)), mps.About(1, (7,))):
        said = mps.understand(Answer(rc, out, ""), 2.0, about)
        if isinstance(said, Silence):
            continue
        words = out.split()
        assert said.percentage is not None
        assert percentage in words
        assert re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", percentage)
        assert (math.isfinite(said.percentage), said.percentage) == (True, float(percentage))
        assert [str(each) for each in said.servers] == [each.lstrip("0") or "0" for each in listed]
        assert all(limit is None or limit >= 0 for limit in said.memory_limits_mib)
        for each in said.of_servers:
            assert each.status is None or each.status in {word.upper() for word in words}
            assert {str(pid) for pid in each.clients or ()} <= {word.lstrip("0") or "0" for word in words}


@given(st.text(max_size=20))
def test_a_memory_limit_is_the_number_that_was_printed_or_none(text: str) -> None:
    try:
        mib = mps.memory_mib(text)
    except ValueError:
        return
    bare = text.strip()
    assert mib is None or mib == 0 or re.fullmatch(r"[0-9]+[MG]?", bare)
    assert (mib is None) == bare.startswith("Unknown command")


KERNEL = st.lists(
    st.sampled_from(
        [
            b"3,2,99,-;",
            b"11,2,99,-;",
            b"3,2,99,c;",
            b"NVRM: Xid (PCI:",
            b"0000:3b:00",
            b"): ",
            b"79",
            b", ",
            b"pid=600,",
            b"pid='7'",
            b"\n",
            b";",
            b",",
            "\u0667".encode(),
            b"9" * 30,
            b"uvm encountered global fatal error",
            b"NVRM: ",
        ]
    )
    | st.binary(max_size=12),
    max_size=12,
).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(KERNEL)
def test_what_an_event_tells_stands_in_the_kernels_record(raw: bytes) -> None:
    event = kernel_log.parse(raw)
    if event is None:
        return
    head, _, rest = raw.partition(b";")
    line = rest.partition(b"\n")[0].decode("utf-8", "replace")
    assert int(head.split(b",")[0]) < 8
    assert int(head.split(b",")[1]) == event.sequence
    assert line.startswith(event.text)
    assert str(event.xid) in line or event.xid == 0 or f"0{event.xid}" in line
    assert event.pid is None or f"pid={event.pid}" in re.sub(r"pid=['\"]*0*(?=[0-9])", "pid=", line)
    assert bool(event.bus) == line.startswith("NVRM: Xid (PCI:")


CELLS = st.sampled_from(
    [
        "0",
        "1",
        "\u00b2",
        "\u0663",
        "GPU-1",
        "GPU-2",
        "00000000:3B:00.0",
        "NVIDIA A100",
        "[N/A]",
        "[GPU is lost]",
        "None",
        "",
        "-1",
    ]
) | st.text(max_size=8)
ROWS = st.lists(st.lists(CELLS, max_size=11).map(", ".join), max_size=5).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.text(max_size=40), RC)
def test_a_cell_of_nvidia_smi_stands_in_its_answer(out: str, err: str, rc: int | None) -> None:
    read = gpu.understand(Answer(rc, out, err), 4.0, "535.1")

    assert read.driver == "535.1"
    for row in read.gpus:
        assert all(cell in out for cell in row)
    for card in cards.join(read.gpus, {}):
        assert str(card.index) in out
        assert card.minor == -1
    assert len(read.gpus) <= len(out.split("\n"))


@settings(max_examples=200, deadline=None)
@given(ROWS | st.text(max_size=60), st.text(max_size=40), RC, st.booleans())
def test_a_process_that_computes_stands_in_the_answer_and_a_failure_is_none(
    out: str,
    err: str,
    rc: int | None,
    missing: bool,  # noqa: FBT001  # drawn
) -> None:
    read = uses.understand(Answer(rc, out, err, missing=missing), 4.0)

    assert (rc is not None and not missing) or isinstance(read, Unreadable)
    assert rc == 0 or read != ()
    for each in () if isinstance(read, Unreadable) else read:
        assert each.gpu in out
        assert each.pid in out
        assert not each.is_known or int(each.pid) >= 0


LISTED = st.lists(st.lists(NUMBERS | st.text(max_size=6), max_size=4).map(" ".join), max_size=4).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(LISTED, st.text(max_size=30), RC)
def test_a_process_of_a_job_stands_in_slurms_answer(out: str, err: str, rc: int | None) -> None:
    read = steps.understand(Answer(rc, out, err))

    assert rc is not None or isinstance(read, Unreadable)
    found = () if isinstance(read, Unreadable) else read
    assert all(each.pid in out and each.job in out for each in found)
    assert steps.jobs(found) >= frozenset()


PROPERTIES = st.lists(
    st.sampled_from(
        [
            "Id=a.service",
            "Id=b.service",
            "LoadState=loaded",
            "ActiveState=active",
            "MainPID=12",
            "MainPID=²",
            "NRestarts=-1",
            "ConditionResult=no",
            "ConditionTimestampMonotonic=9",
            "InactiveExitTimestampMonotonic=9999999",
            "",
            "=",
            "x",
        ]
    )
    | st.text(max_size=12),
    max_size=14,
).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(PROPERTIES, st.text(max_size=30), RC)
def test_what_systemd_says_of_a_unit_stands_in_its_answer(out: str, err: str, rc: int | None) -> None:
    read = units.understand(Answer(rc, out, err), ("a.service", "b.service"), 10.0)

    if isinstance(read, Unreadable):
        assert rc != 0
        return
    assert [each.name for each in read] == ["a.service", "b.service"]
    for each in read:
        assert all(word in out for word in (each.load, each.active, each.sub, each.result))
        assert (each.main_pid, each.restarts) in ((0, 0), (12, 0)) or str(each.main_pid) in out


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_what_a_user_met_is_a_step_and_a_word_of_the_answer(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")

    for each in mps.user_views(raw):
        assert each.step in text
        assert each.error in text
        assert each.reached is (each.error == "")


def test_the_rows_of_these_tests_reach_the_readers() -> None:
    """A property over answers that are all garbled would hold of anything."""
    told = mps.understand(Answer(0, f"100.0\n{MARK}2590\n{MARK}8G\n{MARK}", ""), 2.0, mps.About(1))
    assert isinstance(told, Answers)
    assert (told.percentage, told.servers, told.memory_limits_mib) == (100.0, (2590,), (8192,))
    event = kernel_log.parse(b"3,2,99,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=600, x\n")
    assert event is not None
    assert (event.bus, event.xid, event.pid) == ("0000:3b:00", 79, 600)
