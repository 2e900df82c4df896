"""Public cases about host lists, and what holds for every list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.slurm import hostlist
from mpsfleet.slurm.hostlist import EmptyEntry, HostlistError

if TYPE_CHECKING:
    from tests.cases.conftest import Row

PADDED = st.builds(lambda number, width: str(number).zfill(width), st.integers(0, 10**12), st.integers(1, 15))
NAMES = st.one_of(
    st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True),
    st.builds(
        "{0}{1}{2}".format, st.sampled_from(["n", "g-", "rack2n", "a.b-"]), PADDED, st.sampled_from(["", "x", "-ib"])
    ),
    st.builds("n{}".format, st.integers(0, 12)),
    st.builds("n{:03}".format, st.integers(0, 12)),
)
BLANKS = st.sampled_from(["", " ", "\t"])


def test_a_list_names_its_hosts(expand: Row) -> None:
    assert list(hostlist.expand(expand["text"])) == expand["names"]


def test_hosts_are_written_as_a_list(compact: Row) -> None:
    assert hostlist.compact(compact["names"]) == compact["text"]


def test_a_text_that_is_no_list_is_refused(refuse: str) -> None:
    with pytest.raises(HostlistError):
        hostlist.expand(refuse)


@settings(max_examples=100, deadline=None)
@given(st.lists(NAMES, unique=True, max_size=25))
def test_a_compact_list_names_the_same_hosts(hosts: list[str]) -> None:
    text = hostlist.compact(hosts)
    assert sorted(hostlist.expand(text)) == sorted(hosts)
    assert hostlist.compact(hostlist.expand(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(NAMES, min_size=1, max_size=5), max_size=5), BLANKS, BLANKS)
def test_lists_side_by_side_name_the_hosts_of_each(lists: list[list[str]], before: str, after: str) -> None:
    text = f"{before},{after}".join(hostlist.compact(each) for each in lists)
    assert sorted(hostlist.expand(text)) == sorted(name for each in lists for name in set(each))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(NAMES, st.just(""), st.just(" ")), min_size=2, max_size=8))
def test_an_empty_entry_is_told_and_can_be_read_over(entries: list[str]) -> None:
    text, names = ",".join(entries), tuple(each for each in entries if each.strip())
    assert hostlist.expand(text, skip_empty=True) == names
    if len(names) < len(entries) and text.strip():
        with pytest.raises(EmptyEntry):
            hostlist.expand(text)
