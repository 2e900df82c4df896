"""The program as one file: built reproducibly, refused by old Pythons in a sentence, rebuilt for a node's Python."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mpsfleet import __version__, program

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "tools" / "build_pyz.py"
MAIN = REPOSITORY / "src" / "mpsfleet" / "__main__.py"
MISLEADING = {"PYTHONPATH": "/nonexistent", "PYTHONWARNINGS": "error"}
NEVER = {"argparse", "re", "subprocess", "dataclasses", "logging", "enum", "typing", "json", "asyncio", "zipfile"}
NEVER_IN_AN_AUDIT = {"argparse", "subprocess", "dataclasses", "logging", "concurrent.futures", "asyncio", "zipfile"}


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, env=environment, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "mpsfleet.pyz"
    result = run(sys.executable, BUILD, "--output", target)
    assert result.returncode == 0, result.stderr
    return target


def interpreters() -> dict[tuple[int, int], str]:
    """Return the Pythons of this machine by version: those on PATH and those that pyenv keeps."""
    versions = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
    candidates = [path for path in (shutil.which(f"python{each}") for each in versions) if path]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [path for path in candidates if "/shims/" not in path]  # pyenv's own scripts, slow, before its Pythons
    candidates += [str(path) for path in sorted(pyenv.glob("*/bin/python"))]
    found = {}
    for path in {os.path.realpath(path): path for path in candidates}.values():
        result = run(path, "-S", "-c", "import sys; print('%d %d' % sys.version_info[:2])")
        if result.returncode == 0:
            major, minor = result.stdout.split()
            found[int(major), int(minor)] = path
    return found


INTERPRETERS = interpreters()
TOO_OLD = {version: path for version, path in INTERPRETERS.items() if version < (3, 9)}
GOOD = {version: path for version, path in INTERPRETERS.items() if version >= (3, 9)}


def named(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


class TestSource:
    """The file that is built and shipped."""

    def test_two_builds_give_the_same_bytes(self) -> None:
        result = run(sys.executable, BUILD, "--check")
        assert (result.returncode, result.stderr) == (0, "")

    def test_holds_sources_and_licenses_and_no_byte_code(self, pyz: Path) -> None:
        names = zipfile.ZipFile(pyz).namelist()
        assert names == sorted(names)
        assert {"__main__.py", "mpsfleet/cli.py", "tomli/__init__.py", "tomli/LICENSE", "LICENSE"} <= set(names)
        assert [each for each in names if each.endswith(".pyc")] == []

    def test_starts_isolated_from_users(self, pyz: Path) -> None:
        assert pyz.read_bytes().splitlines()[0] == b"#!/usr/bin/python3 -IS"
        assert pyz.stat().st_mode & 0o777 == 0o755

    def test_names_its_own_digest(self, pyz: Path) -> None:
        answer = json.loads(run(sys.executable, "-IS", pyz, "--version", "--json").stdout)
        assert answer == {
            "version": __version__,
            "schema": 1,
            "digest": hashlib.sha256(pyz.read_bytes()).hexdigest(),
        }

    def test_bundles_a_tomli_that_reads_toml(self, pyz: Path) -> None:
        asking = f"import sys; sys.path.insert(0, {str(pyz)!r}); import tomli; print(tomli.loads('a = 1'), tomli)"
        answer = run(sys.executable, "-IS", "-c", asking).stdout
        assert answer.startswith("{'a': 1}")
        assert str(pyz) in answer

    def test_without_tomli_and_pip_says_so_in_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        build = runpy.run_path(str(BUILD))
        monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
        monkeypatch.setattr(sys, "executable", "/bin/false")
        assert build["main"](["--output", str(tmp_path / "x")]) == 1
        assert re.fullmatch(r"build_pyz: needs tomli [^\n]+\n", capsys.readouterr().err)

    @pytest.mark.parametrize("python", GOOD.values(), ids=[named(each) for each in GOOD])
    def test_runs_on_every_python_from_3_9(self, pyz: Path, python: str) -> None:
        result = run(python, "-IS", pyz, "--version")
        assert (result.returncode, result.stdout, result.stderr) == (0, f"mpsfleet {__version__}\n", "")

    @pytest.mark.parametrize("python", GOOD.values(), ids=[named(each) for each in GOOD])
    def test_every_module_loads_on_every_python_from_3_9(self, pyz: Path, python: str) -> None:
        loading = (
            f"import sys; sys.path.insert(0, {str(pyz)!r}); import importlib, pkgutil, mpsfleet; "
            "names = [each.name for each in pkgutil.walk_packages(mpsfleet.__path__, 'mpsfleet.')]; "
            "[importlib.import_module(each) for each in names]; print(len(names))"
        )
        result = run(python, "-IS", "-W", "error", "-c", loading)
        assert result.stderr == ""
        assert int(result.stdout) > len(zipfile.ZipFile(pyz).namelist()) // 2

    def test_has_the_version_of_the_collection_that_carries_it(self) -> None:
        galaxy = REPOSITORY / "ansible_collections" / "mpsfleet" / "mps" / "galaxy.yml"
        assert f"\nversion: {__version__}\n" in galaxy.read_text(encoding="utf-8")


class TestOldPython:
    """Whatever `python3` a node has, the answer is a sentence."""

    SENTENCE = re.compile(r"mpsfleet: needs Python 3\.9 or newer and was started by Python [^\n]+\n")

    @pytest.mark.skipif(not TOO_OLD, reason="no Python older than 3.9 on this machine")
    @pytest.mark.parametrize("python", TOO_OLD.values(), ids=[named(each) for each in TOO_OLD])
    def test_a_real_one_refuses_in_one_sentence(self, pyz: Path, python: str) -> None:
        result = run(python, pyz, "node", "audit")
        assert (result.returncode, result.stdout) == (3, "")
        assert self.SENTENCE.fullmatch(result.stderr)

    def test_3_8_is_refused(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(sys, "version_info", (3, 8, 18, "final", 0))
        monkeypatch.setattr(sys, "version", "3.8.18 (default)")
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(MAIN), run_name="__main__")
        assert stop.value.code == 3
        assert self.SENTENCE.fullmatch(capsys.readouterr().err)

    def test_the_entry_keeps_to_syntax_that_python_2_7_and_3_share(self) -> None:
        tree = ast.parse(MAIN.read_text(encoding="ascii"), feature_version=(3, 7))
        newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.FunctionDef, ast.Starred)
        assert [each for each in ast.walk(tree) if isinstance(each, newer)] == []

    def test_both_entries_of_the_zip_are_that_file(self, pyz: Path) -> None:
        archive = zipfile.ZipFile(pyz)
        assert archive.read("__main__.py") == archive.read("mpsfleet/__main__.py") == MAIN.read_bytes()


class TestStart:
    """What a start costs: modules beyond those that an empty zipapp loads."""

    @pytest.fixture(scope="class")
    def floor(self, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
        empty = tmp_path_factory.mktemp("empty") / "empty.pyz"
        with zipfile.ZipFile(empty, "w") as archive:
            archive.writestr("__main__.py", "")
        return loaded(empty)

    def test_the_version_loads_nothing_dear(self, pyz: Path, floor: set[str]) -> None:
        assert (loaded(pyz, "--version") - floor) & NEVER == set()

    def test_an_audit_loads_nothing_that_it_does_not_need(self, pyz: Path, floor: set[str], tmp_path: Path) -> None:
        missing = tmp_path / "node.toml"
        assert (loaded(pyz, "node", "audit", "--json", "--config", missing) - floor) & NEVER_IN_AN_AUDIT == set()


def loaded(pyz: Path, *words: str | Path) -> set[str]:
    """Return the modules that a start imports, as the interpreter itself lists them."""
    lines = run(sys.executable, "-IS", "-X", "importtime", pyz, *words).stderr.splitlines()
    return {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}


class TestRebuilt:
    """A node's own copy, with byte code."""

    @pytest.fixture
    def copy(self, pyz: Path, tmp_path: Path) -> Path:
        source = pyz.read_bytes()
        return written(tmp_path / "mpsfleet", program.rebuild(source, hashlib.sha256(source).hexdigest()))

    def test_starts_by_itself(self, copy: Path) -> None:
        result = run(copy, "--version", **MISLEADING)
        assert (result.returncode, result.stdout, result.stderr) == (0, f"mpsfleet {__version__}\n", "")

    def test_names_the_digest_of_its_source(self, copy: Path, pyz: Path) -> None:
        answer = json.loads(run(copy, "--version", "--json").stdout)
        assert answer["digest"] == hashlib.sha256(pyz.read_bytes()).hexdigest()

    def test_runs_its_byte_code_and_not_its_sources(self, copy: Path, tmp_path: Path) -> None:
        broken = io.BytesIO()
        with zipfile.ZipFile(copy) as old, zipfile.ZipFile(broken, "w") as new:
            for name in old.namelist():
                program.add_member(new, name, b"not Python (" if name.endswith(".py") else old.read(name))
        result = run(sys.executable, "-IS", written(tmp_path / "broken", broken.getvalue()), "explain", "gpu-lost")
        assert (result.returncode, result.stderr) == (0, "")

    @pytest.mark.parametrize("zone", ["UTC", "Pacific/Chatham"])
    def test_runs_its_byte_code_in_every_time_zone(self, copy: Path, zone: str) -> None:
        modules = run(sys.executable, "-ISvv", copy, "--version", TZ=zone).stderr
        assert f"trying {copy}/mpsfleet/cli.pyc\n" in modules
        assert f"trying {copy}/mpsfleet/cli.py\n" not in modules  # the next to be tried, had the first not done

    def test_falls_back_to_its_sources_on_another_python(self, copy: Path) -> None:
        others = [path for version, path in GOOD.items() if version != sys.version_info[:2]]
        if not others:
            pytest.skip("one Python only on this machine")
        assert {run(each, "-IS", copy, "--version").stdout for each in others} == {f"mpsfleet {__version__}\n"}

    def test_the_same_source_gives_the_same_copy_in_another_process(self, copy: Path, pyz: Path) -> None:
        making = (
            "import sys, asyncio, argparse; from pathlib import Path; from mpsfleet import program; "
            "source, digest, target = sys.argv[1:]; "
            "Path(target).write_bytes(program.rebuild(Path(source).read_bytes(), digest))"
        )
        again = copy.with_name("again")
        digest = hashlib.sha256(pyz.read_bytes()).hexdigest()
        assert run(sys.executable, "-c", making, pyz, digest, again, PYTHONHASHSEED="3").stderr == ""
        assert again.read_bytes() == copy.read_bytes()

    def test_a_copy_of_a_copy_is_the_copy(self, copy: Path, pyz: Path) -> None:
        digest = hashlib.sha256(pyz.read_bytes()).hexdigest()
        assert program.rebuild(copy.read_bytes(), digest) == copy.read_bytes()

    def test_is_known_as_rebuilt_for_its_digest_only(self, copy: Path, pyz: Path) -> None:
        digest = hashlib.sha256(pyz.read_bytes()).hexdigest()
        assert program.is_rebuilt(copy.read_bytes(), digest)
        assert not program.is_rebuilt(copy.read_bytes(), "0" * 64)
        assert not program.is_rebuilt(copy.read_bytes(), digest, "/usr/bin/another-python3")
        assert not program.is_rebuilt(pyz.read_bytes(), digest, "/usr/bin/python3")
        assert not program.is_rebuilt(copy.read_bytes()[:-40], digest)

    @pytest.mark.parametrize("path", ["python3", "/usr/bin/my python3", "/" + "x" * 130, "/usr/bin/python3\nx"])
    def test_a_first_line_that_the_kernel_would_misread_is_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match="cannot name the interpreter"):
            program.shebang(path)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def test_plain_files_have_no_digest() -> None:
    assert program.source_archive() is None
    assert program.source_digest() is None
