"""The arrows between the rooms, the doors, names and sizes, held by reading the sources and never importing them."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "mpsfleet"
LINES = 350
TABLES = {"src/mpsfleet/codes.py"}  # one table, a row a code: nothing to part

SHARED = ("mpsfleet.errors", "mpsfleet.codes", "mpsfleet.program", "mpsfleet.show", "mpsfleet.tuples")
VALUES = ("gres", "names", "nodes", "publication", "reasons")  # Slurm's values, which a node may know
SLURMS = tuple(f"mpsfleet.slurm.{each}" for each in VALUES)
NODE_DOOR = "node/host"
SLURM_DOOR = ("slurm/child.py", "slurm/commands.py")
PURE = ("node/judge", "node/plan.py")
WORLD = ("os", "subprocess", "socket", "signal", "select", "fcntl", "time", "shutil", "tempfile", "pathlib", "io")
SPAWNERS = ("subprocess", "multiprocessing", "pty", "concurrent.futures", "asyncio")
SPAWNS = re.compile(r"os\.(kill|killpg|posix_spawnp?|fork|forkpty|exec\w+|spawn\w+|system|popen|pidfd_open)$")
SIGNALS = re.compile(r"signal\.(pidfd_send_signal|pthread_kill|raise_signal)$")
WRITES = re.compile(
    r"(os\.(unlink|remove|removedirs|rmdir|rename|renames|replace|link|symlink|mkdir|makedirs|mkfifo|mknod|f?chmod"
    r"|[fl]?chown|truncate|ftruncate|setxattr|utime)|shutil\.(rmtree|move|copy\w*|chown)|fcntl\.(flock|lockf))$"
)
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
ANSIBLES_OWN = {"module_utils", "plugin_utils", "doc_fragments"}


class Module(NamedTuple):
    """One source file of the package."""

    name: str  # e.g. "node/judge/daemons.py"
    imports: frozenset[str]  # every module named by an import statement, absolute
    calls: frozenset[str]  # dotted names that are called, with import aliases resolved

    def lies_in(self, *rooms: str) -> bool:
        """Return whether this is one of the files, or lies in one of the folders."""
        return any(self.name == room or self.name.startswith(f"{room}/") for room in rooms)

    def imported(self, *names: str) -> list[str]:
        """Return the imports that are one of `names` or lie below one."""
        return sorted(each for each in self.imports if is_below(each, names))


def is_below(name: str, tops: tuple[str, ...]) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def imports_of(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield (module, name as bound here, what that name stands for) for every import in a file of `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield each.name, each.asname or each.name, each.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *(node.module or "").split("."))).strip(".")
            for each in node.names:
                is_module = (PACKAGE.parent / module.replace(".", "/") / f"{each.name}.py").exists() or (
                    PACKAGE.parent / module.replace(".", "/") / each.name
                ).is_dir()
                whole = f"{module}.{each.name}"
                yield whole if is_module else module, each.asname or each.name, whole


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


@functools.cache
def read(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    relative = path.relative_to(PACKAGE)
    found = list(imports_of(tree, ("mpsfleet", *relative.parts[:-1])))
    names = {bound: whole for _, bound, whole in found}
    calls = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, _, rest = dotted(node.func).partition(".")
            calls.add(f"{names.get(first, first)}.{rest}".strip("."))
    return Module(relative.as_posix(), frozenset(module for module, _, _ in found), frozenset(calls))


PATHS = tuple(sorted(PACKAGE.rglob("*.py")))


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Module:
    """Give a source file, read when it is its turn: the other worker of a run has no use for it."""
    return read(request.param)


def modules() -> tuple[Module, ...]:
    return tuple(map(read, PATHS))


def foreign(module: Module, allowed: tuple[str, ...]) -> list[str]:
    """Return the imports that are neither the standard library nor allowed."""
    return sorted(
        each
        for each in module.imports
        if each.split(".")[0] not in sys.stdlib_module_names and each != "mpsfleet" and not is_below(each, allowed)
    )


@pytest.mark.parametrize("module", PATHS, ids=lambda path: str(path.relative_to(PACKAGE)), indirect=True)
class TestEachModule:
    """One rule of the design each."""

    def test_a_node_needs_the_standard_library_tomli_and_its_own_room(self, module: Module) -> None:
        if module.lies_in("node"):
            assert foreign(module, ("tomli", "mpsfleet.node", *SHARED, *SLURMS)) == []

    def test_slurms_room_never_imports_the_nodes(self, module: Module) -> None:
        if module.lies_in("slurm"):
            assert foreign(module, ("tomli", "mpsfleet.slurm", *SHARED)) == []

    def test_what_travels_to_nodes_never_imports_the_administrators_rooms(self, module: Module) -> None:
        if not module.lies_in("fleet", "sim", "cli.py"):  # the dispatcher, which imports a room when it is called
            assert module.imported("mpsfleet.fleet", "mpsfleet.sim") == []

    def test_judging_and_planning_touch_no_host(self, module: Module) -> None:
        if module.lies_in(*PURE):
            assert module.imported("mpsfleet.node.host", *WORLD) == []

    def test_only_a_door_starts_or_signals_processes(self, module: Module) -> None:
        if module.lies_in("node", "slurm") and not module.lies_in(NODE_DOOR, *SLURM_DOOR):
            assert module.imported(*SPAWNERS) == []
            assert [each for each in sorted(module.calls) if SPAWNS.match(each) or SIGNALS.match(each)] == []

    def test_only_the_host_writes_and_locks_on_a_node(self, module: Module) -> None:
        if module.lies_in("node") and not module.lies_in(NODE_DOOR):
            assert [each for each in sorted(module.calls) if WRITES.match(each)] == []


def test_slurms_values_are_values() -> None:
    """What a node may import of Slurm's room leads, over any number of imports, to no door and no command line."""
    by_name = {f"mpsfleet.{module.name[:-3].replace('/', '.')}": module for module in modules()}
    reached, ahead = set(), set(SLURMS)
    while ahead:
        reached |= ahead
        ahead = {each for name in ahead if name in by_name for each in by_name[name].imports} - reached
    assert {each for each in reached if is_below(each, (*SPAWNERS, "argparse", "mpsfleet.slurm.cli"))} == set()


