"""Public cases about the control daemon: its answers as values, and what is found on a node where it is so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import build
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.node.cards import Card
from mpsfleet.node.desired import Desired
from mpsfleet.node.host.children import Answer
from mpsfleet.node.host_facts import InstanceState, Volume
from mpsfleet.node.instances import of
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Answers, Directory, Facts, Gpus, Peer, Report, Silence
from mpsfleet.node.probe import mps

if TYPE_CHECKING:
    from tests.cases.conftest import Row

MARK = 'Unknown command "mpsfleet-next"\n'


def given_by(row: Row, parts: str = "parts") -> Answer:
    out = "".join(f"{each}{MARK}" for each in row[parts]) if parts in row else row.get("out", "")
    return Answer(row.get("rc"), out, row.get("err", ""), missing=row.get("missing", False))


def test_an_answer_is_a_value_or_says_in_what_way_it_is_none(answer: Row) -> None:
    about = mps.About(answer.get("devices", 0), tuple(answer.get("of", ())))
    said = mps.understand(given_by(answer), 2.0, about)
    if "silence" in answer:
        assert isinstance(said, Silence)
        assert said.outcome == answer["silence"]
        return
    assert isinstance(said, Answers)
    assert (said.percentage, list(said.servers)) == (answer["percentage"], answer["servers"])
    if "limits" in answer:
        assert list(said.memory_limits_mib) == answer["limits"]
    if "unlimited" in answer:
        assert said.memory_limits_mib == (None,)
    if "status" in answer:
        (server,) = mps.with_clients(said, given_by(answer, "then")).of_servers
        assert (server.status, list(server.clients or ())) == (answer["status"], answer["clients"])


def test_a_daemon_is_asked_by_its_own_numbers(words: Row) -> None:
    command = mps.question("/usr/bin/nvidia-cuda-mps-control", 3, 2.0, mps.About(words["devices"]))
    asked = [each for each in command.stdin.decode().split("\n") if "pinned" in each]
    assert asked == words["asks"]


def facts_of(row: Row) -> tuple[Facts, Desired]:
    """Give the facts of a sound node with what the row says of it."""
    changes: dict[str, Any] = {}
    if "said" in row:
        changes["said"] = Silence(row["said"], "as the case says", seconds=2.0)
    for name in ("control", "privileged"):
        if name in row:
            changes[name] = Peer(row[name])
    if row.get("control") == "absent":
        changes["pipe"] = build.OBSERVED.pipe._replace(
            names=tuple(each for each in build.names() if each.name == "control_lock")
        )
    facts = build.changed(**changes)
    if "daemons" in row:
        others = (build.daemon(build.PID + number, each, 78 + number) for number, each in enumerate(row["daemons"]))
        facts = facts._replace(daemons=tuple(others))
    if "default_uid" in row:
        found = Directory("/tmp/nvidia-mps", "directory", row["default_uid"], 0, 0o755, build.parents("/", "/tmp"))  # noqa: S108  compared
        facts = facts._replace(default=found)
    desired = build.DESIRED
    if row.get("bare"):
        desired = Desired()
        facts = facts._replace(deployed=False, nvidia=False, gpus=Gpus((), "missing"), daemons=(), instances=())
    if row.get("undeployed"):
        gone = build.OBSERVED.pipe._replace(names=())
        facts = build.changed(
            pipe=gone, said=Silence("not-asked", "nobody listens"), control=Peer("absent"), privileged=Peer("absent")
        )
        facts = facts._replace(deployed=False, daemons=())
    if "per_gpu" in row:
        return per_gpu(row["per_gpu"])
    return facts, desired


def per_gpu(count: int) -> tuple[Facts, Desired]:
    """Give a sound node with a daemon for each GPU."""
    gpus = tuple(build.gpu(number) for number in range(count))
    cards = tuple(Card(number, each.uuid, number, each.bus_id, each.name) for number, each in enumerate(gpus))
    desired = Desired(daemons="gpu", gpus_expected=count)
    wanted = of(desired, cards)
    cards = tuple(each._replace(instance=one.name) for each, one in zip(cards, wanted))
    observed = []
    for number, instance in enumerate(wanted):
        peer = Peer("listening", build.PID + number, 0, "nvidia-cuda-mps")
        pipe = build.OBSERVED.pipe._replace(path=instance.pipe_directory, names=build.names(100 * number))
        seen = build.OBSERVED._replace(instance=instance, pipe=pipe, control=peer, privileged=peer, gpus=instance.gpus)
        observed.append(seen)
    daemons = tuple(
        build.daemon(build.PID + number, each.pipe_directory, 100 * number + 1) for number, each in enumerate(wanted)
    )
    facts = build.SOUND._replace(instances=tuple(observed), daemons=daemons, gpus=Gpus(gpus, "ok", rc=0), cards=cards)
    return facts, desired


def judged(row: Row) -> Report:
    return judge(*facts_of(row))


def test_a_node_is_found_as_the_case_says(audited: Row) -> None:
    found = judged(audited).findings
    assert [each.code for each in found] == audited["finds"]
    assert all(audited.get("says", "") in each.message for each in found)
    assert all(each.severity == audited.get("severity", each.severity) for each in found)
    assert all(each.origin == audited.get("origin", each.origin) for each in found)


def test_a_pipe_directory_is_one_nodes_own(volumes: Row) -> None:
    for kind in volumes["kinds"]:
        state = InstanceState(pipe=Volume(1 << 30, 1 << 20, kind), log=Volume(1 << 30, 1 << 20, kind))
        found = judge(build.changed(state=state), build.DESIRED).findings
        assert [each.code for each in found] == volumes["finds"], kind


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=300),
    st.text(max_size=60),
    st.sampled_from([None, 0, 1, -9, 255]),
    st.integers(0, 3),
    st.lists(st.integers(1, 99999), max_size=2),
)
def test_no_answer_ends_its_reader_and_silence_is_never_an_answer(
    out: str, err: str, rc: int | None, devices: int, servers: list[int]
) -> None:
    said = mps.understand(Answer(rc, out, err), 2.0, mps.About(devices, tuple(servers)))
    assert isinstance(said, (Answers, Silence))
    if rc is None or not out:
        assert isinstance(said, Silence)
