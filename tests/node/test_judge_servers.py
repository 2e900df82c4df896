"""The judgement of MPS servers and their clients, one thing wrong at a time; invented, shaped as the lab's and NVIDIA's."""

from __future__ import annotations

from typing import Any

import pytest
from build import DESIRED, PID, changed, gpu

from mpsfleet.codes import BY_NAME
from mpsfleet.node.desired import Desired
from mpsfleet.node.jobs import Garbled, Job
from mpsfleet.node.judge import judge
from mpsfleet.node.judge.clients import most_clients
from mpsfleet.node.judge.words import numbers
from mpsfleet.node.model import Facts, Gpus, Process, Unreadable
from mpsfleet.node.servers_facts import Client, Past, Server, Servers, Use, Waiting, bypassing
from mpsfleet.node.steps import Listed

ALICE, BOB = 2001, 2002
GPU = gpu(0).uuid
JOB = Job(17, ALICE, "mps", (GPU,), (0,), 1_000)
STEPS = (Listed("600", "17"), Listed("601", "17"), Listed("700", "18"))


def server(**changes: Any) -> Server:
    """Return a sound server of alice's with two clients of one job."""
    state = changes.pop("state", "S")
    sound = Server(
        Process(500, PID, ALICE, "nvidia-cuda-mps", state, 100),
        daemon=PID,
        age_s=600.0,
        status="ACTIVE",
        is_ready=True,
        clients=(Client(600, ALICE), Client(601, ALICE)),
    )
    return sound._replace(**changes)


def facts(*servers: Server, **changes: Any) -> Facts:
    there = changes.pop("servers", servers or (server(),))
    pids = [pid for each in there for pid in (each.process.pid, *(client.pid for client in each.clients or ()))]
    read = {"records": (JOB,), "steps": STEPS, "uses": tuple(Use(GPU, str(pid)) for pid in pids), **changes}
    return changed(servers=Servers(there, **read))


def starting(age_s: float, **changes: Any) -> Server:
    return server(status="INITIALIZING", is_ready=False, clients=(), age_s=age_s, **changes)


def many(count: int) -> tuple[Client, ...]:
    return tuple(Client(600, ALICE, each) for each in range(count))


