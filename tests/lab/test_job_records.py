"""Who is on a GPU: Slurm's own Prolog, Epilog and TaskProlog record real jobs and tell their tasks the daemon."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from mpsfleet.node import hook_files, jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

NODE = "n1"
SLURM_CONF = f"""\
Prolog={hook_files.PROLOG}
Epilog={hook_files.EPILOG}
TaskProlog={hook_files.TASK_PROLOG}
PrologFlags=Alloc
SchedulerParameters=bf_interval=1
"""
TELL = "env | grep -E '^(CUDA_|SLURM_JOB_GPUS)' | sort > ~/told; sleep 600"
# Each GRES's lines of gres.conf the other way round, so that an index of Slurm's is no minor number.
TURN_ROUND = """\
import sys
lines = open("/etc/slurm/gres.conf").read().splitlines()
names = list(dict.fromkeys(word for line in lines for word in line.split() if word.startswith("Name=")))
turned = [line for name in names for line in reversed(lines) if name in line.split()]
open("/etc/slurm/gres.conf", "w").write("\\n".join(turned) + "\\n")
"""
WHY_NOT = """\
import os, sys
sys.path.insert(0, os.path.realpath("/usr/sbin/mpsfleet"))
from mpsfleet.node import config, free
from mpsfleet.node.host import Host
host = Host.at("")
desired, mistakes = config.load(host)
assert not mistakes, mistakes
print(free.why_not(host, desired, any_drain=False, gpus=frozenset(sys.argv[1:])))
"""


def restart(fleet: Fleet) -> None:
    """Have Slurm read its files anew, and wait until the nodes are in service."""
    cluster = fleet.cluster
    for node in cluster.nodes:
        cluster.must(node, "systemctl", "restart", "slurmd")
    cluster.must("ctl", "systemctl", "restart", "slurmctld")
    wait(lambda: all(cluster.node_state(node) == "IDLE" for node in cluster.nodes), "all nodes idle", 60)


def wait(is_so: Any, what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"{what} was not so within {seconds} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def recording(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with the hooks in slurm.conf, and n1's GPUs in another order than its device files."""
    cluster = deployed.cluster
    machines = ("ctl", *cluster.nodes)
    for node in machines:
        cluster.must(node, "sh", "-c", "cat >> /etc/slurm/slurm.conf", stdin=SLURM_CONF)
    cluster.must(NODE, "cp", "/etc/slurm/gres.conf", "/etc/slurm/gres.conf.before")
    if is_listed(deployed):
        cluster.must(NODE, "python3", "-", stdin=TURN_ROUND)
    restart(deployed)
    try:
        yield deployed
    finally:
        end_jobs(deployed)
        cluster.must(NODE, "mv", "/etc/slurm/gres.conf.before", "/etc/slurm/gres.conf")
        for node in machines:
            cluster.must(
                node,
                "sed",
                "-i",
                "/^Prolog/d; /^Epilog/d; /^TaskProlog/d; /^SchedulerParameters/d",
                "/etc/slurm/slurm.conf",
            )
        restart(deployed)


def end_jobs(fleet: Fleet) -> None:
    fleet.cluster.exec("ctl", ("scancel", "--user=alice"))
    fleet.wait_for("no jobs")
    wait(lambda: records(fleet) == {}, "no job recorded")


@pytest.fixture
def fleet(recording: Fleet) -> Iterator[Fleet]:
    yield recording
    recording.undrain(NODE)
    end_jobs(recording)


def records(fleet: Fleet) -> dict[int, dict[str, Any]]:
    """Return the records of n1 by job."""
    said = fleet.cluster.must(NODE, "sh", "-c", f"cat {jobs.DIRECTORY}/* 2>/dev/null || true")
    return {each["job"]: each for each in map(json.loads, said.splitlines())}


def uuid(fleet: Fleet, minor: int) -> str:
    """Return the UUID of the GPU with a minor number, as the driver has it."""
    said = fleet.cluster.must(NODE, "sh", "-c", "cat /proc/driver/nvidia/gpus/*/information")
    found = dict(zip(re.findall(r"Device Minor:\s+(\d+)", said), re.findall(r"GPU UUID:\s+(\S+)", said), strict=True))
    return str(found[str(minor)])


