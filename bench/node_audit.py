"""Time the audit of a healthy node with eight GPUs: its own time apart from the interpreter's and tools', and NHC's.

The node is a simulated one, with a control daemon for each GPU or with one for all. Its tools answer at once with
recorded words (simulated_node.py), so that they can be taken off: own time is an audit's less the start of the
interpreter (`python3 -I -c pass`) and less the same tools started side by side and awaited, alone. With `--nhc DIR`
LBNL NHC answers the same questions on the same node with the same tools (nhc_checks.py). All take turns, so that
whatever else the machine does meets all of them alike; on a busy machine the minima say most. Beside it: an audit with
the simulator's own tools, one of eight daemons that do not answer, one on one CPU, and one with 200 and with 20,000
further processes, which are files here. (Of a real process the kernel makes the file when it is read.)

The machine's other processes are shown to the node as well, since NHC sees them. Nothing is asserted: ratios of one
run mean something, and the milliseconds of a shared machine do not.
"""

# ruff: noqa: INP001, T201  a script, not a package
from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import nhc_checks
from simulated_node import (
    CONTROL,
    SMI,
    SYSTEMCTL,
    BenchError,
    Node,
    file_processes,
    fleet,
    instant_tools,
    machines_processes,
    stopped_daemons,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

USUAL_PYTHON = "/usr/bin/python3"  # a node's own
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
FEW, MANY = 200, 20_000


class Timing(NamedTuple):
    """The milliseconds of one contestant, a run each."""

    name: str
    wall_ms: tuple[float, ...]

    @property
    def least(self) -> float:
        """The minimum."""
        return min(self.wall_ms)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.wall_ms)


class Contest(NamedTuple):
    """What was measured in turns on one node."""

    title: str
    timings: tuple[Timing, ...]
    remarks: tuple[str, ...] = ()

    def of(self, name: str) -> Timing | None:
        """Return one contestant's timing; None where it did not take part."""
        return next((each for each in self.timings if each.name == name), None)


def main(argv: list[str]) -> int:
    """Measure and print; the exit code is 0 where all was measured."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="mpsf-bench.", dir="/tmp") as name:
            found = _measured(options, Path(name))
    except BenchError as error:
        sys.stderr.write(f"node_audit: {error}\n")
        return 1
    if options.json:
        print(json.dumps([_as_json(each) for each in found]))
    else:
        print("\n\n".join(_table(each) for each in found))
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    python = USUAL_PYTHON if os.access(USUAL_PYTHON, os.X_OK) else sys.executable
    parser = argparse.ArgumentParser(description="Time the audit of a healthy node with eight GPUs.")
    parser.add_argument("--nhc", type=Path, help="folder with LBNL NHC: its driver `nhc` and its `scripts`")
    parser.add_argument("--rounds", type=int, default=20, help="rounds, in which each runs once (default 20)")
    parser.add_argument("--python", default=python, help=f"the node's Python (default {python})")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args(argv)


def _measured(options: argparse.Namespace, folder: Path) -> list[Contest]:
    with fleet(folder, options.python) as nodes:
        found = [_healthy(options, node, folder) for node in nodes]
        found.append(_simulated_tools(options, nodes))
        found.append(_processes(options, nodes[0], folder))
        found.append(_wedged(nodes[0]))
    return found


def _healthy(options: argparse.Namespace, node: Node, folder: Path) -> Contest:
    """Let audit, interpreter, tools and NHC take turns on a healthy node."""
    contestants = {
        "interpreter": _run([options.python, "-I", "-c", "pass"]),
        "tools alone": _tools_of(node),
        "audit": _run(node.audit("--json")),
        "audit on one CPU": _run(node.audit("--json"), cpus={min(os.sched_getaffinity(0))}),
    }
    if options.nhc:
        nhc = nhc_checks.prepared(options.nhc.resolve(), node, folder / f"nhc-{node.root.name}")
        contestants["NHC"] = _run(nhc.command, nhc.environment)
    with instant_tools(node, folder), machines_processes(node) as count:
        timings = _in_turns(contestants, options.rounds)
    title = f"{len(node.names)} control daemon(s), 8 GPUs, {count} processes, tools that answer at once"
    return Contest(title, timings)


def _simulated_tools(options: argparse.Namespace, nodes: tuple[Node, ...]) -> Contest:
    contestants = {f"{len(each.names)} daemon(s)": _run(each.audit("--json")) for each in nodes}
    return Contest("the simulator's own tools (Python, some 15 ms each)", _in_turns(contestants, options.rounds))


def _processes(options: argparse.Namespace, node: Node, folder: Path) -> Contest:
    """Audit the node with few and with many further processes, in turns: its /proc is exchanged by a rename."""
    proc, kept = node.root / "proc", node.root / "proc.kept"
    places = {count: node.root / f"proc.{count}" for count in (FEW, MANY)}
    (folder / "tools").mkdir()
    with instant_tools(node, folder / "tools"):
        for count, place in places.items():
            shutil.copytree(proc, place, symlinks=True)
            file_processes(place, count)
        audit = _run(node.audit("--json"))

        def beside(place: Path) -> Callable[[], float]:
            def once() -> float:
                with _exchanged(proc, place, kept):
                    return audit()

            return once

        try:
            contestants = {f"{count} further": beside(place) for count, place in places.items()}
            timings = _in_turns(contestants, options.rounds)
        finally:
            for place in places.values():
                shutil.rmtree(place)
    return Contest("processes that are none of MPS's (files)", timings)


@contextlib.contextmanager
def _exchanged(one: Path, other: Path, kept: Path) -> Iterator[None]:
    one.rename(kept)
    other.rename(one)
    try:
        yield
    finally:
        one.rename(other)
        kept.rename(one)


def _wedged(node: Node) -> Contest:
    """Audit once while none of the eight daemons answers: each must be named, and no child be left."""
    before = _children()
    with stopped_daemons(node):
        began = time.monotonic()
        ended = subprocess.run(
            node.audit("--json"), env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
        )
        wall_ms = (time.monotonic() - began) * 1000
    report = json.loads(ended.stdout)
    named = {each["subject"] for each in report["findings"] if each["code"] == "daemon-wedged"}
    left = len(_children() - before)
    remark = f"exit status {ended.returncode}, {len(named)} of {len(node.names)} daemons named, {left} processes left"
    return Contest("eight daemons that do not answer", (Timing("audit", (wall_ms,)),), (remark,))


def _children() -> frozenset[str]:
    """Return the processes of this machine that have the name of NVIDIA's control program or of ours."""
    found = set()
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and b"mpsfleet" in (each / "cmdline").read_bytes():
                found.add(each.name)
    return frozenset(found)


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cpus: set[int] | None = None
) -> Callable[[], float]:
    """Return what runs a command once and says how many milliseconds it took. BenchError where it fails."""

    def once() -> float:
        usual = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus or usual)  # which a child inherits
        try:
            began = time.monotonic()
            ended = subprocess.run(
                command, env=environment or ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
            )
            wall_ms = (time.monotonic() - began) * 1000
        finally:
            os.sched_setaffinity(0, usual)
        if ended.returncode:
            message = f"`{' '.join(command)}` ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-800:]}"
            raise BenchError(message)
        return wall_ms

    return once


