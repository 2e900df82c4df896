"""A simulated fleet for tests, driven as a person drives it: by the program's own command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import report_schema  # of the tools' folder
from mpsfleet.sim import faults, fleet, mending, remembered
from mpsfleet.sim.slurm import cluster

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
NODE_TOML = 'schema = 1\n[slurm]\nnode_name = "{node}"\ncluster = "sim"\n[gpus]\nexpected = 4\n'


class Rehearsal(NamedTuple):
    """Where the fleet is remembered, and the program that is deployed on its nodes."""

    runtime: Path
    program: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}

    def sim(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run `mpsfleet sim …`."""
        return self._run([sys.executable, "-m", "mpsfleet", "sim", *words], code)

    def folder(self) -> Path:
        return Path(fleet.running(self._memory()).folder)

    def root(self, node: str) -> Path:
        return self.folder() / node

    def program_on(self, node: str, *words: str, code: int | None = None, stdin: str = "") -> Any:
        """Run the deployed program on a node or the controller; return its JSON."""
        command = [*self._program(), "--root", str(self.root(node)), *words, "--json"]
        done = self._run(command, code, stdin)
        document = json.loads(done.stdout)
        if words[0] == "node":
            report_schema.require(document)
        return document

    def _program(self) -> list[str]:
        """Return how to run the program: n1's own copy, which has byte code, where it is deployed."""
        folder = self.folder()
        link = folder / "n1" / "usr/sbin/mpsfleet"
        if link.is_symlink():
            return [f"{folder}/n1{os.readlink(link)}"]
        return [sys.executable, "-IS", str(self.program)]

    def break_node(self, node: str, fault: str) -> str:
        """Do what `mpsfleet sim break` does, in this process, which is faster."""
        return faults.break_node(fleet.running(self._memory()), node, fault)

    def mend(self, node: str) -> list[str]:
        """Do what `mpsfleet sim mend` does."""
        return mending.mend(fleet.running(self._memory()).place(node))

    def is_drained(self, node: str) -> bool:
        """Read it in the simulated slurmctld's own state."""
        return cluster.read(fleet.running(self._memory()).place("ctl")).nodes[node].is_drain

    def _memory(self) -> remembered.Memory:
        return remembered.memory(self.environment)

    def apply(self, node: str, code: int = 0) -> Any:
        return self.program_on(node, "node", "apply", "--config", "-", code=code, stdin=NODE_TOML.format(node=node))

    def audit(self, node: str) -> tuple[str, set[str]]:
        """Return the verdict and the codes of the findings."""
        report = self.program_on(node, "node", "audit")
        return report["verdict"], {each["code"] for each in report["findings"]}

    def on(self, node: str, *words: str, code: int | None = 0) -> str:
        """Run a tool of a node; return what it printed, both streams."""
        done = self.sim("exec", node, *words, code=code)
        return done.stdout + done.stderr

    def _run(self, command: list[str], code: int | None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert code is None or done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
        return done


def processes_below(folder: Path | str) -> list[str]:
    """Return `pid program` for every process whose program lies in the folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                program = os.readlink(f"/proc/{name}/exe")
            except OSError:
                continue
            if program.startswith(f"{folder}/"):
                found.append(f"{name} {program}")
    return found


def wait_until(is_so: Any, limit_s: float = 5.0) -> bool:
    limit = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True