def is_listed(fleet: Fleet) -> bool:
    """Return whether an index is a place in slurmd's list. To 20.11 it is a minor number, and n1 is left as it is."""
    return "20.11" not in fleet.cluster.must("ctl", "scontrol", "--version")


def behind(fleet: Fleet, *indices: int) -> list[str]:
    """Return the GPUs behind Slurm's indices of n1, whose four device files stand in reverse where that says more."""
    return [uuid(fleet, 3 - each if is_listed(fleet) else each) for each in indices]


def submit(fleet: Fleet, gres: str, *options: str, command: str = TELL) -> int:
    job = fleet.cluster.submit(command, f"--gres={gres}", f"--nodelist={NODE}", *options)
    wait(lambda: job in records(fleet), f"job {job} recorded")
    return job


def told(fleet: Fleet) -> dict[str, str]:
    """Return what the job's task saw of CUDA's variables."""
    done = fleet.cluster.must(NODE, "sh", "-c", "for i in $(seq 50); do [ -s /home/alice/told ] && break; sleep 0.1; done; cat /home/alice/told; rm -f /home/alice/told")  # fmt: skip
    return dict(line.split("=", 1) for line in done.splitlines())


def test_a_job_with_mps_is_recorded_told_its_daemon_and_forgotten(fleet: Fleet) -> None:
    job = submit(fleet, "mps:50")

    record = records(fleet)[job]
    assert (record["gres"], record["indices"], record["gpus"]) == ("mps", [0], behind(fleet, 0))
    assert record["uid"] == int(fleet.cluster.must(NODE, "id", "-u", "alice"))
    seen = told(fleet)
    assert seen["CUDA_VISIBLE_DEVICES"] == record["gpus"][0]
    assert seen["CUDA_MPS_PIPE_DIRECTORY"].startswith("/run/nvidia-mps/")
    fleet.cluster.must("ctl", "scancel", str(job))
    wait(lambda: job not in records(fleet), "the job forgotten")
    assert fleet.cluster.must(NODE, "ls", jobs.EXPORTS) == ""


def test_a_job_with_whole_gpus_is_recorded_and_told_nothing(fleet: Fleet) -> None:
    job = submit(fleet, "gpu:2")

    record = records(fleet)[job]
    assert (record["gres"], record["gpus"]) == ("gpu", behind(fleet, *record["indices"]))
    assert len(record["gpus"]) == 2
    assert told(fleet) == {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "0,1"}


def test_five_jobs_at_once_are_recorded_and_forgotten(fleet: Fleet) -> None:
    numbers = {fleet.cluster.submit("sleep 4", "--gres=mps:20", f"--nodelist={NODE}") for _ in range(5)}

    wait(lambda: set(records(fleet)) == numbers, "five records")

    assert [each["gpus"] for each in records(fleet).values()] == [behind(fleet, 0)] * 5
    wait(lambda: records(fleet) == {}, "all forgotten")


def test_a_job_killed_hard_is_forgotten(fleet: Fleet) -> None:
    job = submit(fleet, "mps:50")

    fleet.cluster.must("ctl", "scancel", "--full", "--signal=KILL", str(job))

    wait(lambda: job not in records(fleet), "the job forgotten")


def test_the_second_component_of_a_heterogeneous_job_is_told_its_own_daemon(fleet: Fleet) -> None:
    alone = ("srun", "--gres=mps:10", "--nodelist=n2", "true")
    beside = ("--gres=mps:20", f"--nodelist={NODE}", "sh", "-c", TELL.replace("sleep 600", "true"))

    fleet.cluster.must("ctl", *alone, ":", *beside, user="alice")

    assert told(fleet)["CUDA_VISIBLE_DEVICES"] == behind(fleet, 0)[0]
    wait(lambda: records(fleet) == {}, "both components forgotten")


def test_a_job_without_gpus_is_not_recorded(fleet: Fleet) -> None:
    fleet.cluster.must("ctl", "srun", f"--nodelist={NODE}", "true", user="alice")

    assert records(fleet) == {}