def _tools_of(node: Node) -> Callable[[], float]:
    """Return what starts the tools of one audit side by side and waits for them."""
    commands = [[str(node.tool(CONTROL))]] * len(node.names) + [[str(node.tool(SMI))], [str(node.tool(SYSTEMCTL))]]

    def once() -> float:
        began = time.monotonic()
        started = [
            subprocess.Popen(each, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            for each in commands
        ]
        for each in started:
            each.communicate(timeout=60)
        return (time.monotonic() - began) * 1000

    return once


def _in_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> tuple[Timing, ...]:
    """Run each once to warm up, then round after round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, once in contestants.items():
            wall_ms = once()
            if number:
                times[name].append(wall_ms)
    return tuple(Timing(name, tuple(each)) for name, each in times.items())


def _own_ms(contest: Contest) -> float | None:
    """Return an audit's own time, from minima: without the interpreter's start and without the tools'."""
    audit, start, tools = (contest.of(each) for each in ("audit", "interpreter", "tools alone"))
    return None if audit is None or start is None or tools is None else audit.least - start.least - tools.least


def _ratios(contest: Contest) -> dict[str, float]:
    """Return an audit's median time by that of each form of NHC."""
    audit = contest.of("audit")
    others = [each for each in contest.timings if each.name.startswith("NHC")]
    return {} if audit is None else {each.name: audit.median / each.median for each in others}


def _table(contest: Contest) -> str:
    lines = [contest.title, f"  {'':<20} {'least ms':>9} {'median ms':>10}"]
    lines += [f"  {each.name:<20} {each.least:>9.1f} {each.median:>10.1f}" for each in contest.timings]
    own = _own_ms(contest)
    lines += [] if own is None else [f"  the audit's own time: {own:.1f} ms (of minima)"]
    lines += [f"  audit / {name}: {ratio:.2f} (of medians)" for name, ratio in _ratios(contest).items()]
    return "\n".join((*lines, *(f"  {each}" for each in contest.remarks)))


def _as_json(contest: Contest) -> dict[str, object]:
    return {
        "title": contest.title,
        "ms": {each.name: {"least": each.least, "median": each.median} for each in contest.timings},
        "own_ms": _own_ms(contest),
        "ratios": _ratios(contest),
        "remarks": contest.remarks,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
