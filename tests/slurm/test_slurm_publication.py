"""What a node publishes of itself: written and read back, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet import codes
from mpsfleet.slurm import publication
from mpsfleet.slurm.publication import Entry, Publication

SICK = '{"mpsfleet":"1 critical 4 1790000000 daemon-wedged:c:e:2,gpu-xid-logged:w:e"}'
WELL = '{"mpsfleet":"1 ok 3 1790000000 -"}'

ENTRIES = st.builds(
    Entry,
    st.sampled_from(sorted(codes.BY_NAME)),
    st.sampled_from(codes.SEVERITIES[1:]),
    st.sampled_from(("node", "user", "either")),
    st.none() | st.integers(0, 999),
)


@st.composite
def publications(draw: st.DrawFn) -> Publication:
    found = tuple(draw(st.lists(ENTRIES, max_size=publication.MOST_ENTRIES)))
    verdict = max((each.severity for each in found), key=codes.SEVERITIES.index, default="ok")
    return Publication(verdict, draw(st.integers(1, 999)), draw(st.integers(0, 99_999_999_999)), found)


@given(publications())
def test_what_is_written_is_read_back(value: Publication) -> None:
    text = publication.text(value)

    assert publication.parse(text) == value
    assert publication.is_ours(text)
    assert list(json.loads(text)) == ["mpsfleet"]
    assert len(text) <= publication.LONGEST


@given(st.text() | st.text(alphabet='{}":,-0123456789 mpsfletokwarncil', max_size=60))
def test_any_text_is_read_or_is_not_ours(text: str) -> None:
    found = publication.parse(text)

    assert found is None or publication.text(found) == text


@given(publications(), st.integers(0, 60), st.characters())
def test_a_text_with_another_character_is_read_as_it_stands_or_not_at_all(
    value: Publication, at: int, other: str
) -> None:
    text = publication.text(value)
    changed = text[:at] + other + text[at + 1 :]

    found = publication.parse(changed)

    assert found is None or publication.text(found) == changed


def test_the_text_is_as_documented() -> None:
    found = (Entry("daemon-wedged", "critical", "either", 2), Entry("gpu-xid-logged", "warn", "either"))

    assert publication.text(Publication("critical", 4, 1_790_000_000, found)) == SICK
    assert publication.text(Publication("ok", 3, 1_790_000_000)) == WELL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rack 7",
        WELL + "\n",
        WELL.replace("1 ok", "2 ok"),
        WELL.replace("ok 3", "ok 0"),
        WELL.replace("ok 3", "ok 03"),
        WELL.replace("ok 3", "ok 1000"),
        WELL.replace("ok", "critical"),  # without a reason
        SICK.replace("critical", "ok"),
        SICK.replace("critical", "warn"),
        SICK.replace(":2", ":02"),
        SICK.replace(":2", ":1000"),
        SICK.replace(":2", ":٢"),
        SICK.replace("daemon-wedged", "Daemon"),
        WELL.replace("}", ',"rack":"7"}'),
        SICK.replace("gpu-xid-logged:w:e", ",".join(["gpu-xid-logged:w:e"] * publication.MOST_ENTRIES)),
        '{"mpsfleet":"' + "1" * 100_000 + '"}',
    ],
)
def test_what_is_not_of_the_form_is_not_read(text: str) -> None:
    assert publication.parse(text) is None


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (WELL, True),
        (WELL.replace("1 ok", "2 ok"), True),  # of a later version
        ('{"mpsfleet":"x","rack":"7"}', False),
        ('{"rack":"7"}', False),
        ("rack 7", False),
        ('{"mpsfleet":"a\nb"}', False),
    ],
)
def test_whose_a_text_is(text: str, *, ours: bool) -> None:
    assert publication.is_ours(text) is ours


def test_findings_are_published_once_each_and_the_most_severe_first() -> None:
    found = (
        Entry("gpu-xid-logged", "warn", "either", 1),
        Entry("gpu-xid-logged", "warn", "either", 1),
        Entry("daemon-busy", "unknown", "user"),
        Entry("gpu-lost", "critical", "node", 3),
        Entry("gpu-lost", "critical", "node", 0),
        Entry("daemon-absent", "critical", "node"),
    )

    assert publication.chosen(found) == (found[5], found[4], found[3], found[2], found[0])


def test_no_more_than_eight_findings_are_published() -> None:
    found = [Entry("gpu-lost", "critical", "node", each) for each in range(20)]

    assert [each.gpu for each in publication.chosen(found)] == list(range(publication.MOST_ENTRIES))


@pytest.mark.parametrize(
    ("subject", "evidence", "gpu"),
    [
        ("gpu 3", (), 3),
        ("gpu3", (("gpu", "1"),), 3),
        ("daemon node", (("gpu", "1"),), 1),
        ("daemon node", (("index", "12"),), 12),
        ("daemon node", (("gpu", "none"), ("index", "1234")), None),
        ("daemon gpu2", (), 2),
        ("pipe directory /run/gpu7", (), None),
        ("gpus", (), None),
    ],
)
def test_the_gpu_that_a_finding_names(subject: str, evidence: tuple[tuple[str, str], ...], gpu: int | None) -> None:
    assert publication.gpu_of(subject, evidence) == gpu
