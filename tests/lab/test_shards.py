"""Several shared GPUs of one node at once: gres/shard over a resident daemon for each GPU."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from clusterlab.record import read_record
from clusterlab.suites import suite_called
from fleet import REPOSITORY, Fleet

from mpsfleet.node import hook_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Cluster

HOOKS = f"""\
Prolog={hook_files.PROLOG}
Epilog={hook_files.EPILOG}
TaskProlog={hook_files.TASK_PROLOG}
PrologFlags=Alloc
"""
JOBS = 4
# Each job says what it was told, and what the daemon of its directory answers; then it stays until all have spoken.
TELL = (
    "out=$HOME/shard.$SLURM_JOB_ID; { echo gpu=$CUDA_VISIBLE_DEVICES; echo pipe=$CUDA_MPS_PIPE_DIRECTORY; "
    "echo percentage=$(echo get_default_active_thread_percentage | nvidia-cuda-mps-control); } > $out.new; "
    "mv $out.new $out; sleep 60"
)


@pytest.fixture(scope="module")
def fleet(shards: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Provide a node with a daemon for each of its four GPUs and our hooks in slurm.conf."""
    made = Fleet(shards, tmp_path_factory.mktemp("shards"))
    play = made.play("deploy_mps", mps_daemons="gpu", mps_gpus_expected=4, mps_active_thread_percentage=50)
    assert play.rc == 0, play.out
    for machine in ("ctl", *shards.nodes):
        shards.must(machine, "sh", "-c", "cat >> /etc/slurm/slurm.conf", stdin=HOOKS)
    shards.must("n1", "systemctl", "restart", "slurmd")
    shards.must("ctl", "systemctl", "restart", "slurmctld")
    wait(lambda: shards.node_state("n1") == "IDLE", "n1 idle")
    return made


def wait(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"{what} was not so within {seconds} s"
        time.sleep(0.2)


@pytest.mark.smoke
def test_jobs_run_on_all_four_gpus_at_once_each_through_its_own_gpus_daemon(fleet: Fleet) -> None:
    cluster = fleet.cluster
    record = read_record(cluster.lab)
    assert record is not None
    # Slurm 22.05 fills a GPU's four shards before it takes the next GPU; later ones are told to spread by the lab.
    count = 1 if suite_called(record.suite).spreads_shards else 4
    jobs = [cluster.submit(TELL, f"--gres=shard:{count}", "--output=/dev/null") for _ in range(JOBS)]

    def spoken() -> list[str]:
        return cluster.exec("n1", ("sh", "-c", "ls /home/alice/shard.* 2>/dev/null | grep -v new")).stdout.split()

    wait(lambda: len(spoken()) == JOBS, "all four jobs ran at once")
    running = cluster.must("ctl", "squeue", "--noheader", "--format=%T").split()
    told = [dict(re.findall(r"(\w+)=(.*)", cluster.must("n1", "cat", path))) for path in spoken()]
    uuids = cluster.must("n1", "nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader").splitlines()
    index = {uuid: number for number, uuid in (row.split(", ") for row in uuids)}
    cluster.must("ctl", "scancel", *map(str, jobs))

    assert running == ["RUNNING"] * JOBS
    assert {each["gpu"] for each in told} == set(index)
    assert all(each["pipe"] == f"/run/nvidia-mps/{index[each['gpu']]}" for each in told)
    assert [each["percentage"] for each in told] == ["50.0"] * JOBS
    fleet.wait_for("no jobs")
    assert cluster.must("n1", "ls", "/run/mpsfleet/jobs") == ""


@pytest.mark.smoke
def test_each_daemon_serves_its_gpu_alone_and_the_node_is_well(fleet: Fleet) -> None:
    report, _ = fleet.audit("n1")

    assert report["verdict"] == "ok"
    shown = fleet.cluster.must("n1", "nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
    for number, uuid in (row.split(", ") for row in shown.splitlines()):
        pid = fleet.cluster.must(
            "n1", "systemctl", "show", "-p", "MainPID", "--value", f"nvidia-mps@{number}.service"
        ).strip()
        environment = fleet.cluster.must("n1", "sh", "-c", f"tr '\\0' '\\n' < /proc/{pid}/environ")
        assert f"CUDA_VISIBLE_DEVICES={uuid}" in environment.splitlines()
        assert f"CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/{number}" in environment.splitlines()


@pytest.mark.smoke
def test_a_job_on_the_one_gpu_whose_daemon_has_ended_is_drift_of_that_gpu(fleet: Fleet) -> None:
    cluster = fleet.cluster
    program = cluster.lab.root("ctl") / "root" / "drift.pyz"
    program.write_bytes((REPOSITORY / "build" / "mpsfleet.pyz").read_bytes())

    def drift() -> tuple[str, list[tuple[str, int | None]]]:
        hosts = [{"host": "n1", "node": "n1", "report": fleet.audit("n1")[0], "error": None}]
        given = json.dumps({"schema": 1, "hosts": hosts})
        command = ("python3", "-IS", "/root/drift.pyz", "slurm", "drift", "--reports", "-", "--json")
        answer = json.loads(cluster.exec("ctl", command, stdin=given).stdout)
        return answer["verdict"], sorted((each["kind"], each["gpu"]) for each in answer["drifts"])

    job = cluster.submit("sleep 120", "--gres=shard:1", "--nodelist=n1", "--output=/dev/null")
    fleet.wait_for("a job")
    before = drift()
    [gpu] = [index for index, row in enumerate(fleet.audit("n1")[0]["mps"]["gpus"]) if row[3]]
    cluster.must("n1", "systemctl", "stop", f"nvidia-mps@{gpu}.service")
    beside = drift()
    cluster.must("ctl", "scancel", str(job))
    fleet.wait_for("no jobs")
    after = drift()
    cluster.must("n1", "systemctl", "start", f"nvidia-mps@{gpu}.service")
    program.unlink()

    assert before == ("ok", [])
    assert beside == ("critical", [("allocated-without-daemon", gpu), ("mps-not-running", gpu)])
    assert after == ("critical", [("mps-not-running", gpu)])
