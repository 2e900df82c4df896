"""Time the fleet's verdict on fleets of 100, 1,000 and 10,000 nodes: the whole program, from start to last line.

Each fleet lies in files: the reports of its nodes, and what scontrol prints about them. Of 100 nodes 97 are healthy,
two bring the findings of recorded sick nodes (up to 5 kB), and one report is cut off. A stand-in for scontrol prints
its answer with cat, once as text and once as JSON, both made from a node that Slurm 24.11.5 printed; the program finds
it as it finds a controller's, under `--root`. Nothing is drained.

Beside it runs a floor, with the same Python and on the same bytes: json.load for the reports and for Slurm's JSON, and
a regular expression that finds each `Key=value` of the text. It judges nothing and knows no bound, so no verdict can be
as fast. All take turns. CPU seconds and the highest resident size are the kernel's, of the program and of what it
started. Two ratios tell whether time grows with the fleet alone: that of a node to that of one among 100, which falls
as long as the program's start counts, and that of each further node to what it is from 100 to 1,000. Seconds are the
least of all rounds, which on a shared machine say most.
"""

# ruff: noqa: INP001, T201  a script, not a package
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDED = REPOSITORY / "tests/nodes/recorded"
SLURM = REPOSITORY / "tests/slurm/cases/json"
USUAL_PYTHON = "/usr/bin/python3"  # a controller's own
SIZES = (100, 1_000, 10_000)
FORMS = {"text": "slurm-wlm 22.05.8", "JSON": "slurm-wlm 24.11.5"}  # by the version, the program asks for one or other
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
CRITICAL = 2  # the exit status of a fleet in which jobs fail
LIMIT_S = 300
MIB = 1024
SICK, CUT_OFF, DOWN = 7, 8, 9  # where in each 50, 100 and 200 nodes they stand
SCONTROL = """\
#!/bin/sh
case "$*" in
    --version) echo {version} ;;
    "show config") echo "ClusterName = sim" ;;
    *"show nodes") exec cat {answer} ;;
    *) exit 1 ;;
esac
"""
FLOOR = """
import json, re, sys
json.load(open(sys.argv[1]))
answer = open(sys.argv[2]).read()
json.loads(answer) if answer.startswith("{") else re.findall(r"([A-Za-z]+)=([^ \\n]*)", answer)
"""


class BenchError(Exception):
    """One sentence: what could not be measured, and why."""


class Run(NamedTuple):
    """What one process took."""

    wall_s: float
    cpu_s: float
    mib: float


class Result(NamedTuple):
    """The runs of the program and of the floor on one fleet, in one form of scontrol's answer."""

    nodes: int
    form: str
    input_mib: float
    program: tuple[Run, ...]
    floor: tuple[Run, ...]

    @property
    def times_the_floor(self) -> float:
        """The program's CPU time by the floor's."""
        return _least(self.program).cpu_s / _least(self.floor).cpu_s


