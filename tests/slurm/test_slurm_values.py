"""Words of Slurm as values: states, GRES, reasons, names and host lists, by the cases beside this file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet import codes
from mpsfleet.errors import UsageError
from mpsfleet.slurm import gres, hostlist, names, reasons, states
from mpsfleet.slurm.drains import own_name

CASES = Path(__file__).with_name("cases")


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / name).read_text(encoding="utf-8")))


STATES, GRES, REASONS = read("states.json"), read("gres.json"), read("reasons.json")


@pytest.mark.parametrize("case", STATES["cases"], ids=lambda case: str(case["word"]))
def test_a_state_word_is_a_base_and_flags(case: dict[str, Any]) -> None:
    state = states.parse(case["word"])
    assert (state.base.value, sorted(state.flags), state.raw) == (case["base"], sorted(case["flags"]), case["word"])
    assert list(state.unknown_flags) == case.get("unknown", [])
    assert [each for each in case.get("true", []) if not getattr(state, each)] == []
    assert [each for each in case.get("false", []) if getattr(state, each)] == []


@pytest.mark.parametrize("word", STATES["not_states"])
def test_what_is_no_state_word_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match="is not a node state"):
        states.parse(word)


@given(
    st.sampled_from([each.value for each in states.Base if each is not states.Base.UNSAID]),
    st.lists(st.from_regex(r"[A-Z][A-Z_]{1,15}", fullmatch=True), max_size=5),
)
def test_no_flag_is_lost(base: str, flags: list[str]) -> None:
    state = states.parse("+".join([base, *flags]))
    assert state.base.value == base
    assert {states._long(each) for each in flags} == state.flags


@pytest.mark.parametrize("case", GRES["cases"], ids=lambda case: str(case["text"]) or "empty")
def test_a_gres_text_is_a_list_of_entries(case: dict[str, Any]) -> None:
    entries = gres.parse(case["text"])
    assert {name: gres.count_of(entries, name) for name in case["counts"]} == case["counts"]
    assert case.get("types", [each.type for each in entries]) == [each.type for each in entries]
    assert case.get("sockets", [each.sockets for each in entries]) == [each.sockets for each in entries]
    indices = [None if each.indices is None else list(each.indices) for each in entries]
    assert case.get("indices", indices) == indices
    shares = [None if each.shares is None else [list(share) for share in each.shares] for each in entries]
    assert case.get("shares", shares) == shares
    assert case.get("notes", [list(each.notes) for each in entries]) == [list(each.notes) for each in entries]


@pytest.mark.parametrize("text", GRES["not_gres"])
def test_what_is_no_gres_text_is_an_error(text: str) -> None:
    with pytest.raises(gres.GresError):
        gres.parse(text)


@given(st.text(st.sampled_from("gpums:,()-/0123456789SIDX.kKN A\n"), max_size=60))
def test_any_text_is_gres_or_a_gres_error(text: str) -> None:
    try:
        entries = gres.parse(text)
    except gres.GresError:
        return
    assert all(each.count >= 0 for each in entries)


def test_a_long_index_range_is_not_expanded() -> None:
    assert gres.parse("gpu:1(IDX:0-99999)")[0].indices is None


@pytest.mark.parametrize(("text", "code", "gpu"), REASONS["ours"])
def test_our_reasons_are_known_as_a_whole(text: str, code: str, gpu: int | None) -> None:
    assert reasons.parse(text) == (code, gpu)


@pytest.mark.parametrize("text", REASONS["not_ours"])
def test_anything_more_or_other_is_not_ours(text: str) -> None:
    assert reasons.parse(text) is None


@given(st.sampled_from(sorted(codes.DRAIN_WORDS)), st.none() | st.integers(0, 999))
def test_what_we_write_we_know_again(code: str, gpu: int | None) -> None:
    reason = reasons.build(code, gpu)
    assert reasons.parse(str(reason)) == reason
    assert re.fullmatch(r"mpsfleet: [a-z-]+( gpu[0-9]+)?", str(reason))


@given(st.sampled_from(sorted(codes.DRAIN_WORDS)), st.text(min_size=1, max_size=20))
def test_with_anything_added_a_reason_is_no_longer_ours(code: str, added: str) -> None:
    text = str(reasons.build(code))
    assert reasons.parse(added + text) is None
    is_index = re.fullmatch(r" gpu(0|[1-9][0-9]{0,2})", added)
    assert is_index or reasons.parse(text + added) is None or text + added in {f"mpsfleet: {c}" for c in codes.BY_NAME}


def test_a_renamed_code_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reasons.ALIASES, "daemon-hung", "daemon-wedged")
    assert reasons.parse("mpsfleet: daemon-hung gpu1") == ("daemon-wedged", 1)


@pytest.mark.parametrize(
    ("code", "gpu"), [("directory-mode", None), ("nonsense", None), ("reset", 1000), ("reset", -1)]
)
def test_no_reason_is_built_for_what_drains_nothing(code: str, gpu: int | None) -> None:
    with pytest.raises(UsageError):
        reasons.build(code, gpu)


@pytest.mark.parametrize("name", ["n1", "gpu-01", "node.example.org", "1", "a_b", "Alligator"])
def test_one_literal_name_is_taken(name: str) -> None:
    assert names.is_literal(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ALL",
        "all",
        "All",
        "n[1-4]",
        "n1,n2",
        "-n1",
        ".n1",
        "n1 ",
        "n1\n",
        "n1;n2",
        "n*",
        "n1=x",
        "\u00e9",
        "a" * 256,
    ],
)
def test_what_could_mean_more_than_one_node_is_no_name(name: str) -> None:
    assert not names.is_literal(name)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["n1"], "n1"),
        (["n3", "n1", "n2", "n7"], "n[1-3,7]"),
        (["n08", "n09", "n10", "n11"], "n[08-11]"),
        (["n-001", "n-002"], "n-[001-002]"),
        (["a", "b001", "b003", "c"], "a,b[001,003],c"),
        (["n9", "n10"], "n[9-10]"),
        (["n1.example", "n2.example"], "n[1-2].example"),
        (["n1", "n01"], "n01,n1"),
        (["n0"], "n0"),
        (["b10", "b9", "a1"], "a1,b[9-10]"),
        ([], ""),
    ],
)
def test_hosts_are_compacted(hosts: list[str], text: str) -> None:
    assert hostlist.compact(hosts) == text


@given(st.sets(st.from_regex(r"[a-c]{0,2}[0-9]{1,3}(\.x)?|[a-c]{1,3}", fullmatch=True), max_size=30))
def test_a_compacted_list_names_exactly_its_hosts(hosts: set[str]) -> None:
    assert expand(hostlist.compact(hosts)) == sorted(hosts)


def expand(text: str) -> list[str]:
    """Expand a list the way Slurm does: ranges keep the width of their first number."""
    found = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", word)
        if match is None:
            found.append(word)
            continue
        for part in match.group(2).split(","):
            low, _, high = part.partition("-")
            numbers = range(int(low), int(high or low) + 1)
            found += [f"{match.group(1)}{str(each).zfill(len(low))}{match.group(3)}" for each in numbers]
    return sorted(found)


def test_root_is_root_and_a_uid_without_a_name_is_nobody() -> None:
    assert own_name(0) == "root"
    assert own_name(4_000_000_001) is None
