"""The pages of docs/findings/: each code has a whole one, each page has a code, each code has a test that produces it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
import findings  # noqa: E402  needs the path above
from mpsfleet import cli  # noqa: E402  beside it
from mpsfleet.codes import BY_NAME, CODES  # noqa: E402  beside it

SOME = BY_NAME["daemon-wedged"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder with a whole page for each code."""
    made = tmp_path / "findings"
    made.mkdir()
    body = "".join(f"\n## {each}\n\nText.\n" for each in findings.SECTIONS)
    for each in CODES:
        (made / f"{each.code}.md").write_text(findings.page(each, f"{findings.END}\n{body}"), encoding="utf-8")
    return made


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """Provide a folder of tests that find each code, in the place of the simulator's."""
    made = tmp_path / "tests"
    (made / "sim").mkdir(parents=True)
    (made / "sim" / "test_all.py").write_text(f"EXPECTED = {sorted(BY_NAME)}\n", encoding="utf-8")
    return made


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_whole_pages_and_tests_have_no_problem(folder: Path, tests: Path) -> None:
    assert findings.problems(folder, tests) == []


def test_a_code_without_a_page_is_told(folder: Path, tests: Path) -> None:
    (folder / "gpu-lost.md").unlink()

    (sentence,) = findings.problems(folder, tests)

    assert sentence.startswith("docs/findings/gpu-lost.md is missing")


def test_a_page_without_a_code_is_told(folder: Path, tests: Path) -> None:
    (folder / "gpu-sad.md").write_text("# gpu-sad\n", encoding="utf-8")

    (sentence,) = findings.problems(folder, tests)

    assert "gpu-sad.md is a page of no code" in sentence


@pytest.mark.parametrize("number", range(len(findings.SECTIONS)))
def test_an_empty_section_is_told(folder: Path, tests: Path, number: int) -> None:
    title = findings.SECTIONS[number]
    edit(folder / "gpu-lost.md", f"## {title}\n\nText.\n", f"## {title}\n\n")

    assert findings.problems(folder, tests) == [f"docs/findings/gpu-lost.md: the section {title!r} is empty."]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("## What you can do\n", "## What to do\n", "does not have the sections"),
        ("## What you can do\n\nText.\n", "", "does not have the sections"),
        (f"{findings.END}\n", f"{findings.END}\nText before a section.\n", "nothing before them"),
        (findings.END, "", "has lost its line"),
    ],
)
def test_a_page_that_has_lost_its_form_is_told(folder: Path, tests: Path, old: str, new: str, told: str) -> None:
    edit(folder / "gpu-lost.md", old, new)

    (sentence,) = findings.problems(folder, tests)

    assert told in sentence


@pytest.mark.parametrize(
    "source",
    [
        "",
        'assert "gpu-lost" not in found\n',
        'fleet.break_node("n1", "gpu-lost")\n',
        'each("fault", ["gpu-lost", "other"])\n',
        'SENTENCE = "it is gpu-lost here"\n',
        "# the code gpu-lost\n",
    ],
)
def test_a_code_that_no_test_finds_is_told(folder: Path, tests: Path, source: str) -> None:
    edit(tests / "sim" / "test_all.py", "'gpu-lost', ", "")
    (tests / "sim" / "test_some.py").write_text(source, encoding="utf-8")

    assert findings.problems(folder, tests) == [
        "no test produces the finding gpu-lost; write one (tests/node, tests/sim or tests/lab)."
    ]


@pytest.mark.parametrize(
    ("file", "source", "places"),
    [
        ("lab/test_x.py", 'CASES = [("break", "gpu-lost")]\n', (True, False, False)),
        ("lab/test_x.py", 'assert set(found) == {"gpu-lost"}\n', (True, False, False)),
        ("sim/a/test_x.py", 'assert "gpu-lost" in found\n', (False, True, False)),
        ("node/test_x.py", 'assert found["gpu-lost"].origin == "node"\n', (False, False, True)),
        ("cases/x.toml", 'code = "gpu-lost"\n', (False, False, True)),
        ("nodes/x/report.json", '{"code": "gpu-lost"}\n', (False, False, True)),
        ("slurm/test_x.py", 'assert "gpu-lost" in found\n', (False, False, False)),
    ],
)
def test_where_a_code_is_shown_goes_by_the_folder(
    tmp_path: Path, file: str, source: str, places: tuple[bool, ...]
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")

    assert findings.shown(tmp_path)["gpu-lost"] == places


def test_a_head_is_written_anew_and_what_is_written_by_hand_is_kept() -> None:
    before = f"# old\n\n{findings.BEGIN}\n\nOld.\n\n{findings.END}\n\n## How it comes about\n\nBy hand.\n"

    after = findings.page(SOME, before)

    assert after.startswith(f"# {SOME.code}\n")
    assert SOME.meaning in after
    assert SOME.remedy in after
    assert "Old." not in after
    assert after.partition(findings.END)[2] == before.partition(findings.END)[2]


def test_a_page_without_its_mark_is_not_written_over() -> None:
    assert findings.page(SOME, "# by hand\n") == "# by hand\n"


def test_a_stale_head_or_index_is_what_the_check_compares(folder: Path, tests: Path) -> None:
    edit(folder / f"{SOME.code}.md", SOME.meaning, "Another meaning.")

    stale = [
        path.name
        for path, text in findings.pages(folder, tests).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]

    assert stale == ["index.md", f"{SOME.code}.md"]  # the folder has no index yet


@pytest.mark.parametrize(
    ("code", "drains", "a_reset"),
    [
        ("daemon-absent", "where drains are asked for", "see below"),
        ("daemon-wedged", "only where the finding shows that the node did it", "see below"),
        ("server-fault", "no", "see below"),
        ("gpu-lost", "where drains are asked for", "is refused: it would not help"),
    ],
)
def test_the_head_tells_what_the_table_of_codes_says(code: str, drains: str, a_reset: str) -> None:
    each = BY_NAME[code]

    assert f"| {drains} | {a_reset} |" in findings.page(each, "")
    assert f"| {each.severity} |" in findings.page(each, "")


@pytest.mark.parametrize("code", [each.code for each in CODES])
def test_explain_names_the_page(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", code]) == 0
    page = capsys.readouterr().out.splitlines()[-1].split()[-1]
    assert page == f"docs/findings/{code}.md"
    assert (REPOSITORY / page).exists()


def test_the_table_of_codes_links_each_to_its_page() -> None:
    table = (REPOSITORY / "docs" / "reference" / "finding-codes.md").read_text("utf-8")
    assert [each.code for each in CODES if f"(../findings/{each.code}.md)" not in table] == []
