"""`./dev lab-full [SUITE...]`: all tests of the lab on every Debian suite, and docs/compatibility.md made by the run.

For each suite a cluster is started, its versions are read from its own nodes, the tests run on it, and it is taken
down; one suite after the other. A run of some suites replaces their lines of the page and keeps the others'. A run that
is interrupted or told to end (TERM, HUP) ends its tests and takes its cluster down before it goes.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, NamedTuple

from outcome import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "lab"))
from clusterlab.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

PAGE = REPOSITORY / "docs" / "compatibility.md"
RESULTS = REPOSITORY / "build" / "lab-full"  # what pytest writes for each suite
LAB = "full"  # beside a lab that somebody has up under the usual name
NODES = "4"
PYTEST = (sys.executable, "-m", "pytest", "-m", "lab", "--tb=short")
INTERRUPTED = 130
END_S = 60.0  # for a start of the lab to take back what it has begun
SUITE_NAMES = tuple(each.name for each in SUITES)
HEAD = """\
# Compatibility

Written by `./dev lab-full`, which runs all tests of `tests/lab` on a real Slurm cluster of each Debian suite, with
NVIDIA's own MPS control daemon and simulated GPUs. The versions were read on the nodes of that run; cgroup is the
version that a node sees.

| suite | Slurm | Python | systemd | MPS | cgroup | passed | failed | skipped | date | remarks |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
# Where a version is read, by which question, and what of the answer is kept; in the order of the columns.
QUESTIONS = (
    ("ctl", "scontrol --version", r"(\d+\.\d+\.\d+)"),
    ("n1", "python3 --version", r"(\d+\.\d+\.\d+)"),
    ("n1", "systemctl --version", r"systemd (\d+)"),
    ("n1", "nvidia-smi --query-gpu=driver_version --format=csv,noheader", r"(\d+\.\d+\.\d+)"),  # the MPS package's own
    ("n1", "stat --file-system --format=%T /sys/fs/cgroup", r"(\w+)"),
)
CGROUPS = {"cgroup2fs": "v2", "tmpfs": "v1"}


class Counts(NamedTuple):
    """How the tests ended; those that failed by name."""

    passed: int
    failed: tuple[str, ...]
    skipped: int


class CannotRunError(Exception):
    """One sentence: why there is no result for a suite."""


def main(words: list[str]) -> int:
    """Run the suites that are named, or all; 1 where a test failed or a suite could not be run."""
    unknown = [word for word in words if word not in SUITE_NAMES]
    if unknown:
        sys.stderr.write(f"lab-full: no suite {unknown[0]}; there are {', '.join(SUITE_NAMES)}.\n")
        return 64
    if os.geteuid() != 0:
        sys.stderr.write("lab-full: the lab starts machines, which takes root: `sudo ./dev lab-full`.\n")
        return 77
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return run_suites(words or SUITE_NAMES)
    except KeyboardInterrupt:
        sys.stderr.write("lab-full: interrupted.\n")
        return INTERRUPTED


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Turn the first request to end into what Ctrl-C raises; further ones would only disturb the tidying up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def run_suites(suites: Sequence[str]) -> int:
    """Run one suite after the other and write its line; 1 where a test failed or a suite could not be run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    is_well = True
    for suite in suites:
        print(f"\n==> {suite}", flush=True)
        try:
            row, has_passed = run_suite(suite)
        except CannotRunError as error:
            row, has_passed = row_of(suite, ("-",) * len(QUESTIONS), None, str(error)), False
        is_well = is_well and has_passed
        write(row)
        print(f"<== {row}", flush=True)
    return 0 if is_well else 1


def run_suite(suite: str) -> tuple[str, bool]:
    """Run all tests on one suite; gives the page's line, and whether all is well."""
    lab("down", suite=suite, limit_s=120)
    try:
        lab("up", NODES, "--suite", suite, suite=suite, limit_s=1200)
        versions = tuple(version(suite, *question) for question in QUESTIONS)
        print(f"{suite}: {', '.join(versions)}", flush=True)
        counts = tests(suite)
    finally:
        lab("down", suite=suite, limit_s=120)
    failed = ", ".join(each.rpartition("::")[2] for each in counts.failed)
    remarks = f"failed: {failed}" if failed else ""
    return row_of(suite, versions, counts, remarks), not counts.failed


