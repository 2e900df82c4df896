"""The steps of `./dev`, run inside `.venv`: each prints a heading, what it does and how long it took.

A failing step does not stop the later ones, so that one run reports all; the summary says what failed, and what was
skipped and why.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import collection
from outcome import FAILED, PASSED, REPOSITORY, SKIPPED, Outcome, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NO_TESTS = 5  # pytest's exit code when nothing was collected
INTERRUPTED = 130
NOT_ROOT = Outcome(SKIPPED, "the lab starts machines, which takes root: `sudo ./dev test --lab`")


class Step(NamedTuple):
    """One line of the summary."""

    title: str
    act: Callable[[], Outcome]


def main(words: list[str]) -> int:
    """Run one command of `./dev`; returns the exit code."""
    command, rest = words[0], words[1:]
    os.chdir(REPOSITORY)
    simple = {
        "lint": lambda: report(LINT),
        "fast": lambda: pytest("not lab and not slow", rest).exit_code,
        "lab": lambda: passed_on("lab/lab", rest),
        "bench": lambda: bench(rest),
        "pyz": lambda: passed_on("tools/build_pyz.py", rest),
        "docs": lambda: passed_on("tools/docs.py", rest),
        "demo": lambda: demo(rest),
        "lab-full": lambda: lab_full(rest),
        "collection": lambda: report((PYZ, COLLECTION)),
        "test": lambda: test(rest),
    }
    return simple[command]()


def test(words: Sequence[str]) -> int:
    """Run all steps, or those of `--fast` or `--lab`."""
    chosen = {(): ALL, ("--fast",): FAST, ("--lab",): LAB}.get(tuple(words))
    if chosen is None:
        sys.stderr.write(f"dev: `test` takes --fast or --lab, not {' '.join(words)!r}.\n")
        return 64
    return report(chosen)


def report(steps: Sequence[Step]) -> int:
    """Run the steps in order and print the summary; 1 when any failed."""
    done: list[tuple[Step, Outcome, float]] = []
    for step in steps:
        print(f"\n==> {step.title}", flush=True)
        start = time.monotonic()
        outcome = step.act()
        took_s = time.monotonic() - start
        print(f"<== {step.title}: {outcome.status} in {took_s:.1f} s{outcome.why}", flush=True)
        done.append((step, outcome, took_s))
    width = max(len(step.title) for step, _, _ in done)
    print("\nSummary")
    for step, outcome, took_s in done:
        print(f"  {step.title:{width}}  {outcome.status:7}  {took_s:7.1f} s{outcome.why}")
    print(f"  {'all':{width}}  {'':7}  {sum(took_s for _, _, took_s in done):7.1f} s")
    for step, outcome, _ in done:
        if outcome.closing:
            print(f"{step.title}:\n{outcome.closing}")
    return int(any(outcome.status == FAILED for _, outcome, _ in done))


def pytest(selected: str, words: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Outcome:
    """Run the tests of one mark."""
    outcome = run([sys.executable, "-m", "pytest", "-m", selected, *words], environment)
    if outcome.exit_code == NO_TESTS:
        return outcome._replace(note="no test was collected")
    return outcome


def lab_tests() -> Outcome:
    """Run the tests that need the lab: as root they must run, otherwise they are said to be left out."""
    if os.geteuid() != 0:
        return NOT_ROOT
    return pytest("lab", environment={"MPSFLEET_REQUIRE_LAB": "1"})


def smoke_tests(suite: str) -> Outcome:
    """Run the thread of the lab's tests on another suite than the usual one, beside a lab that is up."""
    if os.geteuid() != 0:
        return NOT_ROOT
    chosen = {"MPSFLEET_REQUIRE_LAB": "1", "MPSFLEET_LAB_SUITE": suite, "MPSFLEET_LAB_NAME": "smoke"}
    return pytest("lab and smoke", environment=chosen)


def lab_full(words: Sequence[str]) -> int:  # noqa: RET503  # its last line does not return
    """Run all tests of the lab on all suites, or on those named, and write docs/compatibility.md."""
    for step in (PYZ, COLLECTION):
        outcome = step.act()
        if outcome.status != PASSED:
            return outcome.exit_code or 1
    # It takes this process's place: whoever ends it reaches it, and it is left to take its lab down.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "tools/compatibility.py", *words])  # noqa: S606  # no shell is wanted


