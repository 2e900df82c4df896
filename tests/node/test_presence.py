"""What a report tells of MPS on the node: who serves, which GPUs, how many; and that it stays small."""

from __future__ import annotations

import json
from typing import Any

import pytest
from build import DESIRED, OBSERVED, SOUND, changed, daemon, gpu, names

import report_schema  # of the tools' folder
from mpsfleet.node.cards import Card
from mpsfleet.node.desired import Desired
from mpsfleet.node.instances import of
from mpsfleet.node.jobs import Garbled, Job
from mpsfleet.node.judge import judge
from mpsfleet.node.judge.presence import presence
from mpsfleet.node.model import (
    Answers,
    Directory,
    Facts,
    Gpus,
    Mps,
    Observed,
    Peer,
    Silence,
    Unreadable,
    UserView,
)
from mpsfleet.node.render.json import report
from mpsfleet.node.servers_facts import Servers

HEALTHY_LIMIT = 1024  # bytes
PER_GPU = Desired(daemons="gpu", gpus_expected=8)


def told(facts: Facts, desired: Desired = DESIRED) -> Mps:
    found = presence(facts, desired)
    assert found is not None
    return found


def eight() -> Facts:
    """Give the facts of a sound node of eight GPUs with a daemon and a job each."""
    model = ("00000000:3B:00.0", "NVIDIA H100 80GB HBM3", "550.54.15", "Default", "81559 MiB")
    gpus = tuple(gpu(number, *model) for number in range(8))
    cards = tuple(Card(n, each.uuid, n, each.bus_id, each.name, "", str(n)) for n, each in enumerate(gpus))
    observed = []
    for number, instance in enumerate(of(PER_GPU, cards)):
        pid, path = 5000 + number, instance.pipe_directory
        peer = Peer("listening", pid, 0, "nvidia-cuda-mps")
        pipe = Directory(path, "directory", 0, 0, 0o755, (), names(100 + 10 * number))
        view = UserView(reached=True, step=f"{path}/log", error="")
        observed.append(Observed(instance, pipe, pipe, peer, peer, Answers(100.0, (), (), ""), None, view))
    jobs = tuple(Job(number, 2001, "mps", (each.uuid,), (number,), 0) for number, each in enumerate(gpus))
    return SOUND._replace(
        daemons=tuple(daemon(5000 + n, at.pipe.path, 101 + 10 * n) for n, at in enumerate(observed)),
        instances=tuple(observed),
        gpus=Gpus(gpus, "ok", rc=0),
        cards=cards,
        servers=Servers(records=jobs),
    )


def test_a_healthy_report_of_eight_gpus_and_daemons_stays_below_a_kilobyte() -> None:
    facts = eight()
    healthy = judge(facts, PER_GPU)._replace(findings=(), verdict="ok", mps=presence(facts, PER_GPU))

    line = report(healthy)

    report_schema.require(json.loads(line))
    assert (len(told(facts, PER_GPU).gpus), told(facts, PER_GPU).jobs) == (8, 8)
    assert len(line) <= HEALTHY_LIMIT


def test_a_sound_node_serves_all_its_gpus() -> None:
    assert told(SOUND) == Mps(
        (("node", True),), ((-1, "nvidia_a100", "node", 0), (-1, "nvidia_a100", "node", 0)), 2, None
    )
    assert told(eight(), PER_GPU).gpus[3] == (3, "nvidia_h100_80gb_hbm3", "3", 1)


@pytest.mark.parametrize(
    ("serves", "changes"),
    [
        (False, {"daemons": (), "control": Peer("refused"), "privileged": Peer("refused")}),
        (False, {"control": Peer("absent")}),
        (False, {"control": Peer("listening", 99, 2001, "python3")}),
        (False, {"user": UserView(reached=False, step="/run/nvidia-mps", error="EACCES")}),
        (False, {"said": Silence("timeout", "it did not answer", "T", seconds=2.0)}),
        (None, {"said": Silence("timeout", "it did not answer", "S", seconds=2.0)}),
        (None, {"said": Silence("busy", "its queue is full")}),
        (None, {"control": Peer("listening", 0, 0)}),
        (None, {"control": Peer("listening", 99, 0, "x", is_control_program=True)}),
        (None, {"daemons": Unreadable("/proc cannot be read")}),
        (True, {"control": Peer("busy", reason="its queue of connections is full")}),
        (True, {"user": Unreadable("the look as a user ended early")}),
    ],
)
def test_only_what_is_certain_is_said_of_a_daemon(*, serves: bool | None, changes: dict[str, Any]) -> None:
    assert told(changed(**changes)).instances == (("node", serves),)


def test_where_nothing_was_deployed_a_daemon_that_is_not_there_is_not_missing() -> None:
    absent = {"daemons": (), "control": Peer("absent"), "deployed": False}

    found = told(changed(**absent))

    assert (found.instances, {each[2] for each in found.gpus}) == ((), {""})
    assert told(SOUND._replace(deployed=False)).instances == (("node", True),)


def test_which_daemons_there_should_be_is_not_known_without_the_record() -> None:
    assert presence(SOUND, PER_GPU) is None
    assert presence(SOUND._replace(cards=Unreadable("it is garbled")), PER_GPU) is None


@pytest.mark.parametrize(
    ("count", "gpus"),
    [
        (0, Gpus((), "none-found")),
        (None, Gpus((), "timeout")),
        (None, Gpus((), "missing")),
        (None, Gpus((gpu(0), gpu(1)._replace(mig="Enabled")), "ok")),
        (1, Gpus((gpu(0),), "ok")),
    ],
)
def test_gpus_are_counted_where_they_were_told_whole(count: int | None, gpus: Gpus) -> None:
    assert told(SOUND._replace(gpus=gpus)).found == count


def test_a_node_without_the_driver_has_no_gpu() -> None:
    assert told(SOUND._replace(gpus=Gpus((), "missing"), nvidia=False)).found == 0


def test_jobs_are_counted_by_gpu_and_a_garbled_record_as_a_job() -> None:
    first = Job(7, 2001, "mps", (gpu(0).uuid,), (0,), 0)
    read = Servers(records=(first, first._replace(job=8), Garbled("9", "it is cut off")))

    found = told(SOUND._replace(servers=read))

    assert (found.jobs, [each[3] for each in found.gpus]) == (3, [2, 0])
    assert told(SOUND._replace(servers=Servers(records=Unreadable("x")))).jobs is None


def test_no_more_is_told_than_a_reader_takes() -> None:
    many = SOUND._replace(gpus=Gpus((gpu(0),) * 100, "ok"), instances=(OBSERVED,) * 100, daemons=(daemon(),))

    found = told(many)

    assert (len(found.instances), len(found.gpus)) == (64, 64)
