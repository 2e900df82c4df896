"""Whether a node, or some of its GPUs, is free: tools of the node answer as Slurm's and NVIDIA's do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpsfleet.node import free, jobs, steps
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host
from mpsfleet.node.host.children import Answer
from mpsfleet.node.jobs import Job
from mpsfleet.node.model import Process, Unreadable
from mpsfleet.node.probe import procfs

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
ON_A, ON_B = frozenset((A,)), frozenset((B,))
DESIRED = Desired(daemons="gpu", node_name="n1", nvidia_smi_timeout_s=0.5, query_timeout_s=0.5)
OURS = "mpsfleet: reset [root@2026-12-01T10:00:00]"
SHOWN = "NodeName=n1 Arch=x86_64 CPUTot=64 State={state} Partitions=gpu Reason={reason}\n"
HEADING = "PID      JOBID    STEPID   LOCALID GLOBALID\n"
NO_STEPS = "No job steps exist on this node."


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for each in ("run", "proc", "usr/bin"):
        (tmp_path / each).mkdir(parents=True)
    slurm(tmp_path, "MIXED+DRAIN", OURS, HEADING + "29       17       batch    0       0       \n")
    tool(tmp_path, "nvidia-smi", "")
    host = Host.at(str(tmp_path))
    jobs.write(host, Job(17, 1000, "mps", (B,), (1,), 1_000))
    return host


def tool(root: Path, name: str, script: str) -> None:
    path = root / "usr/bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def slurm(root: Path, state: str, reason: str, pids: str) -> None:
    shown = SHOWN.format(state=state, reason=reason)
    known = f"cat <<'X'\n{pids}X\n" if pids else f"echo '{NO_STEPS}' >&2; exit 1"
    tool(root, "scontrol", f"if [ \"$1\" = listpids ]; then\n{known}\nelse\ncat <<'X'\n{shown}X\nfi")


def why_not(host: Host, gpus: frozenset[str] | None, *, any_drain: bool = False) -> str | None:
    return free.why_not(host, DESIRED, any_drain=any_drain, gpus=gpus)


def test_a_gpu_is_free_while_a_recorded_job_runs_on_another(host: Host) -> None:
    assert why_not(host, ON_A) is None


def test_a_gpu_that_a_recorded_job_has_is_not(host: Host) -> None:
    assert why_not(host, ON_B) == f"job 17 is recorded on {B}; wait for its end"


def test_the_node_is_not_free_while_any_job_is_recorded(host: Host) -> None:
    assert why_not(host, None) == "job 17 is recorded on this node; wait for its end"


def test_a_gpu_of_a_node_in_service_is_not(host: Host) -> None:
    slurm(Path(host.root), "MIXED", "", "")

    assert "not drained; drain it first" in str(why_not(host, ON_A))


def test_a_gpu_of_a_node_that_somebody_else_drained_is_free_only_where_that_is_asked_for(host: Host) -> None:
    slurm(Path(host.root), "MIXED+DRAIN", "replacing a PSU [bob@2026-12-01T10:00:00]", "")

    assert "was drained by somebody else" in str(why_not(host, ON_A))
    assert why_not(host, ON_A, any_drain=True) is None


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("MIXED+DRAIN+REBOOT_REQUESTED", "is to be rebooted or is rebooting"),
        ("MIXED+DRAIN+POWERING_DOWN", "is powered down, or is being powered up or down"),
        ("MIXED+DRAIN+BESPOKE", "has a state that this program does not know (BESPOKE)"),
    ],
)
@pytest.mark.parametrize("any_drain", [False, True])
def test_a_gpu_of_a_node_about_to_go_is_not(host: Host, state: str, why: str, *, any_drain: bool) -> None:
    slurm(Path(host.root), state, OURS, "")

    assert why_not(host, ON_A, any_drain=any_drain) == (
        f"node n1 {why} (state {state}); it is left alone until that is over"
    )


def test_a_job_that_no_prolog_recorded_may_be_on_any_gpu(host: Host) -> None:
    slurm(Path(host.root), "MIXED+DRAIN", OURS, HEADING + "30       18       0        0       0       \n")

    assert str(why_not(host, ON_A)).startswith("process 30 of job 18 is on this node and no Prolog recorded it")


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1}'])
def test_a_record_that_cannot_be_read_may_be_of_any_gpu(host: Host, content: str) -> None:
    Path(host.path(f"{jobs.DIRECTORY}/19")).write_text(content)

    assert str(why_not(host, ON_A)).startswith("the record /run/mpsfleet/jobs/19 cannot be read")


def test_a_job_whose_gpus_are_not_known_may_be_on_any(host: Host) -> None:
    jobs.write(host, Job(19, 1000, "mps", (), (0,), 1_000))

    assert str(why_not(host, ON_A)).startswith("job 19 is recorded and its GPUs are not known")


def test_a_record_that_slurms_step_daemons_do_not_know_is_told_and_still_counts(host: Host) -> None:
    slurm(Path(host.root), "IDLE+DRAIN", OURS, "")

    why = str(why_not(host, ON_B))

    assert why.startswith(f"job 17 is recorded on {B}, but no step of it is on this node; if `squeue -j 17`")
    assert "SLURM_JOB_ID=17 mpsfleet node hook epilog" in why


def test_could_not_ask_the_step_daemons_means_not_free(host: Host) -> None:
    tool(
        Path(host.root),
        "scontrol",
        f"[ $1 = listpids ] && exit 3; echo '{SHOWN.format(state='IDLE+DRAIN', reason=OURS)}'",
    )

    assert "Slurm's step daemons cannot be asked (exit status 3)" in str(why_not(host, ON_A))


def test_without_scontrol_it_is_not_known(host: Host) -> None:
    Path(host.root, "usr/bin/scontrol").unlink()

    assert str(why_not(host, ON_A)).startswith("scontrol is not installed")


def test_records_that_cannot_be_listed_are_not_known(host: Host) -> None:
    Path(host.path(f"{jobs.DIRECTORY}/17")).unlink()
    Path(host.path(jobs.DIRECTORY)).rmdir()
    Path(host.path(jobs.DIRECTORY)).write_text("")

    assert str(why_not(host, ON_A)).startswith("the jobs recorded on this node are not known")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f"echo '{A}, 4711'", f"compute process 4711 is on {A}; wait for its end"),
        (f"echo '{A}, [N/A]'", f"compute process [N/A] is on {A}; wait for its end"),
        (f"echo '{B}, 4711'", None),
        ("exit 9", "nvidia-smi cannot be asked for compute processes (exit status 9)"),
        ("exec sleep 20", "nvidia-smi cannot be asked for compute processes (no answer within 0.5 s)"),
    ],
)
def test_a_compute_process_is_evidence_of_use(host: Host, said: str, why: str | None) -> None:
    tool(Path(host.root), "nvidia-smi", said)

    assert why_not(host, ON_A) == why


def process(host: Host, pid: int, lock: Path | None, uid: int | None = None) -> Process:
    """Write a process with MPS's name into the node's /proc; `lock` is what it holds open."""
    folder = Path(host.proc, str(pid))
    (folder / "fd").mkdir(parents=True)
    uid = os.getuid() if uid is None else uid
    (folder / "comm").write_text("nvidia-cuda-mps\n")
    (folder / "stat").write_text(f"{pid} (nvidia-cuda-mps) S 1 {'0 ' * 40}")
    (folder / "status").write_text(f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    if lock is not None:
        (folder / "fd/5").symlink_to(lock)
    return Process(pid, 1, uid, "nvidia-cuda-mps", "S", 0)


@pytest.mark.parametrize(
    ("name", "mode", "is_ours"), [("control_lock", 0o600, True), ("control_lock", 0o666, False), ("x", 0o600, False)]
)
def test_a_server_is_known_by_the_lock_that_nobody_else_can_open(
    host: Host, tmp_path: Path, name: str, mode: int, is_ours: bool  # noqa: FBT001
) -> None:  # fmt: skip
    lock = tmp_path / name
    lock.touch()
    lock.chmod(mode)

    assert procfs.is_server(host, process(host, 4711, lock)) is is_ours


def test_a_server_of_ours_is_no_compute_process_and_a_process_of_its_name_is(host: Host, tmp_path: Path) -> None:
    tool(Path(host.root), "nvidia-smi", f"echo '{A}, 4711'")
    lock = tmp_path / "control_lock"
    lock.touch()
    lock.chmod(0o600)
    process(host, 4711, lock)
    assert why_not(host, ON_A) is None

    lock.chmod(0o644)

    assert why_not(host, ON_A) == f"compute process 4711 is on {A}; wait for its end"


ALONE = DESIRED._replace(slurm_enabled=False, daemons="node")


def test_where_slurm_is_not_used_a_server_whose_clients_cannot_be_asked_counts(host: Host) -> None:
    process(host, 4711, None)

    why = str(free.why_not(host, ALONE, any_drain=False, gpus=ON_A))

    assert why == "MPS server 4711 runs, and nvidia-mps.service cannot be asked whether it has clients; end it first"


def test_where_slurm_is_not_used_a_gpu_without_a_server_is_free(host: Host) -> None:
    assert free.why_not(host, ALONE, any_drain=False, gpus=ON_A) is None


@pytest.mark.parametrize(
    ("answer", "listed"),
    [
        (Answer(1, NO_STEPS + "\n", ""), ()),
        (Answer(1, "", f"scontrol: error: {NO_STEPS}"), ()),
        (Answer(0, HEADING + "2205 29 batch 0 0\n2232 29 0 0 0\n", ""), (("2205", "29"), ("2232", "29"))),
        (Answer(0, HEADING + "-1 29 extern - -\n", ""), (("-1", "29"),)),
    ],
)
def test_the_step_daemons_answer_is_understood(answer: Answer, listed: tuple[tuple[str, str], ...]) -> None:
    assert steps.understand(answer) == listed


@pytest.mark.parametrize(
    "answer",
    [
        Answer(None, "", ""),
        Answer(None, "", "", missing=True),
        Answer(1, "", "munge"),
        Answer(1, "", "Unable to connect to slurmstepd: Connection refused"),
        Answer(0, HEADING + "2205 29 batch 0 0\n", "Unable to connect to slurmstepd: Connection refused"),
    ],
)
def test_a_step_daemon_that_does_not_answer_is_not_an_empty_list(answer: Answer) -> None:
    assert isinstance(steps.understand(answer), Unreadable)
