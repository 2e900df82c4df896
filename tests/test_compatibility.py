"""The table of suites: what a run is counted as, and which lines of the page a run replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpsfleet.sim.processes import start_of

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
import compatibility  # noqa: E402 - a tool, no installed package
from compatibility import Counts  # noqa: E402

REPORT = """\
<testsuites><testsuite>
<testcase classname="a" name="one"/><testcase classname="b" name="one"/>
<testcase classname="a" name="two"><failure message="x"/></testcase>
<testcase classname="a" name="two"><error message="teardown"/></testcase>
<testcase classname="a" name="three"><error message="setup"/></testcase>
<testcase classname="a" name="four"><skipped message="why"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "compatibility.md"
    monkeypatch.setattr(compatibility, "PAGE", path)
    return path


def test_a_test_that_fails_twice_counts_once_and_namesakes_count_each() -> None:
    assert compatibility.counts_of(REPORT) == Counts(2, ("a::two", "a::three"), 1)


def test_a_run_replaces_its_own_line_and_keeps_the_order_of_the_suites(page: Path) -> None:
    versions = ("1", "2", "3", "4", "v2")
    for suite, passed in (("sid", 1), ("bullseye", 2), ("sid", 3)):
        compatibility.write(compatibility.row_of(suite, versions, Counts(passed, (), 0), ""))

    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith(("| sid", "| bullseye"))]

    assert [row.split(" | ")[0] for row in rows] == ["| bullseye", "| sid"]
    assert [row.split(" | ")[6] for row in rows] == ["2", "3"]


def test_a_suite_that_could_not_run_says_why(page: Path) -> None:
    compatibility.write(compatibility.row_of("sid", ("-",) * 5, None, "`lab/lab up` ended with 1"))
    assert "| - | - | - |" in page.read_text("utf-8")
    assert page.read_text("utf-8").endswith("`lab/lab up` ended with 1 |\n")


def test_a_suite_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert compatibility.main(["potato"]) == 64
    assert "there are bullseye, bookworm, trixie, sid" in capsys.readouterr().err


# A run whose lab only says what it is told, and whose tests are a process and its child.
OF_SLEEPERS = f"""
import os, signal, subprocess, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job was started without
sys.path.insert(0, {str(REPOSITORY / "tools")!r})
import compatibility
os.geteuid = lambda: 0
compatibility.RESULTS = Path(sys.argv[1])
compatibility.lab = lambda *words, **_: print(*words, flush=True) or ""
tests = "import os, subprocess; child = subprocess.Popen(['sleep', '60']); print(os.getpid(), child.pid, flush=True); child.wait()"
compatibility.PYTEST = (sys.executable, "-c", tests)
sys.exit(compatibility.main(["sid"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_ends_its_tests_and_takes_its_lab_down(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen((sys.executable, "-c", OF_SLEEPERS, tmp_path), stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pids = next(line for line in run.stdout if line[:1].isdigit()).split()
        run.send_signal(number)
        after = run.stdout.read().split("\n")

    assert run.returncode == 130
    assert after == ["down", ""]
    limit = time.monotonic() + 5
    while any(start_of(int(pid)) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.01)
    assert [pid for pid in pids if start_of(int(pid))] == []


def test_only_trees_that_nothing_uses_and_nobody_used_for_a_day_are_old(tmp_path: Path) -> None:
    from clusterlab.base_tree import old_trees

    ages_s = {"base-current": 0, "base-yesterday": 80_000, "base-mounted": 200_000, "base-old": 200_000}
    for name, age_s in ages_s.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1e9 - age_s, 1e9 - age_s))
    mounted = f"overlay /x overlay rw,lowerdir=/a:{tmp_path}/base-mounted,upperdir=/b 0 0\n"

    assert old_trees(tmp_path / "base-current", 1e9, mounted) == [tmp_path / "base-old"]
