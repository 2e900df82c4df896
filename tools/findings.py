"""The pages of docs/findings/: one a finding code, whose head comes from codes.py, and the table of what tests show.

The head of a page stands between two marks and is written anew each time; what follows it is written by hand and kept.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.codes import BEYOND_RESET, CODES, Code
from outcome import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = REPOSITORY / "docs" / "findings"
TESTS = REPOSITORY / "tests"
BEGIN = "<!-- From src/mpsfleet/codes.py, by `./dev docs --pages`. -->"
END = "<!-- From here on by hand. -->"
SECTIONS = ("How it comes about", "How to see it by hand", "What mpsfleet does", "What you can do")
_CAUSES = {"node": "the node", "user": "a user", "either": "the node or a user"}


class Place(NamedTuple):
    """A kind of tests, by the folders of its sources below tests/."""

    title: str
    folders: tuple[str, ...]


PLACES = (
    Place("lab", ("lab",)),
    Place("simulator", ("sim",)),
    Place("recorded or built facts", ("node", "cases", "nodes")),
)
_SOURCES = (".py", ".toml", ".json")
_INDEX_HEAD = """\
# Findings

Written by `./dev docs` from `src/mpsfleet/codes.py` and the tests. A page for each code: what it means, how it comes
about, how to see it by hand, what mpsfleet does and what you can do. `mpsfleet explain CODE` says the same in short;
[one table](../reference/finding-codes.md) has all codes with their remedies.

## If MPS is new to you

NVIDIA MPS lets several programs compute on one GPU at the same time. Three kinds of processes take part:

- The **control daemon** (`nvidia-cuda-mps-control`), which runs as root. It owns the **pipe directory**, with the
  sockets `control` (for everybody) and `control_privileged` (for root), the lock `control_lock` and the fifo `log`.
- A **server** (`nvidia-cuda-mps-server`), which the daemon starts when the first program comes, and which runs as the
  user of that program. One daemon serves one user at a time.
- The **clients**: the CUDA programs of jobs. They find the daemon through `CUDA_MPS_PIPE_DIRECTORY`. Without clients
  there may be no server, and that is no fault.

A client does not outlive its server. So nothing of MPS is restarted while jobs may use it: a
[reset](../how-to/reset.md) needs a node that is drained and idle.

## The commands on these pages

They are for root on the GPU node, and for the default: unit `nvidia-mps.service`, pipe directory
`/run/nvidia-mps/node`, logs in `/var/log/nvidia-mps`. With a daemon for each GPU, those of GPU 2 are
`nvidia-mps@2.service`, `/run/nvidia-mps/2` and `/var/log/nvidia-mps/2`. `/etc/mpsfleet/node.toml` says what your node
has. Commands of Slurm's (`scontrol`, `scancel`) may have to be typed on the controller. They all only look, except
under "What you can do". Pids, users and times in what they print are examples. What the daemon answers was read from
NVIDIA's own, drivers 470 to 555; what takes a GPU, from the simulated fleet.

**Put `timeout 5` before every question to the daemon**, as these pages do: one that does not answer would keep your
shell, too. Exit status 124 then means that no answer came.

## Where each code is shown

*lab*: on NVIDIA's own control daemon, real systemd, Slurm and kernel; *simulator*: on the simulated fleet;
*recorded or built facts*: by what was read on a node, or by facts that a test puts together.

