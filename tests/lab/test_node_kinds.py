"""A fleet of four kinds of node: what each has, how Slurm shares its GPUs, and what a reboot undoes."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from clusterlab.errors import LabError
from clusterlab.record import read_record
from clusterlab.suites import suite_called
from fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Cluster

# The fields that an audit asks for, and the minor number and bus id from the driver's own files.
QUERY = "index,name,mig.mode.current,compute_mode"
MINORS = "grep -h -e Minor /proc/driver/nvidia/gpus/*/information"


def asked(cluster: Cluster, node: str, fields: str = QUERY) -> list[list[str]]:
    answer = cluster.must(node, "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    return [line.split(", ") for line in answer.splitlines()]


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def states(cluster: Cluster) -> list[str]:
    """Return the jobs' states, the first job's first."""
    return cluster.must("ctl", "squeue", "--noheader", "--sort=i", "--format=%T").split()


@pytest.fixture
def jobs_end() -> Iterator[list[Cluster]]:
    """Provide a list for clusters whose jobs of alice are to end after the test."""
    clusters: list[Cluster] = []
    yield clusters
    for cluster in clusters:
        cluster.must("ctl", "scancel", "--user=alice")
        wait_until(lambda cluster=cluster: not states(cluster), "jobs end")  # type: ignore[misc]


def test_each_node_has_its_own_gpus_and_their_minor_numbers_are_the_drivers(kinds: Cluster) -> None:
    a100 = ["NVIDIA A100-SXM4-40GB", "Disabled", "Default"]
    t4 = ["Tesla T4", "[N/A]", "Default"]
    found = {node: [row[1:] for row in asked(kinds, node)] for node in ("n1", "n2", "n3")}
    minors = {node: re.findall(r"\d+", kinds.must(node, "sh", "-c", MINORS)) for node in found}
    assert found == {"n1": [a100] * 4, "n2": [a100, a100, t4, t4], "n3": [a100]}
    assert minors == {"n1": ["0", "1", "2", "3"], "n2": ["2", "3", "0", "1"], "n3": ["0"]}


def test_a_node_without_gpus_has_neither_driver_nor_package_and_is_in_service(kinds: Cluster) -> None:
    script = "ls /proc/driver; command -v nvidia-smi nvidia-cuda-mps-control; ls /dev/nvidia* 2>/dev/null"
    assert kinds.exec("n4", ("sh", "-c", script)).stdout == ""
    assert kinds.node_state("n4") == "IDLE"


def test_slurm_has_each_types_gpus_and_shares_of_a_node(kinds: Cluster) -> None:
    shown = kinds.must("ctl", "scontrol", "--oneliner", "show", "node")
    assert re.findall(r"Gres=(\S+)", shown) == [
        "gpu:a100:4,mps:a100:400",
        "gpu:a100:2,gpu:t4:2,mps:a100:200,mps:t4:200",
        "gpu:a100:1,mps:a100:100",
        "(null)",
    ]


def test_a_compute_mode_is_roots_to_set_and_lasts_until_the_node_boots(kinds: Cluster) -> None:
    uuid = asked(kinds, "n2", "uuid")[1][0]
    refused = kinds.exec("n2", ("nvidia-smi", "-i", uuid, "-c", "EXCLUSIVE_PROCESS"), user="alice")
    said = kinds.must("n2", "nvidia-smi", "-i", uuid, "-c", "EXCLUSIVE_PROCESS")
    set_to = [row[0] for row in asked(kinds, "n2", "compute_mode")]
    kinds.must("n2", "touch", "/var/tmp/kept", "/run/gone")
    kinds.reboot("n2")
    after = [row[0] for row in asked(kinds, "n2", "compute_mode")]

    assert (refused.returncode, refused.stdout) == (4, "Insufficient Permissions\n")
    assert said == "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:0B:00.0.\nAll done.\n"
    assert set_to == ["Default", "Exclusive_Process", "Default", "Default"]
    assert after == ["Default"] * 4
    assert kinds.exec("n2", ("ls", "/var/tmp/kept", "/run/gone")).stdout == "/var/tmp/kept\n"
    wait_until(lambda: kinds.node_state("n2") == "IDLE", "n2 is back in Slurm")


def test_faults_of_a_gpu_show_in_nvidia_smi_and_in_the_drivers_own_files(kinds: Cluster) -> None:
    def minors() -> list[str]:
        return re.findall(r"\d+", kinds.exec("n2", ("sh", "-c", MINORS)).stdout)

    with pytest.raises(LabError, match="GPU 3 of n2 is a Tesla T4, which knows no MIG mode"):
        kinds.break_("n2", "mig", gpu=3)
    kinds.break_("n2", "mig", gpu=0)
    kinds.break_("n2", "gpu-missing", gpu=1)
    migs = [row[0] for row in asked(kinds, "n2", "mig.mode.current")]
    without_one = minors()
    kinds.break_("n2", "driver-not-loaded")
    smi = kinds.exec("n2", ("nvidia-smi",)).returncode
    without_driver = minors()
    kinds.mend("n2")

    assert (migs, without_one) == (["Enabled", "[N/A]", "[N/A]"], ["2", "0", "1"])
    assert (smi, without_driver) == (9, [])
    assert [row[0] for row in asked(kinds, "n2", "mig.mode.current")] == ["Disabled", "Disabled", "[N/A]", "[N/A]"]
    assert minors() == ["2", "3", "0", "1"]


def test_with_gres_mps_two_gpus_worth_of_jobs_get_one_gpu_and_wait_for_each_other(
    kinds: Cluster, jobs_end: list[Cluster]
) -> None:
    jobs_end.append(kinds)
    for _ in range(4):
        kinds.submit("sleep 60", "--gres=mps:50", "--nodelist=n1")
    wait_until(lambda: states(kinds).count("RUNNING") > 1, "two jobs run")
    time.sleep(3)  # in which Slurm would start a third
    shown = kinds.must("ctl", "scontrol", "--details", "show", "job")
    assert states(kinds) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    assert re.findall(r" GRES=mps(?::a100)?:50\(([^)]*)\)", shown) in (["IDX:0"] * 2, ["50/100,0/100,0/100,0/100"] * 2)


def test_with_gres_shard_jobs_run_on_all_four_gpus_of_a_node_at_once(shards: Cluster, jobs_end: list[Cluster]) -> None:
    jobs_end.append(shards)
    record = read_record(shards.lab)
    assert record is not None
    # Slurm 22.05 fills a GPU's four shards before it takes the next GPU; later ones can be told to spread.
    count = 1 if suite_called(record.suite).spreads_shards else 4
    for _ in range(4):
        script = "echo $CUDA_VISIBLE_DEVICES > $HOME/gpu-$SLURM_JOB_ID; sleep 60"
        shards.submit(script, f"--gres=shard:{count}", "--output=/dev/null")
    wait_until(lambda: states(shards) == ["RUNNING"] * 4, "four jobs run")
    seen: list[str] = []

    def all_have_said() -> bool:
        seen[:] = shards.exec("ctl", ("sh", "-c", "cat $HOME/gpu-*"), user="alice").stdout.split()
        return len(seen) == len(states(shards))

    wait_until(all_have_said, "each job says its GPU")
    assert sorted(seen) == ["0", "1", "2", "3"]


def test_a_job_with_a_tmp_of_its_own_reaches_the_nodes_daemon(
    private_tmp: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fleet = Fleet(private_tmp, tmp_path_factory.mktemp("private"))
    play = fleet.play("deploy_mps")
    assert play.rc == 0, play.out
    private_tmp.must("n1", "touch", "/tmp/of-the-node")
    script = (
        "ls -A /tmp; echo get_default_active_thread_percentage |"
        " CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/node nvidia-cuda-mps-control"
    )
    said = private_tmp.must("ctl", "srun", "--gres=mps:50", "sh", "-c", script, user="alice")
    assert said == "100.0\n"
