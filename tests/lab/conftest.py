"""The lab for tests: one real Slurm cluster of four GPU nodes for all tests of this folder, and a door to its nodes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "lab"), str(HERE)]

from clusterlab import access, faults, mending, naming, rebooting  # noqa: E402 - the lab is no installed package
from clusterlab.cluster import all_alive, up  # noqa: E402
from clusterlab.errors import LabUnavailableError  # noqa: E402
from clusterlab.record import read_record  # noqa: E402
from clusterlab.suites import DEFAULT_SUITE, suite_called  # noqa: E402
from clusterlab.teardown import down  # noqa: E402
from clusterlab.wanted import DEFAULT_SHARING, wanted  # noqa: E402
from fleet import Fleet  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterlab.record import Record
    from clusterlab.wanted import Wanted

LEDGER = "/var/spool/slurmctld/mpsfleet"  # beside slurmctld's own state
NODES = 4
GPUS = 4
KINDS = "a100:4,a100:2+t4:2,a100:1,0"
LONGEST_NAME = 7  # of a lab
KEEP_VARIABLE = "MPSFLEET_LAB_KEEP"
REQUIRE_VARIABLE = "MPSFLEET_REQUIRE_LAB"
SUITE_VARIABLE = "MPSFLEET_LAB_SUITE"


class Cluster(NamedTuple):
    """A running lab."""

    lab: naming.Lab
    nodes: tuple[str, ...]
    """The GPU nodes, n1 first."""
    inventory: Path
    """An Ansible inventory with the groups slurm_master and gpu_nodes."""
    ssh_config: Path
    """For ssh -F: knows the nodes by name."""
    controller: str = naming.CONTROLLER

    def exec(
        self, node: str, argv: Sequence[str], *, user: str | None = None, timeout: float = 60.0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run argv in a node as root, alice or bob (no shell); subprocess.TimeoutExpired after timeout seconds."""
        return access.run_in_node(self.lab, node, argv, user=user or "root", timeout_s=timeout, stdin=stdin)

    def start(self, node: str, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Start argv in a node as root, in the background; its streams are pipes."""
        command = access.enter_argv(access.init_process(self.lab, node), argv, "root")
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def must(self, node: str, *argv: str, user: str | None = None, timeout: float = 60.0, stdin: str = "") -> str:
        """Run argv in a node and return its stdout; the test fails with both streams if it does not succeed."""
        done = self.exec(node, argv, user=user, timeout=timeout, stdin=stdin)
        if done.returncode != 0:
            pytest.fail(f"{node}: {argv} ended with {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done.stdout

    def break_(self, node: str, fault: str, *, pipe_directory: str | None = None, gpu: int = 0) -> str:
        """Bring a fault of `lab faults` about on a node."""
        return faults.break_node(self.lab, node, fault, pipe_directory, gpu)

    def mend(self, node: str) -> list[str]:
        """Undo on a node what no reset can undo."""
        return mending.mend_node(self.lab, node)

    def reboot(self, node: str) -> None:
        """Reboot a node; it answers ssh afterwards, and its services may still be starting."""
        rebooting.reboot_node(self.lab, node)

    def submit(self, command: str, *options: str, user: str = "alice") -> int:
        """Submit a shell command as a batch job with sbatch's options and return the job's number."""
        answer = self.must(self.controller, "sbatch", "--parsable", *options, f"--wrap={command}", user=user)
        return int(answer.split(";")[0])

    def node_state(self, node: str) -> str:
        """Return a node's State as `scontrol show node` has it, such as IDLE+DRAIN."""
        shown = self.must(self.controller, "scontrol", "show", "node", node)
        found = re.search(r"\bState=(\S+)", shown)
        return found[1] if found else pytest.fail(f"scontrol show node {node} has no State: {shown}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: `-m "not lab"` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Provide a running lab of four nodes with four GPUs; one that is up and large enough is used and left up.

    Skips, with the reason, where no lab can be; fails instead where MPSFLEET_REQUIRE_LAB=1. MPSFLEET_LAB_KEEP=1 leaves
    the lab up. Each worker of pytest-xdist has a lab of its own.
    """
    with provided(_lab_of_this_worker(), _asked(NODES, str(GPUS)), _is_enough) as running:
        yield running


@pytest.fixture(scope="session")
def kinds() -> Iterator[Cluster]:
    """Provide a second lab whose nodes differ: n1 four GPUs, n2 two of two types, n3 one, n4 none; gres/mps."""
    asked = _asked(len(KINDS.split(",")), KINDS)
    with provided(_lab_beside("k"), asked, lambda record: record.wanted == asked) as running:
        yield running


@pytest.fixture(scope="session")
def eight() -> Iterator[Cluster]:
    """Provide a lab of eight nodes with one GPU each, for what takes many nodes."""
    asked = _asked(8, "1")
    with provided(_lab_beside("e"), asked, lambda record: record.wanted == asked) as running:
        yield running


@pytest.fixture(scope="session")
def shards() -> Iterator[Cluster]:
    """Provide a lab of one node with four GPUs that Slurm shares by gres/shard."""
    with _one_node("s", sharing="shard") as running:
        yield running


@pytest.fixture(scope="session")
def private_tmp() -> Iterator[Cluster]:
    """Provide a lab of one node where each job has a /tmp of its own (job_container/tmpfs)."""
    with _one_node("p", has_private_tmp=True) as running:
        yield running


@contextlib.contextmanager
def _one_node(letter: str, *, sharing: str = DEFAULT_SHARING, has_private_tmp: bool = False) -> Iterator[Cluster]:
    suite = suite_called(_suite())
    if (sharing == "shard" and not suite.has_shard) or (has_private_tmp and not suite.private_tmp):
        pytest.skip(f"{suite.name}'s Slurm is too old for this")
    asked = wanted(1, suite.name, str(GPUS), sharing, has_private_tmp=has_private_tmp)
    with provided(_lab_beside(letter), asked, lambda record: record.wanted == asked) as running:
        yield running


@contextlib.contextmanager
def provided(lab: naming.Lab, asked: Wanted, is_enough: Callable[[Record], bool]) -> Iterator[Cluster]:
    """Provide a lab: one that is up and enough is used and left up, else it is started, and taken down afterwards."""
    record = read_record(lab)
    is_there = record is not None and record.is_ready and all_alive(record)
    is_suite = record is not None and os.environ.get(SUITE_VARIABLE) in (None, record.suite)
    if record is None or not is_there or not is_suite or not is_enough(record):
        try:
            record = up(lab, asked)  # which says so where another one is up
        except LabUnavailableError as error:
            if os.environ.get(REQUIRE_VARIABLE) == "1":
                pytest.fail(f"the lab is required and cannot be had: {error}")
            pytest.skip(f"no lab: {error}")
        is_there = False
    try:
        yield Cluster(lab, record.nodes, access.inventory_path(lab), lab.state / "ssh" / "config")
    finally:
        if not is_there and os.environ.get(KEEP_VARIABLE) != "1":
            down(lab)


def _asked(nodes: int, gpus: str) -> Wanted:
    return wanted(nodes, _suite(), gpus)


def _suite() -> str:
    return os.environ.get(SUITE_VARIABLE) or DEFAULT_SUITE


def _is_enough(record: Record) -> bool:
    """Whether the tests of this folder can use that lab: enough nodes, all with enough GPUs, shared by gres/mps."""
    boards = record.wanted.boards
    is_usual = record.wanted.sharing == DEFAULT_SHARING and not record.wanted.has_private_tmp
    return is_usual and len(boards) >= NODES and all(len(board.kinds) >= GPUS for board in boards)


def _lab_of_this_worker() -> naming.Lab:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return naming.Lab(f"t{worker}") if worker else naming.current()


def _lab_beside(letter: str) -> naming.Lab:
    """Return the lab that lies beside this worker's, by a letter before its name."""
    return naming.Lab(f"{letter}{_lab_of_this_worker().name}"[:LONGEST_NAME])


@pytest.fixture(scope="session")
def bare_fleet(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Provide the fleet with nothing deployed on it by this session yet."""
    return Fleet(cluster, tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="session")
def kinds_fleet(kinds: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Provide the fleet of four kinds of node with nothing deployed on it by this session yet."""
    return Fleet(kinds, tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="session")
def deployed(bare_fleet: Fleet) -> Fleet:
    """Provide the fleet with deploy_mps run on all nodes."""
    play = bare_fleet.play("deploy_mps", mps_gpus_expected=GPUS)
    assert play.rc == 0, play.out
    return bare_fleet


@pytest.fixture
def fleet(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the deployed fleet, well before the test and put right after it."""
    yield deployed
    put_right(deployed)


def put_right(fleet: Fleet) -> None:
    """Undo what a test has done: jobs, faults, drains; then reset what is not well."""
    cluster = fleet.cluster
    cluster.mend(cluster.controller)
    cluster.must(cluster.controller, "rm", "-rf", LEDGER)
    for user in ("alice", "bob"):
        cluster.must(cluster.controller, "scancel", f"--user={user}")
    fleet.wait_for("no jobs")
    for node in cluster.nodes:
        cluster.mend(node)
        report, _ = fleet.audit(node)
        if report["verdict"] != "ok":
            fleet.drain(node, "mpsfleet: reset")
            done = cluster.exec(node, ("mpsfleet", "node", "reset", "--others"))
            assert done.returncode == 0, done.stdout + done.stderr
        if "DRAIN" in cluster.node_state(node):
            fleet.undrain(node)