def sources() -> list[Path]:
    """Return the Python files that a person reads: of the program, its tools, its tests and its lab."""
    folders = ("src", "tools", "tests", "lab", "bench", "ansible_collections")
    found = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts and "output" not in path.parts)


def test_every_module_says_by_its_name_what_it_holds() -> None:
    empty = []
    for path in sources():
        parts = [part for part in path.relative_to(REPOSITORY).with_suffix("").parts if part not in ANSIBLES_OWN]
        if any(part.rpartition("_")[2] in EMPTY_NAMES for part in parts):
            empty.append(str(path.relative_to(REPOSITORY)))
    assert empty == []


def test_no_module_grows_past_one_concept() -> None:
    long = {
        str(path.relative_to(REPOSITORY)): count
        for path in sources()
        if (count := path.read_text(encoding="utf-8").count("\n")) > LINES
        and path.relative_to(REPOSITORY).parts[0] in ("src", "tools", "lab", "bench")
        and str(path.relative_to(REPOSITORY)) not in TABLES
    }
    assert long == {}


def test_every_module_opens_with_its_concept() -> None:
    silent = [
        str(path.relative_to(REPOSITORY))
        for path in sources()
        if path.read_text(encoding="utf-8").strip() and path.relative_to(REPOSITORY).parts[0] in ("src", "tools")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def tracked_text() -> Iterator[tuple[str, str]]:
    """Yield name and text of every file that is, or would be, in the repository."""
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout, so what the repository holds is not known")
    command = [git, "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0"):
        path = REPOSITORY / name
        if name and path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


# A sign for a slash and one for a dot, so that this file does not hold what it looks for.
OF_ONE_MACHINE = tuple(
    re.compile(pattern.replace("%", "/").replace(" ", r"\."))
    for pattern in (
        r"(?<![\w ])%work%",
        r"%root% (pyenv|cache|local)",
        r"%home%(?!alice|bob)\w+%",
        r"%tmp%plan\b",
        r"pypi org",
        r"pythonhosted org",
        r"(deb|security) debian org",
        r"galaxy ansible com",
        r"registry npmjs org",
    )
)


def test_no_file_names_one_persons_machine_or_a_package_registry() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked_text()
        for number, line in enumerate(text.splitlines(), 1)
        if any(pattern.search(line) for pattern in OF_ONE_MACHINE)
    ]
    assert found == []
