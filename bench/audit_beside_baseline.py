"""Time a fleet's audit beside a baseline playbook, interleaved, on the lab's cluster.

Three things are timed with the same inventory, forks, ssh options and pipelining: the baseline folder's
check_mps_health.yml, our playbook mpsfleet.mps.check_mps_health on nodes where MPS is deployed, and a bare
`ansible -m ping`, the floor below which no play can go. They take turns, so that whatever else the machine does meets
all of them alike. A baseline that finds the nodes unwell ends with 2, and that counts as a run. One machine holds the
controller and all nodes, so the ratios mean something and the seconds do not.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
LAB = REPOSITORY / "lab" / "lab"
CARRIED = Path("ansible_collections/mpsfleet/mps/files/mpsfleet.pyz")
LAB_NAME = "bench"  # of the lab that is brought up here; MPSFLEET_LAB_NAME chooses a running one
PLAYBOOK = "check_mps_health.yml"
TOOLS = ("ansible", "ansible-playbook")
LIMIT_S = 600  # of one command
WELL = (0, 2)  # ansible-playbook: all well, or a host's task failed, as where a node is found unwell
# The baseline reads the article's variables; these are the ones our deployment uses, so both ask the same daemon.
VARIABLES = {"mps_ipc_dir": "/run/nvidia-mps/node", "mps_log_dir": "/var/log/nvidia-mps"}
CONFIGURATION = """\
[defaults]
inventory = {inventory}
collections_path = {collections}
forks = {forks}
host_key_checking = False
retry_files_enabled = False
deprecation_warnings = False
[connection]
pipelining = True
[ssh_connection]
ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o ControlPath={folder}/s-%C
"""


class BenchError(Exception):
    """One sentence: what could not be measured, and why."""


class Timing(NamedTuple):
    """The seconds of one contestant, a run each."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)