def main(argv: list[str]) -> int:
    """Measure and print; the exit code is 0 where all was measured."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="mpsf-bench.", dir="/tmp") as name:
            results = _measured(options, Path(name))
    except BenchError as error:
        sys.stderr.write(f"fleet_verdict: {error}\n")
        return 1
    print(json.dumps([_as_json(each, results) for each in results]) if options.json else _table(results))
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    python = USUAL_PYTHON if os.access(USUAL_PYTHON, os.X_OK) else sys.executable
    parser = argparse.ArgumentParser(description="Time the fleet's verdict on fleets of 100, 1,000 and 10,000 nodes.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, in which each runs once (default 5)")
    parser.add_argument("--python", default=python, help=f"the controller's Python (default {python})")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args(argv)


def _measured(options: argparse.Namespace, folder: Path) -> list[Result]:
    program = folder / "mpsfleet.pyz"
    build = [sys.executable, str(REPOSITORY / "tools/build_pyz.py"), "--output", str(program)]
    if subprocess.run(build, capture_output=True, timeout=LIMIT_S, check=False).returncode:
        raise BenchError("the program could not be built as one file; `./dev pyz` says why")
    fleets = [(nodes, form, _fleet(folder / f"{form}-{nodes}", nodes, form)) for nodes in SIZES for form in FORMS]
    runs: dict[Path, tuple[list[Run], list[Run]]] = {root: ([], []) for _, _, root in fleets}
    for _ in range(options.rounds):
        for nodes, _, root in fleets:
            inputs = [str(root / "reports"), str(root / "answer")]
            verdict = [str(program), "--root", str(root), "slurm", "verdict", "--reports", inputs[0], "--json"]
            runs[root][0].append(_run([options.python, "-I", *verdict], root / "verdict", CRITICAL))
            runs[root][1].append(_run([options.python, "-I", "-c", FLOOR, *inputs], root / "nothing", 0))
            _check(root / "verdict", nodes)
    return [
        Result(nodes, form, _size(root) / MIB / MIB, tuple(runs[root][0]), tuple(runs[root][1]))
        for nodes, form, root in fleets
    ]


def _size(root: Path) -> int:
    return sum((root / name).stat().st_size for name in ("reports", "answer"))


def _run(command: list[str], output: Path, expected: int) -> Run:
    """Run a command to its end. BenchError where it ends otherwise than expected.

    This process stays small, for the kernel counts the size of the process that starts another as the other's too.
    """
    with output.open("wb") as stdout:
        began = time.monotonic()
        child = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=stdout)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != expected:
        message = f"`{' '.join(command)}` ended with {child.returncode} and not {expected}"
        raise BenchError(message)
    return Run(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / MIB)


def _check(output: Path, nodes: int) -> None:
    """See to it that all nodes were judged, and Slurm was heard. Read as text: parsed, it would make this one large."""
    text = output.read_text(encoding="utf-8")
    if f'"{nodes} hosts: ' not in text or '"asked":true' not in text or text.count('"state":"') != nodes:
        raise BenchError(f"the verdict on {nodes} nodes does not have each of them with its state")


def _fleet(root: Path, nodes: int, form: str) -> Path:
    """Write a fleet: its reports, and a controller's directory with the stand-in for scontrol."""
    (root / "usr/bin").mkdir(parents=True)
    with (root / "reports").open("w", encoding="utf-8") as stream:
        stream.write('{"schema": 1, "hosts": [')
        stream.writelines(_hosts(nodes))
        stream.write("]}")
    with (root / "answer").open("w", encoding="utf-8") as stream:
        stream.writelines(_json_nodes(nodes) if form == "JSON" else _text_nodes(nodes))
    scontrol = root / "usr/bin/scontrol"
    scontrol.write_text(SCONTROL.format(version=FORMS[form], answer=root / "answer"), encoding="utf-8")
    scontrol.chmod(0o755)
    return root


