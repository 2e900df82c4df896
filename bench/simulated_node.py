"""A simulated node with eight GPUs for the benches: deployed, with tools that others can stand in for at once.

The simulated tools are programs in Python, 15 ms and more each, and would drown what is to be measured. So each is
listened to once during an audit, and then stands in as a shell script that prints the same words. Who serves the
directories stays as it is: the simulated daemons, real processes with real sockets.
"""

# ruff: noqa: INP001  beside scripts, not a package
from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
GPUS = 8
CONTROL, SMI, SYSTEMCTL = "nvidia-cuda-mps-control", "nvidia-smi", "systemctl"
LIMIT_S = 120
_COMM = "nvidia-cuda-mps"
_FIRST_PID = 5_000_000  # of processes that are files: beyond any real one
NODE_TOML = """\
schema = 1
[mps]
daemons = "{daemons}"
[slurm]
node_name = "{node}"
cluster = "sim"
[gpus]
expected = 8
"""


class BenchError(Exception):
    """One sentence: what could not be measured, and why."""


class Node(NamedTuple):
    """A node of a simulated fleet."""

    root: Path
    daemons: str  # "gpu": eight control daemons; "node": one

    def tool(self, name: str) -> Path:
        """Return the path of one of its tools."""
        return self.root / "usr/bin" / name

    @property
    def program(self) -> Path:
        """The node's own copy of the program, with byte code."""
        return Path(f"{self.root}{(self.root / 'usr/sbin/mpsfleet').readlink()}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its instances."""
        return tuple(map(str, range(GPUS))) if self.daemons == "gpu" else ("node",)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of its daemons."""
        return tuple(f"nvidia-mps@{each}.service" for each in self.names) if self.daemons == "gpu" else ("nvidia-mps",)

    def pipe(self, name: str) -> Path:
        """Return the pipe directory of an instance."""
        return self.root / "run/nvidia-mps" / name

    def log(self, name: str) -> Path:
        """Return the log directory of an instance."""
        return self.root / "var/log/nvidia-mps" / (name if self.daemons == "gpu" else "")

    def audit(self, *words: str) -> list[str]:
        """Return the command of an audit."""
        return [str(self.program), "--root", str(self.root), "node", "audit", *words]

    def control_daemons(self) -> tuple[int, ...]:
        """Return the pids of its control daemons: those among its registered processes that have MPS's name."""
        found = []
        for each in (self.root / "proc").iterdir():
            with contextlib.suppress(OSError):
                if each.is_symlink() and (each / "comm").read_text().strip() == _COMM:
                    found.append(int(each.name))
        return tuple(found)


@contextlib.contextmanager
def fleet(folder: Path, python: str) -> Iterator[tuple[Node, ...]]:
    """Start a fleet of two nodes, deployed by that Python: one with a daemon for each GPU, one with one for all."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    simulate = [sys.executable, "-m", "mpsfleet", "sim"]
    built = folder / "mpsfleet.pyz"
    done([sys.executable, str(REPOSITORY / "tools/build_pyz.py"), "--output", str(built)])
    try:
        done([*simulate, "up", "2", "--gpus", f"a100:{GPUS},a100:{GPUS}", "--terse"], environment)
        inventory = done([*simulate, "inventory", "--path"], environment).strip()
        nodes = (Node(Path(inventory).parent / "n1", "gpu"), Node(Path(inventory).parent / "n2", "node"))
        for each in nodes:
            text = NODE_TOML.format(daemons=each.daemons, node=each.root.name)
            apply = [python, "-IS", str(built), "--root", str(each.root), "node", "apply", "--config", "-"]
            done(apply, stdin=text)
            done(each.audit())
        yield nodes
    finally:
        done([*simulate, "down"], environment)


def done(command: list[str], environment: dict[str, str] | None = None, stdin: str = "") -> str:
    """Run a command to its end and return what it printed. BenchError where it fails."""
    ended = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip()[-800:]
        message = f"`{shlex.join(command)}` ended with {ended.returncode}: {said}"
        raise BenchError(message)
    return ended.stdout


@contextlib.contextmanager
def instant_tools(node: Node, folder: Path) -> Iterator[None]:
    """Put scripts that print the recorded answers in the place of the node's tools."""
    heard = folder / f"heard-{node.root.name}"
    heard.mkdir()
    names = (CONTROL, SMI, SYSTEMCTL)
    for each in names:
        kept, place = node.tool(f"{each}.simulated"), node.tool(each)
        place.rename(kept)
        _script(place, f'"{kept}" "$@" > "{heard}/{each}.$$"; status=$?; cat "{heard}/{each}.$$"; exit $status')
    try:
        done(node.audit())
        for each in names:
            answers = {path.read_text() for path in heard.glob(f"{each}.*")}
            if len(answers) != 1:
                message = f"{each} gave {len(answers)} different answers on a healthy node, and one was expected"
                raise BenchError(message)
            _script(node.tool(each), f"printf '%s' {shlex.quote(answers.pop())}")
        yield
    finally:
        for each in names:
            node.tool(f"{each}.simulated").rename(node.tool(each))


def _script(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"#!/bin/sh\n{text}\n")
    fresh.chmod(0o755)
    fresh.rename(path)


@contextlib.contextmanager
def stopped_daemons(node: Node) -> Iterator[None]:
    """Stop the node's control daemons: each accepts connections and never answers."""
    daemons = node.control_daemons()
    if len(daemons) != len(node.names):
        message = f"{node.root.name} has {len(daemons)} control daemons, and {len(node.names)} were expected"
        raise BenchError(message)
    for each in daemons:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in daemons:
            os.kill(each, signal.SIGCONT)


@contextlib.contextmanager
def machines_processes(node: Node) -> Iterator[int]:
    """Show the node the processes of this machine too, as NHC sees them; yield how many there are.

    Those with MPS's name stay out: they belong to other simulated nodes.
    """
    added = []
    for each in Path("/proc").iterdir():
        link = node.root / "proc" / each.name
        with contextlib.suppress(OSError):
            if each.name.isdigit() and (each / "comm").read_text().strip() != _COMM and not link.is_symlink():
                link.symlink_to(each)
                added.append(link)
    try:
        yield len(added) + len(node.names)
    finally:
        for link in added:
            link.unlink()


def file_processes(proc: Path, count: int) -> None:
    """Put that many processes into a /proc, each with the files of /proc/PID that tell its name and owner."""
    for number in range(count):
        place = proc / str(_FIRST_PID + number)
        place.mkdir()
        (place / "comm").write_text("python3\n")
        (place / "stat").write_text(f"{place.name} (python3) S 1 {'0 ' * 48}\n")
        (place / "status").write_text("Name:\tpython3\nUid:\t2001\t2001\t2001\t2001\n")
