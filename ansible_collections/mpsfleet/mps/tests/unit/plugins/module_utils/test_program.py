# SPDX-License-Identifier: Apache-2.0

"""The program on the target: which installed one is trusted, what a run and its answer may be."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
import zlib
from pathlib import Path

import pytest

from ansible_collections.mpsfleet.mps.plugins.module_utils import program

DIGEST = "0123456789ab" + "c" * 52


class Installed:
    """A library folder with one version in it and the link to it."""

    def __init__(self, root: Path) -> None:
        self.library = root / "lib"
        self.folder = self.library / "0.1.0-0123456789ab"
        self.target = self.folder / "mpsfleet"
        self.link = root / "mpsfleet"
        self.folder.mkdir(parents=True, mode=0o755)
        self.target.write_bytes(b"")
        for path in (self.library, self.folder, self.target):
            path.chmod(0o755)
        self.link.symlink_to(self.target)

    def found(self, digest: str = DIGEST) -> str:
        return program.installed_program(digest, str(self.link), str(self.library), owner=os.getuid())


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_the_link_names_the_installed_program(installed: Installed) -> None:
    assert installed.found() == str(installed.target)


def test_another_digest_counts_as_not_installed(installed: Installed) -> None:
    assert installed.found("f" * 64) == ""


def test_no_link_counts_as_not_installed(installed: Installed) -> None:
    installed.link.unlink()

    assert installed.found() == ""


@pytest.mark.parametrize("name", ["library", "folder", "target"])
def test_a_path_that_others_can_write_is_not_trusted(installed: Installed, name: str) -> None:
    getattr(installed, name).chmod(0o775)

    assert installed.found() == ""


def test_a_path_of_another_owner_is_not_trusted(installed: Installed) -> None:
    found = program.installed_program(DIGEST, str(installed.link), str(installed.library), owner=os.getuid() + 1)

    assert found == ""


def test_a_link_to_a_link_is_not_trusted(installed: Installed, tmp_path: Path) -> None:
    installed.target.unlink()
    other = tmp_path / "other"
    other.write_bytes(b"")
    installed.target.symlink_to(other)

    assert installed.found() == ""


def test_a_plain_file_in_the_place_of_the_link_is_not_ours(installed: Installed) -> None:
    installed.link.unlink()
    installed.link.write_bytes(b"")

    assert installed.found() == ""


def test_a_link_that_leads_outside_the_library_is_not_ours(installed: Installed, tmp_path: Path) -> None:
    elsewhere = tmp_path / "0.1.0-0123456789ab"
    elsewhere.mkdir()
    (elsewhere / "mpsfleet").write_bytes(b"")
    installed.link.unlink()
    installed.link.symlink_to(elsewhere / "mpsfleet")

    assert installed.found() == ""


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode("ascii")


def test_the_program_that_was_sent_is_checked_by_its_digest() -> None:
    assert program.unpacked(packed(b"zip"), hashlib.sha256(b"zip").hexdigest()) == b"zip"


def test_a_damaged_program_is_not_run() -> None:
    with pytest.raises(program.ProgramError, match="arrived damaged"):
        program.unpacked(packed(b"zap"), hashlib.sha256(b"zip").hexdigest())


@pytest.mark.parametrize("text", ["", "no base64!", base64.b64encode(b"no zlib").decode("ascii")])
def test_what_cannot_be_unpacked_is_one_sentence(text: str) -> None:
    with pytest.raises(program.ProgramError, match=r"cannot be unpacked|damaged"):
        program.unpacked(text, "0" * 64)


def test_an_old_python_is_named_in_one_sentence() -> None:
    problem = program.old_python_problem((3, 8, 18), "/usr/bin/python3")

    assert problem.startswith("mpsfleet needs Python 3.9 or newer on the target")
    assert "Ansible uses /usr/bin/python3 (3.8.18) there" in problem


def test_python_3_9_is_new_enough() -> None:
    assert program.old_python_problem((3, 9, 0), "/usr/bin/python3") == ""


def asked(source: str, tmp_path: Path, stdin: str = "", timeout_s: float = 20) -> program.Answer:
    """Ask a program of one line, sent along since none is installed."""
    content = source.encode("utf-8")
    digest = hashlib.sha256(content).hexdigest()
    parameters = {"program": packed(content), "program_digest": digest}
    return program.ask(parameters, ("node", "audit"), stdin, timeout_s, str(tmp_path))


def test_the_program_that_was_sent_runs_with_its_words_and_its_input(tmp_path: Path) -> None:
    source = "import json, sys; print(json.dumps({'schema': 1, 'words': sys.argv[1:], 'stdin': sys.stdin.read()}))"

    answer = asked(source, tmp_path, "text")

    assert answer.values == {"schema": 1, "words": ["node", "audit"], "stdin": "text"}
    assert answer.sent


def test_nothing_of_the_login_environment_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_OF_A_USER", "x")

    answer = asked("import json, os; print(json.dumps({'schema': 1, 'names': sorted(os.environ)}))", tmp_path)

    assert [each for each in answer.values["names"] if each != "LC_CTYPE"] == ["LANG", "PATH"]


def test_nothing_of_the_program_is_left_behind(tmp_path: Path) -> None:
    asked("print('{\"schema\": 1}')", tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_kept(tmp_path: Path) -> None:
    assert asked("import sys; print('{\"schema\": 1}'); sys.exit(2)", tmp_path).rc == 2


def test_a_program_that_does_not_end_is_stopped_with_all_its_children(tmp_path: Path) -> None:
    source = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()

    with pytest.raises(program.ProgramError, match=r"did not end within 0\.5 s"):
        asked(source, tmp_path, timeout_s=0.5)

    assert time.monotonic() - started < 10


def test_a_target_without_the_program_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(program.ProgramMissing):
        program.ask({"program": None, "program_digest": "f" * 64}, ("node", "audit"), "", 5, str(tmp_path))


def test_a_module_called_without_its_action_plugin_says_so(tmp_path: Path) -> None:
    with pytest.raises(program.ProgramError, match="through its action plugin"):
        program.ask({"program": None, "program_digest": None}, ("node", "audit"), "", 5, str(tmp_path))


def test_what_cannot_be_started_is_one_sentence() -> None:
    with pytest.raises(program.ProgramError, match="/nonexistent cannot be started: No such file"):
        program.run(("/nonexistent",), "", 5)


@pytest.mark.parametrize(
    ("stdout", "rc", "stderr", "words"),
    [
        (b"", 64, b"mpsfleet: no such verb\n", "^no such verb$"),
        (b"", 1, b"sh: killed\n", "exit code 1.*it said: sh: killed"),
        (b"", -9, b"", "signal 9.*it said nothing"),
        (b"Segmentation fault", 1, b"", "exit code 1"),
        (b'{"schema": 2}', 0, b"", "exit code 0"),
        (b"[1]", 0, b"", "exit code 0"),
        (b"\xff\xfe", 0, b"\xff", "exit code 0"),
        (b" " * (program.ANSWER_LIMIT + 1), 0, b"", "more than an answer can have"),
    ],
)
def test_an_answer_that_is_none_tells_what_came_instead(stdout: bytes, rc: int, stderr: bytes, words: str) -> None:
    with pytest.raises(program.ProgramError, match=words):
        program.decoded(stdout, rc, stderr)


def test_module_side_files_parse_on_python_3_6() -> None:
    import ast

    plugins = Path(program.__file__).parent.parent
    sources = [*plugins.glob("modules/*.py"), *plugins.glob("module_utils/*.py")]

    for source in sources:
        tree = ast.parse(source.read_text("utf-8"), feature_version=(3, 6))
        futures = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module == "__future__"]
        assert futures == [], source

    assert len(sources) > 6
    assert sys.version_info >= (3, 9)
