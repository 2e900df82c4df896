"""The controller's runs without Ansible between: nodes are asked side by side, and the verdict is the program's own."""

from __future__ import annotations

import concurrent.futures
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from clusterlab.locks import locked
from fleet import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Cluster

UNIT = "nvidia-mps.service"
PROGRAM = "/root/mpsfleet.pyz"
VERDICT = ("python3", "-IS", PROGRAM, "slurm", "verdict", "--reports", "-", "--json")
TRIGGERS = ("--trigger-drain", "--trigger-undrain")
CONFIGURATION = "schema = 1\n[gpus]\nexpected = 1\n"
CERTAIN = "daemon-absent"  # what an audit says of a node whose unit is stopped


class Site:
    """A cluster whose nodes have their daemon, the program on its controller, and Slurm."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = tuple(cluster.nodes)

    def deploy(self) -> None:
        """Bring the program to every machine, and the daemon to every node."""
        with locked(REPOSITORY / "build" / "tests.lock", "building the program", wait_s=120):
            subprocess.run((sys.executable, "tools/build_pyz.py"), cwd=REPOSITORY, check=True, capture_output=True)
        program = (REPOSITORY / "build" / "mpsfleet.pyz").read_bytes()
        for node in ("ctl", *self.names):
            (self.cluster.lab.root(node) / "root" / "mpsfleet.pyz").write_bytes(program)
        apply = ("python3", "-IS", PROGRAM, "node", "apply", "--config", "-")
        self._each(self.names, lambda node: self.cluster.must(node, *apply, stdin=CONFIGURATION))

    def _each(self, names: Sequence[str], what: Any) -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(what, names))

    def break_(self, *names: str) -> None:
        """Stop the daemons of nodes: jobs on them would fail, and no user can do that."""
        self._each(names, lambda node: self.cluster.must(node, "systemctl", "stop", UNIT))

    def mend(self, *names: str) -> None:
        """Start the daemons of nodes; systemd's limit of starts is not what is tried here."""
        start = f"systemctl reset-failed {UNIT}; systemctl start {UNIT}"
        self._each(names, lambda node: self.cluster.must(node, "sh", "-c", start))

    def reports(self, *names: str) -> dict[str, Any]:
        """Audit nodes and give the reports as the verdict takes them."""

        def host(node: str) -> dict[str, Any]:
            done = self.cluster.exec(node, ("mpsfleet", "node", "audit", "--json"))
            return {"host": node, "node": node, "report": json.loads(done.stdout), "error": None}

        return {"schema": 1, "hosts": self._each(names or self.names, host)}

    def run(self, *words: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge the reports (or audit all nodes now) on the controller, and give the answer."""
        given = json.dumps(self.reports() if of is None else of)
        done = self.cluster.exec("ctl", (*VERDICT, *words), stdin=given, timeout=120)
        assert "Traceback" not in done.stderr
        assert done.returncode < 64, done.stderr
        return dict(json.loads(done.stdout))

    def act(self, *words: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge, and let the run drain and give back, however much was drained within the hour."""
        return self.run(*TRIGGERS, "--max-drained-hour", "100%", *words, of=of)

    def start_run(self, *words: str, of: dict[str, Any]) -> subprocess.Popen[str]:
        """Start a run in the background; its standard output is the answer."""
        path = self.cluster.lab.root("ctl") / "root" / "reports.json"
        path.write_text(json.dumps(of))
        argv = ("python3", "-IS", PROGRAM, "slurm", "verdict", "--reports", "/root/reports.json", "--json", *words)
        return self.cluster.start("ctl", argv)

    def slurm(self, *words: str) -> str:
        """Run scontrol on the controller, as its administrator."""
        return self.cluster.must("ctl", "scontrol", *words)

    def drains(self) -> dict[str, str]:
        """Give the reason of each node that Slurm has drained, without its author."""
        shown = self.slurm("-o", "show", "nodes")
        found = {}
        for line in shown.splitlines():
            name, state = (re.search(rf"\b{key}=(\S+)", line) for key in ("NodeName", "State"))
            reason = re.search(r"\bReason=(.*?) \[", line)
            if name and state and "DRAIN" in state[1]:
                found[name[1]] = reason[1] if reason else ""
        return found

    def history(self, node: str) -> list[str]:
        """Give what the ledger says became of a node."""
        done = self.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "history", "--json", node)
        return [each["what"] for each in json.loads(done)["nodes"][0]["events"]]

    def wait_for_slurm(self, seconds: float = 40) -> None:
        """Wait until slurmctld answers and every node is there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            shown = self.cluster.exec("ctl", ("sinfo", "-h", "-N", "-o", "%T"), timeout=15).stdout.split()
            if len(shown) == len(self.names) and not any("*" in each or "unk" in each for each in shown):
                return
            time.sleep(0.3)
        raise AssertionError(f"Slurm did not come back: {shown}")


def decisions(answer: dict[str, Any]) -> dict[str, str]:
    """Give what was done to each node that something was done to."""
    return {each["node"]: each["decision"]["action"] for each in answer["hosts"] if each["decision"]["done"]}


def why(answer: dict[str, Any], node: str) -> str:
    """Give why a node's decision is what it is."""
    return next(str(each["decision"]["why"]) for each in answer["hosts"] if each["node"] == node)
