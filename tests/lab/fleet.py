"""The lab's fleet as a site has it: the collection from the built tarball, and its playbooks run against real nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterlab.locks import locked
from clusterlab.record import read_record

import report_schema  # of the tools' folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conftest import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = """\
[defaults]
forks = 8
host_key_checking = True
interpreter_python = /usr/bin/python3
nocows = True
retry_files_enabled = False
[ssh_connection]
pipelining = True
"""


class Play(NamedTuple):
    """How a playbook ended."""

    rc: int
    out: str  # both streams, without colours
    seconds: float

    def recap(self, host: str) -> dict[str, int]:
        """Return the counters of a host's line under PLAY RECAP."""
        found = re.search(rf"^{re.escape(host)}\s+: (.*)$", self.out, re.MULTILINE)
        assert found, f"{host} is not in the recap of:\n{self.out}"
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found[1])}


class Fleet:
    """Playbooks, the program on a node, and Slurm, for the tests of this folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.collections = folder / "collections"
        (folder / "ansible.cfg").write_text(CONFIGURATION, encoding="ascii")
        self._build()

    def _build(self) -> None:
        """Build the program and the tarball, and install the tarball where only these tests look."""
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where Ansible's commands are
        sys.path.insert(0, str(REPOSITORY / "tools"))
        import collection  # the repository's own tool; no installed package
        from outcome import PASSED

        # Two test runs in one checkout write the same files.
        with locked(REPOSITORY / "build" / "tests.lock", "building the collection", wait_s=120):
            subprocess.run((sys.executable, "tools/build_pyz.py"), cwd=REPOSITORY, check=True, capture_output=True)
            assert collection.build().status == PASSED
            assert collection.install(self.collections).status == PASSED

    def play(
        self,
        playbook: str,
        *words: str,
        limit: str = "",
        inventory: Path | None = None,
        timeout: float = 300,
        **variables: object,
    ) -> Play:
        """Run mpsfleet.mps.`playbook`, or the playbook at a path, with extra variables."""
        name = playbook if "/" in playbook else f"mpsfleet.mps.{playbook}"
        extra = ("--extra-vars", json.dumps(variables)) if variables else ()
        limited = ("--limit", limit) if limit else ()
        command = ("ansible-playbook", "-i", str(inventory or self.cluster.inventory), name, *limited, *extra, *words)
        return self.run(command, timeout)

    def run(self, command: tuple[str, ...], timeout: float = 300) -> Play:
        """Run one of Ansible's commands in the fleet's own surroundings."""
        begin = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Play(done.returncode, done.stdout, time.monotonic() - begin)

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONWARNINGS": "ignore:DSA is deprecated",  # ansible-core 2.19 with cryptography 51
        }

    def audit(self, node: str) -> tuple[dict[str, Any], float]:
        """Audit one node by its installed program; return the report and the seconds it took."""
        begin = time.monotonic()
        done = self.cluster.exec(node, ("mpsfleet", "node", "audit", "--json"))
        assert done.stderr == "", done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        report_schema.require(report)
        assert done.returncode == {"ok": 0, "warn": 1, "critical": 2, "unknown": 3}[report["verdict"]]
        return report, time.monotonic() - begin

    def codes(self, node: str) -> set[str]:
        """Return the codes of what an audit finds on a node."""
        return {each["code"] for each in self.audit(node)[0]["findings"]}

    @property
    def unsupported(self) -> frozenset[str]:
        """The codes of a node whose settings this suite's MPS does not know: 470 has neither limits nor priorities."""
        record = read_record(self.cluster.lab)
        is_old = record is not None and record.mps_version.startswith("470")
        return frozenset({"memory-limit-unsupported", "priority-differs"} if is_old else ())

    def reset(self, node: str) -> Play:
        """Reset one node by the playbook: drain ours, wait, reset, audit, undrain ours."""
        return self.play("reset_mps", limit=node)

    def well(self, *nodes: str) -> None:
        """Assert that these nodes are well and in service."""
        for node in nodes:
            report = self.audit(node)[0]
            assert {each["code"] for each in report["findings"]} <= self.unsupported, report
            assert self.cluster.node_state(node) == "IDLE"

    def reason(self, node: str) -> str:
        """Return the whole reason, with its author, for which Slurm has drained the node; "" where it has not.

        Slurm 24.11 without accounting keeps a reason after UNDRAIN, which then holds nothing back.
        """
        shown = self.cluster.must("ctl", "scontrol", "show", "node", node)
        if "DRAIN" not in (re.search(r"State=(\S+)", shown) or ["", ""])[1]:
            return ""
        found = re.search(r"Reason=(.*)", shown)
        return found[1].strip() if found else "drained without a reason"

    def drain(self, node: str, reason: str) -> None:
        """Drain a node by hand, as an administrator."""
        self.cluster.must("ctl", "scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def undrain(self, node: str) -> None:
        """Undrain a node by hand."""
        self.cluster.exec("ctl", ("scontrol", "update", f"NodeName={node}", "State=UNDRAIN"))
        end = time.monotonic() + 10
        while "NOT_RESPONDING" in self.cluster.node_state(node) and time.monotonic() < end:
            time.sleep(0.2)  # until it has registered anew

    def main_pid(self, node: str) -> int:
        """Return the pid of the unit's control daemon."""
        return int(self.cluster.must(node, "systemctl", "show", "-p", "MainPID", "--value", "nvidia-mps.service"))

    def wait_for(self, what: str, seconds: float = 30) -> None:
        """Wait until Slurm says that no job is queued or running (what: "no jobs") or a job runs ("a job")."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            queue = self.cluster.must("ctl", "squeue", "-h", "-o", "%T").split()
            if (what == "no jobs" and not queue) or (what == "a job" and "RUNNING" in queue):
                return
            time.sleep(0.2)
        raise AssertionError(f"{what} was not so within {seconds} s: {queue}")