def _hosts(nodes: int) -> Iterator[str]:
    sick = _sick_reports()
    for number in range(nodes):
        name = _name(number)
        healthy = {"schema": 1, "verdict": "ok", "node": name, "program": "0.1.0", "findings": []}
        report: object = {**sick[number // 50 % len(sick)], "node": name} if number % 50 == SICK else healthy
        if number % 100 == CUT_OFF:
            report = json.dumps(report)[:-3]  # as a node whose answer was cut off
        host = {"host": name, "node": name, "report": report, "error": None}
        yield f"{', ' if number else ''}{json.dumps(host)}"


def _sick_reports() -> list[dict[str, Any]]:
    """Return reports of sick nodes: the recorded ones, each with the findings of up to eleven others added."""
    paths = sorted(RECORDED.glob("*/report.json"))
    recorded = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    sick = [each for each in recorded if each["verdict"] == "critical"]
    for number, each in enumerate(sick):
        others = [sick[(number + further) % len(sick)]["findings"] for further in range(number % 12)]
        each["findings"] = each["findings"][:1] + [finding for found in others for finding in found[:1]]
    return sick


def _name(number: int) -> str:
    return f"gpu{number:05}"


def _state(number: int) -> str:
    return ("IDLE", "MIXED", "MIXED", "ALLOCATED")[number % 4] if number % 200 != DOWN else "DOWN"


def _text_nodes(nodes: int) -> Iterator[str]:
    recorded = (SLURM / "real-24.11.txt").read_text(encoding="utf-8").split("\n\n")[1]
    template = recorded.replace("n2", "{name}").replace("State=DOWN", "State={state}").partition("   Reason=")[0]
    for number in range(nodes):
        yield template.format(name=_name(number), state=_state(number)).rstrip() + "\n\n"


def _json_nodes(nodes: int) -> Iterator[str]:
    node = json.loads((SLURM / "real-24.11.json").read_text(encoding="utf-8"))["nodes"][2]
    yield '{\n  "nodes": ['
    for number in range(nodes):
        name = _name(number)
        one = {**node, "name": name, "hostname": name, "address": name, "state": [_state(number)]}
        yield f"{',' if number else ''}\n{json.dumps(one, indent=2)}"
    yield '\n  ],\n  "errors": [], "warnings": []\n}\n'


def _least(runs: tuple[Run, ...]) -> Run:
    """Return the least seconds, and the most memory."""
    return Run(min(each.wall_s for each in runs), min(each.cpu_s for each in runs), max(each.mib for each in runs))


def _of_form(result: Result, results: list[Result]) -> list[Result]:
    return [each for each in results if each.form == result.form]


def _beside_100(result: Result, results: list[Result]) -> float:
    """Return the wall time for a node by that in the smallest fleet."""
    least = _of_form(result, results)[0]
    return _least(result.program).wall_s / result.nodes / (_least(least.program).wall_s / least.nodes)


def _further(result: Result, results: list[Result]) -> float | None:
    """Return the wall time for each node that the next smaller fleet has not; None for the smallest."""
    smaller = [each for each in _of_form(result, results) if each.nodes < result.nodes]
    if not smaller:
        return None
    more_s = _least(result.program).wall_s - _least(smaller[-1].program).wall_s
    return more_s / (result.nodes - smaller[-1].nodes)


def _growth(result: Result, results: list[Result]) -> float | None:
    """Return the time of a further node by that of one from 100 to 1,000: 1 where time grows as the fleet does."""
    first, this = _further(_of_form(result, results)[1], results), _further(result, results)
    return None if this is None or not first else this / first


def _table(results: list[Result]) -> str:
    heads = ("CPU/floor", "node/100", "further", "growth")
    line = f"{'nodes':>7} {'Slurm':>5} {'input':>9} {'wall':>8} {'CPU':>8} {'peak':>8} {'floor CPU':>9}"
    lines = [" ".join((line, *(f"{each:>9}" for each in heads)))]
    for each in results:
        program, floor = _least(each.program), _least(each.floor)
        further, growth = _further(each, results), _growth(each, results)
        lines.append(
            f"{each.nodes:>7,} {each.form:>5} {each.input_mib:>5.1f} MiB {program.wall_s:>6.2f} s "
            f"{program.cpu_s:>6.2f} s {program.mib:>4.0f} MiB {floor.cpu_s:>7.2f} s {each.times_the_floor:>9.1f} "
            f"{_beside_100(each, results):>9.2f} {'' if further is None else f'{further * 1e6:.0f} µs':>9} "
            f"{'' if growth is None else f'{growth:.2f}':>9}".rstrip()
        )
    return "\n".join(lines)


def _as_json(result: Result, results: list[Result]) -> dict[str, object]:
    return {
        "nodes": result.nodes,
        "form": result.form,
        "input_mib": result.input_mib,
        "program": _least(result.program)._asdict(),
        "floor": _least(result.floor)._asdict(),
        "times_the_floor": result.times_the_floor,
        "node_beside_100": _beside_100(result, results),
        "further_node_s": _further(result, results),
        "growth": _growth(result, results),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