FAULT = {"status": "FAULT"}
UNKNOWN = Unreadable("no answer within 8 s")
UNDER = "the MPS server of user 2001 under /run/nvidia-mps/node"
CASES: list[tuple[str, Facts, list[tuple[str, str]], str]] = [
    ("no server", changed(servers=Servers()), [], ""),
    ("not looked at", changed(servers=None), [], ""),
    ("a server with two clients of one user", facts(), [], ""),
    ("a driver that tells no status", facts(server(status=None)), [], ""),
    ("a driver that tells nothing but clients", facts(server(status=None, is_ready=None)), [], ""),
    ("a server that has just been started", facts(starting(3.0)), [], ""),
    (
        "in FAULT, with clients of a job",
        facts(server(**FAULT)),
        [("server-fault", "daemon node")],
        f"{UNDER} is in FAULT and takes no new client until its 2 clients have ended (job 17)",
    ),
    (
        "in FAULT, with one client of no job",
        facts(server(clients=(Client(990, ALICE),), **FAULT)),
        [("server-fault", "daemon node"), ("client-without-job", "daemon node")],
        f"{UNDER} is in FAULT and takes no new client until its client has ended",
    ),
    (
        "in FAULT, with nobody left",
        facts(server(clients=(), **FAULT)),
        [("server-fault", "daemon node")],
        "although it has none left: it does not recover by itself",
    ),
    (
        "in FAULT, and its clients were not told",
        facts(server(clients=None, **FAULT)),
        [("server-fault", "daemon node")],
        "until all its clients have ended",
    ),
    (
        "recovered from a FAULT that an audit saw",
        facts(past=(Past(PID, (), (500,)),)),
        [("server-recovered", "daemon node")],
        f"{UNDER} was in FAULT within the last hour, and serves again",
    ),
    ("another server than the one that was in FAULT", facts(past=(Past(PID, (), (499,)),)), [], ""),
    (
        "not ready for a minute",
        facts(starting(60.0)),
        [("server-not-ready", "daemon node")],
        f"{UNDER} is not ready a minute after its start",
    ),
    (
        "stopped",
        facts(server(state="T")),
        [("server-not-ready", "daemon node")],
        f"{UNDER} is stopped (SIGSTOP), so its clients wait",
    ),
    (
        "in uninterruptible sleep at its start",
        facts(starting(3.0, state="D")),
        [("server-not-ready", "daemon node")],
        "in uninterruptible sleep and not ready",
    ),
    ("a busy server in a moment of uninterruptible sleep", facts(server(state="D")), [], ""),
    (
        "listed and dead",
        facts(dead=((PID, 499),)),
        [("server-dead", "daemon node")],
        "the control daemon of /run/nvidia-mps/node lists an MPS server that has ended",
    ),
    ("listed and dead at another daemon", facts(dead=((99, 499),)), [], ""),
    (
        "three early ends",
        changed(servers=Servers(past=(Past(PID, (700.0, 400.0, 100.0)),))),
        [("server-crash-loop", "daemon node")],
        "the MPS servers of /run/nvidia-mps/node end soon after their start: 3 audits in a row",
    ),
    ("two early ends", changed(servers=Servers(past=(Past(PID, (400.0, 100.0)),))), [], ""),
    ("three early ends long ago", changed(servers=Servers(past=(Past(PID, (3500.0, 3400.0, 2000.0)),))), [], ""),
    (
        "orphaned, and on a GPU",
        facts(server(daemon=0, status=None, is_ready=None, clients=None)),
        [("server-orphaned", "server of user 2001")],
        "an MPS server of user 2001 lives on without its control daemon and holds memory of GPU 0",
    ),
    (
        "orphaned, and on no GPU",
        facts(server(daemon=0, status=None, is_ready=None, clients=None), uses=()),
        [("server-orphaned", "server of user 2001")],
        "lives on without its control daemon",
    ),
    (
        "orphaned, and nvidia-smi is silent",
        facts(server(daemon=0, clients=None), uses=UNKNOWN, records=()),
        [("server-orphaned", "server of user 2001")],
        "; whether it holds memory of a GPU is not known",
    ),
    (
        "a client behind another user's server",
        facts(waiting=(Waiting(PID, 700, BOB),)),
        [("client-waiting", "daemon node")],
        "1 client of user 2002 waits behind the MPS server of user 2001 under /run/nvidia-mps/node",
    ),
    (
        "clients of two users behind another user's server",
        facts(waiting=(Waiting(PID, 700, BOB), Waiting(PID, 701, 2003))),
        [("client-waiting", "daemon node")],
        "2 clients of users 2002 and 2003 wait behind",
    ),
    (
        "clients without a job",
        facts(steps=(Listed("601", "17"),), uses=()),
        [("client-without-job", "daemon node")],
        "1 MPS client of user 2001 under /run/nvidia-mps/node belongs to no job that runs here",
    ),
    ("where Slurm was not asked", facts(steps=None, uses=()), [], ""),
    ("44 of 48 clients", facts(server(clients=many(44))), [("client-limit-near", "daemon node")], "44 clients of 48"),
    ("43 of 48 clients", facts(server(clients=many(43))), [], ""),
    (
        "a process of a job with shares beside MPS",
        facts(uses=(Use(GPU, "600"), Use(GPU, "601")), servers=(server(clients=(Client(600, ALICE),)),)),
        [("job-bypasses-mps", "job 17")],
        "job 17 asked for a share of a GPU by MPS and computes on GPU 0 beside it, without its share's limits",
    ),
    (
        "a process of a job with shares, and no server at all",
        changed(servers=Servers((), records=(JOB,), steps=STEPS, uses=(Use(GPU, "600"),))),
        [("job-bypasses-mps", "job 17")],
        "computes on GPU 0 beside it",
    ),
    ("a job with a whole GPU", facts(uses=(Use(GPU, "700"),), records=(JOB, Job(18, BOB, "gpu", (GPU,), (0,), 1))), [], ""),
    (
        "a process that waits for another user's server",
        facts(uses=(Use(GPU, "601"),), servers=(server(clients=(Client(600, ALICE),)),), waiting=(Waiting(99, 601, BOB),)),
        [],
        "",
    ),
    ("on a GPU that is not the job's", facts(uses=(Use("GPU-other", "601"),), servers=(server(clients=()),)), [], ""),
    (
        "a job's process while a server's clients are not told",
        facts(uses=(Use(GPU, "601"),), servers=(server(clients=None),)),
        [],
        "",
    ),
    (
        "a job's process while an orphan may serve it",
        facts(server(daemon=0, clients=None), uses=(Use(GPU, "601"),)),
        [("server-orphaned", "server of user 2001")],
        "",
    ),
    ("steps unknown", facts(steps=UNKNOWN), [("probe-failed", "clients")], "which job an MPS client belongs to is not known"),
    ("uses unknown", facts(uses=UNKNOWN), [("probe-failed", "clients")], "which processes compute is not known"),
    ("records unknown", facts(records=UNKNOWN), [("probe-failed", "clients")], "which jobs share GPUs is not known"),
    (
        "nothing known, and nobody there",
        changed(servers=Servers(records=(), steps=UNKNOWN, uses=UNKNOWN)),
        [],
        "",
    ),
    ("a record that cannot be read", facts(records=(Garbled("17", "-"),)), [], ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "expected", "sentence"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_each_is_named_in_one_sentence(read: Facts, expected: list[tuple[str, str]], sentence: str) -> None:
    report = judge(read, DESIRED)

    assert sorted((each.code, each.subject) for each in report.findings) == sorted(expected)
    if expected:
        assert any(sentence in each.message for each in report.findings), report.findings


def test_nothing_of_it_drains_and_each_code_is_made_by_some_case() -> None:
    made = {code for _, _, expected, _ in CASES for code, _ in expected} - {"probe-failed"}

    assert made == {each for each in BY_NAME if each.startswith(("server-", "client-"))} | {"job-bypasses-mps"}
    assert {BY_NAME[each].origin for each in made} <= {"user", "either"}
    assert not any(BY_NAME[each].drain for each in made)


def test_no_sentence_carries_a_pid() -> None:
    for _, read, _, _ in CASES:
        for each in judge(read, DESIRED).findings:
            assert not {"500", "600", "601", "700", "701", str(PID)} & set(each.message.replace(",", " ").split())


def test_where_slurm_is_not_used_its_silence_is_no_finding() -> None:
    assert judge(facts(steps=None), Desired(gpus_expected=2, slurm_enabled=False)).findings == ()


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("NVIDIA A100-SXM4-80GB", 48),
        ("Tesla V100-SXM2-16GB", 48),
        ("NVIDIA L40S", 48),
        ("Tesla T4", 48),
        ("Tesla P100-PCIE-16GB", 16),
        ("Tesla P4", 16),
        ("NVIDIA GeForce GTX 1080 Ti", 16),
        ("Quadro RTX 8000", 48),
        ("Quadro P6000", 16),
        ("NVIDIA H200", 48),
    ],
)
def test_gpus_before_volta_take_sixteen_clients(name: str, most: int) -> None:
    read = changed(gpus=Gpus((gpu(0)._replace(name=name), gpu(1)), "ok", rc=0), servers=Servers())

    assert most_clients(read, read.instances[0]) == most


def test_a_token_in_the_place_of_a_pid_accuses_nobody() -> None:
    read = Servers((server(),), records=(JOB,), steps=(*STEPS, Listed("[N/A]", "17")), uses=(Use(GPU, "[N/A]"),))

    assert bypassing(read) == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((), ""),
        ((1,), "1"),
        ((1, 2), "1 and 2"),
        ((1, 2, 3), "1, 2 and 3"),
        (range(10), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_numbers_are_said_in_a_row(values: Any, said: str) -> None:
    assert numbers(values) == said
