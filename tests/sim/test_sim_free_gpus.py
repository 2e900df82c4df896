"""Which GPUs of a simulated node are free: its daemon is asked for clients, its nvidia-smi for compute processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rehearsal import wait_until

from mpsfleet.node import config, free, free_gpus
from mpsfleet.node.host import Host
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rehearsal import Rehearsal


@pytest.fixture
def drained(fleet: Rehearsal) -> Iterator[Rehearsal]:
    """n1 drained by us and well before; mended and undrained after."""
    fleet.program_on("ctl", "slurm", "drain", "n1", "--code", "reset", code=0)
    yield fleet
    fleet.mend("n1")
    fleet.program_on("n1", "node", "reset", code=0)
    fleet.program_on("ctl", "slurm", "undrain", "n1")


def why_not(fleet: Rehearsal, gpu: int) -> str | None:
    host = Host.at(str(fleet.root("n1")))
    desired, mistakes = config.load(host)
    assert mistakes == ()
    return free.why_not(host, desired, any_drain=False, gpus=frozenset((uuids(fleet)[gpu],)))


def uuids(fleet: Rehearsal) -> list[str]:
    document = json.loads((fleet.root("n1") / "etc/mpsfleet/gpus.json").read_text(encoding="utf-8"))
    return [each["uuid"] for each in document["gpus"]]


def test_a_gpu_without_clients_is_free(drained: Rehearsal) -> None:
    assert why_not(drained, 0) is None


def test_a_process_beside_mps_is_evidence_on_its_gpu_alone(drained: Rehearsal) -> None:
    drained.break_node("n1", "job-bypasses-mps")

    found = [why_not(drained, gpu) for gpu in range(4)]

    assert [each is not None and each.startswith("compute process ") for each in found].count(True) == 1
    assert found.count(None) == 3


def test_an_orphaned_server_of_ours_is_no_evidence_by_itself(drained: Rehearsal) -> None:
    drained.break_node("n1", "server-orphaned")

    assert why_not(drained, 3) is None


def test_clients_of_the_daemon_that_serves_the_gpu_are_evidence(fleet: Rehearsal) -> None:
    host = Host.at(str(fleet.root("n1")))
    fleet.break_node("n1", "clients-of-two-users")

    def why() -> str:
        named = procfs.named_mps(host)
        assert not isinstance(named, Unreadable)
        return str(free_gpus.by_clients(host, config.load(host)[0], frozenset(uuids(fleet)[:1]), named))

    is_so = wait_until(lambda: why().startswith("the MPS servers of nvidia-mps.service have clients ("))
    fleet.mend("n1")
    assert is_so