def test_users_read_what_their_tasks_are_told_and_no_record(fleet: Fleet) -> None:
    job = submit(fleet, "mps:50")

    for path in (f"{jobs.DIRECTORY}/{job}", jobs.DIRECTORY):
        assert fleet.cluster.exec(NODE, ("ls", "-l", path), user="alice").returncode != 0
    assert "CUDA_MPS_PIPE_DIRECTORY" in fleet.cluster.must(NODE, "cat", f"{jobs.EXPORTS}/{job}", user="alice")
    assert fleet.cluster.exec(NODE, ("touch", f"{jobs.EXPORTS}/{job}"), user="alice").returncode != 0


def test_a_hostile_environment_reaches_neither_shell_nor_program(fleet: Fleet) -> None:
    hostile = (
        "SLURM_JOB_ID=4000000", "SLURM_JOB_UID=0;id", "SLURM_JOB_GPUS=0,$(touch /tmp/owned) `touch /tmp/owned`\n1",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "SLURM_JOB_COMMENT=$(touch /tmp/owned)", "PYTHONPATH=/tmp", "IFS=/",
        "PATH=/tmp", "CUDA_MPS_PIPE_DIRECTORY=/tmp/planted", "ENV=/tmp/planted",
    )  # fmt: skip

    done = fleet.cluster.exec(NODE, ("/usr/bin/env", "-i", *hostile, hook_files.PROLOG))

    assert done.returncode == 0
    assert "it is not known which GPUs job 4000000 has" in done.stderr
    record = records(fleet)[4000000]
    assert (record["uid"], record["gpus"], record["indices"]) == (-1, [], [])
    assert fleet.cluster.exec(NODE, ("ls", "/tmp/owned")).returncode != 0
    fleet.cluster.must(NODE, "/usr/bin/env", "-i", "SLURM_JOB_ID=4000000", hook_files.EPILOG)
    assert records(fleet) == {}


def test_with_the_kill_switch_jobs_run_and_nothing_is_recorded(fleet: Fleet) -> None:
    fleet.cluster.must(NODE, "touch", "/etc/mpsfleet/off")
    try:
        fleet.cluster.must("ctl", "srun", "--gres=mps:50", f"--nodelist={NODE}", "true", user="alice")
        assert records(fleet) == {}
    finally:
        fleet.cluster.must(NODE, "rm", "/etc/mpsfleet/off")


def test_without_the_program_jobs_run(fleet: Fleet) -> None:
    fleet.cluster.must(NODE, "mv", "/usr/sbin/mpsfleet", "/usr/sbin/mpsfleet.hidden")
    try:
        fleet.cluster.must("ctl", "srun", "--gres=mps:50", f"--nodelist={NODE}", "true", user="alice")
        wait(lambda: fleet.cluster.node_state(NODE) == "IDLE", "the node idle and not drained")
    finally:
        fleet.cluster.must(NODE, "mv", "/usr/sbin/mpsfleet.hidden", "/usr/sbin/mpsfleet")


def why_not(fleet: Fleet, *gpus: str) -> str:
    return fleet.cluster.must(NODE, "python3", "-IS", "-", *gpus, stdin=WHY_NOT).strip()


def test_a_gpu_is_free_while_a_job_runs_on_another_and_the_node_is_drained_by_us(fleet: Fleet) -> None:
    submit(fleet, "gpu:1", command="srun sleep 600")
    mine, other = behind(fleet, 0, 1)
    wait(lambda: " 0 " in fleet.cluster.exec(NODE, ("scontrol", "listpids")).stdout, "its step")
    assert "not drained" in why_not(fleet, other)
    fleet.drain(NODE, "mpsfleet: reset")

    assert why_not(fleet, other) == "None"
    assert why_not(fleet, mine).endswith(f"is recorded on {mine}; wait for its end")


def test_a_gpu_is_not_free_beside_a_job_that_was_not_recorded(fleet: Fleet) -> None:
    job = submit(fleet, "gpu:1", command="sleep 600")
    other = behind(fleet, 1)[0]
    fleet.drain(NODE, "mpsfleet: reset")
    fleet.cluster.must(NODE, "rm", f"{jobs.DIRECTORY}/{job}")

    assert f"of job {job} is on this node and no Prolog recorded it" in why_not(fleet, other)
