"""The documentation as a site in build/docs/site: the pages of docs/, the changelog and the collection's own pages.

Sphinx and what it needs are the extra `docs` of pyproject.toml. They live in an environment of their own, made at the
first build: those who only run the tests never wait for them. After that a build needs no network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomli

import collection
from mpsfleet import __version__
from mpsfleet.codes import CODES
from outcome import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = REPOSITORY / "docs"
COLLECTION = REPOSITORY / "ansible_collections" / "mpsfleet" / "mps"
BUILD = REPOSITORY / "build" / "docs"
TOOLS, SOURCE, SITE = BUILD / "tools", BUILD / "source", BUILD / "site"
UNAVAILABLE = 69  # sysexits.h


class Section(NamedTuple):
    """One heading of the navigation with its pages, by their names without ending, as they lie in docs/."""

    title: str
    pages: tuple[str, ...]
    may_lack: tuple[str, ...] = ()  # pages that a run writes, and a fresh checkout may not have


BROUGHT = ("reference/collection/readme", "reference/collection/index", "changelog")  # not from docs/
TITLES = {  # where the page's own is too long or says too little in the navigation
    "how-to/deploy": "Deploy",
    "how-to/gpus": "A daemon for each GPU",
    "how-to/rehearse": "Rehearse",
    "how-to/tell-slurm": "Tell Slurm",
    "how-to/find-drift": "Find drift",
    "how-to/coming-from-playbooks": "Replace your playbooks",
    "reference/collection/readme": "Playbooks and variables",
}
NAVIGATION = (
    Section("Tutorial", ("tutorial",)),
    Section(
        "How to",
        (
            "how-to/deploy",
            "how-to/gpus",
            "how-to/tell-slurm",
            "how-to/audit",
            "how-to/drains",
            "how-to/health-check",
            "how-to/find-drift",
            "how-to/reset",
            "how-to/upgrade-the-driver",
            "how-to/images",
            "how-to/coming-from-playbooks",
            "how-to/without-ansible",
            "how-to/rehearse",
        ),
    ),
    Section(
        "Reference",
        (
            "reference/command-line",
            "reference/node-toml",
            "reference/finding-codes",
            "reference/slurm-lint",
            "reference/slurm-states",
            "reference/exit-codes",
            "reference/json",
            "reference/faults",
            "reference/collection/readme",
            "reference/collection/index",
            "compatibility",
            "simulator-contract",
        ),
        may_lack=("compatibility", "simulator-contract"),
    ),
    Section("Findings", ("findings/index",)),
    Section("Explanation", ("explanation/safety", "explanation/facts", "explanation/cost", "decisions/index")),
    Section("Project", ("changelog",)),
)


class BuildError(Exception):
    """One sentence: why there is no site; and the exit code."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def build() -> Path:
    """Build the site and return its first page. BuildError where a tool is missing or a page has a mistake."""
    prepare_tools()
    gather(SOURCE)
    run(
        "the collection's pages",
        ["antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--fail-on-error",
         "--no-add-antsibull-docs-version", "--dest-dir", str(SOURCE / "reference" / "collection"), "mpsfleet.mps"],
    )  # fmt: skip
    tidy_collection(SOURCE / "reference" / "collection")
    shutil.rmtree(SITE, ignore_errors=True)
    run(
        "the site",
        ["sphinx-build", "--builder", "html", "--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto",
         "-d", str(BUILD / "doctrees"), str(SOURCE), str(SITE)],
    )  # fmt: skip
    return SITE / "index.html"


def prepare_tools() -> None:
    """Make the environment hold what the extra `docs` asks for."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        wanted: list[str] = tomli.load(file)["project"]["optional-dependencies"]["docs"]
    stamp = TOOLS / "stamp"
    mark = hashlib.sha256("\n".join([sys.version, str(TOOLS), *wanted]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == mark:
        return
    print("docs: installing the site's tools into build/docs/tools", flush=True)
    shutil.rmtree(TOOLS, ignore_errors=True)
    python = str(TOOLS / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(TOOLS)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
    ):
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if result.returncode:
            message = f"the site's tools could not be installed: {last_line(result.stdout + result.stderr)}"
            raise BuildError(message, UNAVAILABLE)
    stamp.write_text(mark, encoding="utf-8")


def gather(target: Path) -> None:
    """Lay out what Sphinx reads: the pages, the changelog, the collection's README, and the navigation."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("__pycache__", "man", "completion"))
    shutil.copy2(REPOSITORY / "CHANGELOG.md", target / "changelog.md")
    (target / "reference" / "collection").mkdir()
    shutil.copy2(COLLECTION / "README.md", target / "reference" / "collection" / "readme.md")
    with (target / "index.md").open("a", encoding="utf-8") as index:
        index.writelines(
            toctree([entry(each) for each in section.pages if not lacks(target, each, section)], section.title)
            for section in NAVIGATION
        )
    decisions = sorted(path.stem for path in (target / "decisions").glob("[0-9]*.md"))
    with (target / "decisions" / "index.md").open("a", encoding="utf-8") as index:
        index.write(toctree(decisions))
    with (target / "findings" / "index.md").open("a", encoding="utf-8") as index:
        index.write(toctree([each.code for each in CODES]))


def lacks(source: Path, page: str, section: Section) -> bool:
    """Tell whether a page that may be missing is."""
    return page in section.may_lack and not (source / f"{page}.md").exists()


def entry(page: str) -> str:
    """Return a page as the navigation names it."""
    return f"{TITLES[page]} <{page}>" if page in TITLES else page


def toctree(pages: Sequence[str], caption: str = "") -> str:
    """Return the directive that puts pages into the navigation, unseen in the page itself."""
    head = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n" + head + "\n" + "\n".join(pages) + "\n```\n"


def tidy_collection(folder: Path) -> None:
    """Make the generated pages fit this site.

    Their note tells how to get the collection from a place where it is not, the theme brings its own table of contents,
    and the titles are too long for a navigation.
    """
    (folder / "environment_variables.rst").unlink(missing_ok=True)  # there are none
    for page in folder.glob("*.rst"):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"(?ms)^\.\. Collection note\n.*?^(?=\.\. )(?!\.\. note::)", "", text)
        text = re.sub(r"(?m)^\.\. contents::\n(?:   .*\n)+", "", text)
        text = re.sub(r"(?m)^    (\w+)_(module|filter|role)$", r"    \1 <\1_\2>", text)
        title = "Modules, filter and role"
        text = re.sub(r"(?m)^Mpsfleet\.Mps\n=+$", f"{title}\n{'=' * len(title)}", text)
        page.write_text(text, encoding="utf-8")


def run(what: str, command: list[str]) -> None:
    """Run one of the site's tools; BuildError, with all it said, where it fails or warns."""
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        sys.stderr.write(result.stdout)
        message = f"{what}: `{command[0]}` ended with exit code {result.returncode}; what it said is above."
        raise BuildError(message)


def surroundings() -> dict[str, str]:
    """Return the environment of the tools: the collection as it lies in the checkout, and the version."""
    return {
        **os.environ,
        **collection.surroundings(),
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY),
        "MPSFLEET_DOCS_VERSION": __version__,
        "PATH": os.pathsep.join([str(TOOLS / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }


def last_line(text: str) -> str:
    """Return the last error, else the last line, of what a command said."""
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    errors = [each for each in lines if each.upper().startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1]