def demo(words: Sequence[str]) -> int:  # noqa: RET503  # its last line does not return
    """Tell the story of a cluster; builds what it deploys first."""
    if "--lab" in words and os.geteuid() != 0:
        sys.stderr.write("dev: the lab starts machines on this one, which takes root: `sudo ./dev demo --lab`.\n")
        return 77
    print("Building the program and the collection.", flush=True)
    for step in (PYZ, COLLECTION):
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):  # of interest only where it fails
            outcome = step.act()
        if outcome.status != PASSED:
            sys.stderr.write(f"{heard.getvalue()}dev: {step.title}: {outcome.status}{outcome.why}.\n")
            return outcome.exit_code or 1
    # It takes this process's place: whoever interrupts it reaches it, and it is left to clean up.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "tools/demo.py", *words])  # noqa: S606  # no shell is what is wanted


def demo_step(*words: str) -> Outcome:
    """Run the demo as a step of the tests."""
    if "--lab" in words and os.geteuid() != 0:
        return NOT_ROOT
    return run([sys.executable, "tools/demo.py", *words])


def passed_on(script: str, words: Sequence[str]) -> int:
    """Run one of our own scripts with the rest of the command line."""
    if not Path(script).exists():
        sys.stderr.write(f"dev: {script} is not there yet.\n")
        return 69
    return subprocess.run([sys.executable, script, *words], check=False).returncode


def bench(words: Sequence[str]) -> int:
    """Run a benchmark by its name; without a name the one that needs neither root nor a folder."""
    name, rest = (BENCHES[0], words) if not words or words[0].startswith("-") else (words[0], words[1:])
    if name not in BENCHES:
        sys.stderr.write(f"dev: no benchmark {name}; there are {', '.join(BENCHES)}.\n")
        return 64
    return passed_on(f"bench/{name}.py", rest)


RUFF = Step("ruff check", lambda: run(["ruff", "check", "."]))
FORMAT = Step("ruff format", lambda: run(["ruff", "format", "--check", "."]))
MYPY = Step("mypy", lambda: run(["mypy"]))
DOCS = Step("documentation is current", lambda: run([sys.executable, "tools/docs.py", "--check"]))
PYZ = Step("program as one file", lambda: run([sys.executable, "tools/build_pyz.py"]))
BENCHES = ("node_audit", "fleet_verdict", "audit_beside_baseline")
CONTRACT = "tests/sim/contract"  # against NVIDIA's own daemons, which are fetched: a step of its own, on all cores
BY_FILE = ("-n", "2", "--dist", "loadfile")  # a file's tests share a simulated fleet
FAST_TESTS = Step("fast tests", lambda: pytest("not lab and not slow", (*BY_FILE, f"--ignore={CONTRACT}")))
CONTRACT_TESTS = Step("simulator's contract", lambda: pytest("not lab", ("-n", "2", CONTRACT)))
SLOW_TESTS = Step("slow tests without the lab", lambda: pytest("slow and not lab", (*BY_FILE, f"--ignore={CONTRACT}")))
COLLECTION = Step("collection", collection.build)
ANSIBLE_LINT = Step("ansible-lint", collection.lint)
SANITY = Step("ansible-test sanity", collection.sanity)
UNITS = Step("ansible-test units", collection.units)
DEMO = Step("demo", demo_step)
LAB_DEMO = Step("demo on the lab", lambda: demo_step("--lab"))
LAB_TESTS = Step("lab tests", lab_tests)
SMOKE_TESTS = Step("lab smoke tests on trixie", lambda: smoke_tests("trixie"))

LINT = (RUFF, FORMAT, MYPY, DOCS, PYZ, COLLECTION, ANSIBLE_LINT)  # ansible-lint finds roles in the built collection
FAST = (RUFF, FORMAT, MYPY, DOCS, PYZ, FAST_TESTS)
LAB = (PYZ, COLLECTION, LAB_DEMO, LAB_TESTS, SMOKE_TESTS)
ALL = (
    *FAST,
    CONTRACT_TESTS,
    COLLECTION,
    ANSIBLE_LINT,
    SANITY,
    UNITS,
    DEMO,
    SLOW_TESTS,
    LAB_DEMO,
    LAB_TESTS,
    SMOKE_TESTS,
)

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("dev: interrupted.\n")
        sys.exit(INTERRUPTED)