"""
_TABLE_HEAD = "| code | severity | lab | simulator | recorded or built facts |\n| --- | --- | --- | --- | --- |\n"


def pages(folder: Path = FOLDER, tests: Path = TESTS) -> dict[Path, str]:
    """Return every page by its file; a code without a page gets one whose sections are empty."""
    made = {folder / "index.md": index(shown(tests))}
    for code in CODES:
        path = folder / f"{code.code}.md"
        made[path] = page(code, path.read_text(encoding="utf-8") if path.exists() else "")
    return made


def problems(folder: Path = FOLDER, tests: Path = TESTS) -> list[str]:
    """Return a sentence for each code without a whole page or a test, and for each page without a code.

    `pages` writes a page that is not there, so that one is told of by its empty sections, too.
    """
    names = {"index", *(each.code for each in CODES)}
    stray = sorted(each.name for each in folder.glob("*.md") if each.stem not in names)
    where = shown(tests)
    unshown = [each.code for each in CODES if not any(where[each.code])]
    return [
        *(sentence for each in CODES for sentence in _lacks(folder / f"{each.code}.md")),
        *(f"docs/findings/{name} is a page of no code; remove it, or give the code back." for name in stray),
        *(f"no test produces the finding {code}; write one (tests/node, tests/sim or tests/lab)." for code in unshown),
    ]


def _lacks(path: Path) -> Iterator[str]:
    """Yield a sentence for each thing that a code's page lacks of what is written by hand."""
    name = f"docs/findings/{path.name}"
    if not path.exists():
        yield f"{name} is missing; `./dev docs --pages` begins it."
        return
    _, found, rest = path.read_text(encoding="utf-8").partition(END)
    if not found:
        yield f"{name} has lost its line `{END}`; put it back above the first section."
        return
    before, *parts = re.split(r"(?m)^## (.*)$", rest)
    if before.strip() or tuple(parts[::2]) != SECTIONS:
        yield f"{name} does not have the sections {', '.join(SECTIONS)}, in this order and nothing before them."
    for title, text in zip(parts[::2], parts[1::2]):
        if not text.strip():
            yield f"{name}: the section {title!r} is empty."


def page(code: Code, before: str) -> str:
    """Return a code's page: its head, and what stands below the head in `before`.

    A page that has lost the mark below its head is left as it is, or what was written by hand would be lost with it.
    """
    if before and END not in before:
        return before
    rest = before.partition(END)[2] or "\n" + "".join(f"\n## {each}\n" for each in SECTIONS)
    return f"# {code.code}\n\n{BEGIN}\n\n{_head(code)}\n{END}{rest}"


def _head(code: Code) -> str:
    return (
        f"{code.meaning}\n\n"
        "| severity | cause | drains the node | a reset |\n| --- | --- | --- | --- |\n"
        f"| {code.severity} | {_CAUSES[code.origin]} | {_drains(code)} | {_reset(code)} |\n\n"
        f"**To do:** {code.remedy} New to MPS? [Words and paths](index.md).\n"
    )


def _drains(code: Code) -> str:
    if not code.drain:
        return "no"
    return (
        "where drains are asked for" if code.origin == "node" else "only where the finding shows that the node did it"
    )


def _reset(code: Code) -> str:
    return "is refused: it would not help" if code.code in BEYOND_RESET else "see below"


def index(where: dict[str, tuple[bool, ...]]) -> str:
    """Return the page of all codes with where tests produce each."""
    return _INDEX_HEAD + _TABLE_HEAD + "".join(_row(each, where[each.code]) for each in CODES)


def _row(code: Code, where: tuple[bool, ...]) -> str:
    cells = " | ".join("yes" if each else "no" for each in where)
    return f"| [`{code.code}`]({code.code}.md) | {code.severity} | {cells} |\n"


def shown(tests: Path) -> dict[str, tuple[bool, ...]]:
    """Return for each code whether the tests of each place name it, as a text of its own, as something they find."""
    named = [frozenset(each for folder in place.folders for each in _named(tests / folder)) for place in PLACES]
    return {each.code: tuple(each.code in words for words in named) for each in CODES}


def _named(folder: Path) -> Iterator[str]:
    """Yield the quoted texts of a folder's sources. One that is only said not to be there is none."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _SOURCES or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        yield from _of_python(text) if path.suffix == ".py" else re.findall(r'"([a-z0-9-]+)"', text)


def _of_python(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    passed_by = {id(each) for node in ast.walk(tree) for each in _no_findings(node)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in passed_by:
            yield each.value


def _no_findings(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the texts that stand for no finding: what is said not to be there, and what a call is given.

    A fault can have the name of a code: `break_node("n1", "gpu-lost")`, alone or in a list of what to break.
    """
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotIn):
        yield node.left
    if isinstance(node, ast.Call):
        for each in node.args:
            yield from each.elts if isinstance(each, ast.List) else (each,)