def tests(suite: str) -> Counts:
    """Run the tests on the cluster that is up, showing what pytest says."""
    report = RESULTS / f"{suite}.xml"
    report.unlink(missing_ok=True)
    run((*PYTEST, f"--junitxml={report}"), suite)
    if not report.exists():
        message = "pytest ended without a report"
        raise CannotRunError(message)
    return counts_of(report.read_text(encoding="utf-8"))


def counts_of(report: str) -> Counts:
    """Count what a JUnit report of pytest holds; a test that has an error besides has failed, and counts once."""
    ended: dict[str, set[str]] = {}
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        ended.setdefault(f"{case.get('classname')}::{case.get('name')}", set()).update(child.tag for child in case)
    failed = tuple(name for name, tags in ended.items() if tags & {"failure", "error"})
    skipped = sum("skipped" in tags and name not in failed for name, tags in ended.items())
    return Counts(len(ended) - len(failed) - skipped, failed, skipped)


def version(suite: str, node: str, question: str, pattern: str) -> str:
    """Ask a node for one version."""
    said = lab("exec", node, *question.split(), suite=suite, limit_s=60)
    found = re.search(pattern, said)
    return "-" if found is None else CGROUPS.get(found[1], found[1])


def lab(*words: str, suite: str, limit_s: float) -> str:
    """Run one verb of the lab and return its standard output. CannotRunError where it fails."""
    try:
        code, said = run((sys.executable, "lab/lab", *words), suite, subprocess.PIPE, limit_s)
    except subprocess.TimeoutExpired:
        message = f"`lab/lab {words[0]}` did not end within {limit_s:g} s"
        raise CannotRunError(message) from None
    if code != 0:
        message = f"`lab/lab {words[0]}` ended with {code}"
        raise CannotRunError(message)
    return said


def run(command: Sequence[str], suite: str, stdout: int | None = None, limit_s: float | None = None) -> tuple[int, str]:
    """Run a command to its end; gives its exit status and what it printed into a pipe.

    It leads a process group of its own, which is ended where this call is interrupted or `limit_s` seconds are over.
    """
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=surroundings(suite),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except BaseException:
            end(process)
            raise
    return process.returncode, said or ""


def end(process: subprocess.Popen[str]) -> None:
    """TERM to a leader of a group, which may tidy up for a minute; then KILL to all that is left of its group."""
    if process.returncode is not None:
        return
    process.terminate()
    limit = time.monotonic() + END_S
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # not collected yet: until then its number is no other group's
    while os.waitid(os.P_PID, process.pid, look) is None and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def surroundings(suite: str) -> dict[str, str]:
    """Return the environment in which the lab and its tests run."""
    chosen = {"MPSFLEET_LAB_SUITE": suite, "MPSFLEET_REQUIRE_LAB": "1"}
    return {"MPSFLEET_LAB_NAME": LAB, **os.environ, **chosen}


def row_of(suite: str, versions: tuple[str, ...], counts: Counts | None, remarks: str) -> str:
    """Give one line of the page."""
    numbers = ("-", "-", "-") if counts is None else (counts.passed, len(counts.failed), counts.skipped)
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    cells = (suite, *versions, *numbers, today, remarks.replace("|", "\\|"))
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def write(row: str) -> None:
    """Put a line in its place on the page; the lines of the other suites stay."""
    known = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    rows = {name: line for line in (*known, row) for name in SUITE_NAMES if line.startswith(f"| {name} |")}
    PAGE.write_text(HEAD + "".join(f"{rows[name]}\n" for name in SUITE_NAMES if name in rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
