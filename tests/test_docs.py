"""The documentation: links lead somewhere, pages from the sources are current, keys and codes are the program's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpsfleet import errors
from mpsfleet.node import desired

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = (REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text("utf-8")) if not (page.parent / target).exists()]
    assert missing == []


def test_pages_from_the_sources_are_current() -> None:
    result = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_example_of_node_toml_is_valid_and_names_every_key() -> None:
    page = (REPOSITORY / "docs" / "node-toml.md").read_text("utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    value, mistakes = desired.parse(example)
    assert mistakes == ()
    assert value._replace(gpus_expected=-1, node_name="", cluster="") == desired.Desired()
    named = set(re.findall(r"^(\w+) = ", example, re.MULTILINE)) - {"schema"}
    assert named == {key for keys in desired._KEYS.values() for key in keys}


def test_every_exit_code_is_explained() -> None:
    page = (REPOSITORY / "docs" / "exit-codes.md").read_text("utf-8")
    explained = set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE)))
    codes = {errors.OK, errors.WARNING, errors.CRITICAL, errors.UNKNOWN, errors.USAGE, errors.REFUSED}
    assert codes <= explained