def main(argv: list[str]) -> int:
    """Measure and print; the exit code is 0 where all was measured."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="mpsf.", dir="/tmp") as folder:  # short: it holds ssh's sockets
            timings = _with_lab(options, Path(folder))
    except BenchError as error:
        sys.stderr.write(f"audit_beside_baseline: {error}\n")
        return 1
    text = json.dumps(as_json(options.nodes, timings)) if options.json else table(options.nodes, timings)
    sys.stdout.write(f"{text}\n")
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time our audit beside a baseline playbook.")
    parser.add_argument("--baseline", type=Path, required=True, help=f"folder with the other {PLAYBOOK}")
    parser.add_argument("--nodes", type=int, default=16, help="GPU nodes of the lab (default 16)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--forks", type=int, default=16, help="Ansible's forks (default 16)")
    parser.add_argument("--collections", type=Path, default=REPOSITORY, help="where ansible_collections is")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(argv)


def _with_lab(options: argparse.Namespace, folder: Path) -> list[Timing]:
    """Use the lab that MPSFLEET_LAB_NAME names where it is up, else one of our own for the time being."""
    named = os.environ.get("MPSFLEET_LAB_NAME")
    inventory = _lab(named, "inventory", may_fail=True) if named else ""
    if inventory:
        return _measured(options, folder, inventory)
    name = named or LAB_NAME
    _lab(name, "up", str(options.nodes))
    try:
        return _measured(options, folder, _lab(name, "inventory"))
    finally:
        _lab(name, "down", may_fail=True)


def _lab(name: str, *words: str, may_fail: bool = False) -> str:
    """Run the lab's command and return its stdout; "" where it fails and may."""
    environment = dict(os.environ, MPSFLEET_LAB_NAME=name)
    done = subprocess.run(
        [str(LAB), *words], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode == 0:
        return done.stdout
    if may_fail:
        return ""
    message = f"`lab/lab {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    raise BenchError(message)


def _measured(options: argparse.Namespace, folder: Path, inventory: str) -> list[Timing]:
    count = sum(1 for line in inventory.partition("[gpu_nodes]")[2].partition("[")[0].splitlines() if line.strip())
    if count != options.nodes:
        message = f"the lab has {count} GPU nodes and not {options.nodes}"
        raise BenchError(message)
    if not (options.collections / CARRIED).exists():
        message = f"{options.collections / CARRIED} is missing; `make collection` puts the program there"
        raise BenchError(message)
    contestants = _contestants(options, folder, inventory)
    _run(folder, _playbook("mpsfleet.mps.deploy_mps"), (0,))
    for command in contestants.values():  # once unmeasured: connections are made, caches are warm
        _run(folder, command, WELL)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(options.runs):
        names = list(contestants)
        for name in names[number % len(names) :] + names[: number % len(names)]:  # no one is always first
            seconds[name].append(_run(folder, contestants[name], WELL if name == "baseline" else (0,)))
    return [Timing(name, tuple(each)) for name, each in seconds.items()]


def _contestants(options: argparse.Namespace, folder: Path, inventory: str) -> dict[str, list[str]]:
    """Lay the folder out and return each contestant's command."""
    (folder / "hosts").write_text(inventory, encoding="utf-8")
    (folder / "ansible.cfg").write_text(
        CONFIGURATION.format(
            inventory=folder / "hosts", collections=options.collections.resolve(), forks=options.forks, folder=folder
        ),
        encoding="utf-8",
    )
    baseline = folder / "baseline"
    shutil.copytree(options.baseline, baseline, copy_function=shutil.copyfile)
    for each in (baseline, *baseline.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)  # it may be read-only where it came from
    if not (baseline / PLAYBOOK).exists():
        message = f"{options.baseline} has no {PLAYBOOK}"
        raise BenchError(message)
    return {
        "ping": [_tool("ansible"), "gpu_nodes", "-m", "ansible.builtin.ping"],
        "baseline": [*_playbook(str(baseline / PLAYBOOK)), "-e", json.dumps(VARIABLES)],
        "ours": _playbook("mpsfleet.mps.check_mps_health"),
    }


def _playbook(name: str) -> list[str]:
    return [_tool("ansible-playbook"), name]


def _tool(name: str) -> str:
    """Return Ansible's command: beside the running Python first, so that a virtual environment needs no activation."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        message = f"{name} is not installed"
        raise BenchError(message)
    return found


def _run(folder: Path, command: list[str], expected: tuple[int, ...]) -> float:
    """Run a command in the folder and return its seconds. BenchError where its exit code is not an expected one."""
    environment = dict(os.environ, ANSIBLE_CONFIG=str(folder / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    for name in ("ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_FORKS", "ANSIBLE_PIPELINING", "ANSIBLE_INVENTORY"):
        environment.pop(name, None)
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode not in expected:
        message = f"`{' '.join(command)}` ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}"
        raise BenchError(message)
    return seconds


def as_json(nodes: int, timings: list[Timing]) -> dict[str, object]:
    """Return all that was measured, and the ratios of the medians to the baseline's."""
    medians = {each.name: each.median for each in timings}
    return {
        "nodes": nodes,
        "seconds": {each.name: [round(one, 3) for one in each.seconds] for each in timings},
        "medians": {name: round(each, 3) for name, each in medians.items()},
        "ratios": {name: round(each / medians["baseline"], 3) for name, each in medians.items()},
    }


def table(nodes: int, timings: list[Timing]) -> str:
    """Return the table for a person."""
    baseline = next(each.median for each in timings if each.name == "baseline")
    lines = [
        f"{nodes} nodes, {len(timings[0].seconds)} runs each, seconds",
        f"{'':<10}{'median':>8}{'min':>8}{'max':>8}{'of baseline':>13}",
    ]
    lines += [
        f"{each.name:<10}{each.median:>8.2f}{min(each.seconds):>8.2f}{max(each.seconds):>8.2f}"
        f"{each.median / baseline:>13.2f}"
        for each in timings
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
