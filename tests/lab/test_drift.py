"""Drift on a real Slurm: what `mpsfleet slurm drift` says of daemons, jobs, GPUs and registrations, and how it mends."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from fleet import REPOSITORY

from mpsfleet.slurm import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet import Fleet

PROGRAM = "/root/mpsfleet-drift.pyz"
CONF, GRES = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf"


class Said(NamedTuple):
    """What the verb said: exit status, its lines, its JSON."""

    rc: int
    lines: list[str]
    answer: dict[str, Any]

    @property
    def kinds(self) -> list[tuple[str, list[str]]]:
        return [(each["kind"], each["nodes"]) for each in self.answer["drifts"]]


def reports_of(fleet: Fleet) -> str:
    """Give the reports of the fleet as the playbook passes them on, from an audit of each node."""
    hosts = [
        {"host": each, "node": each, "report": fleet.audit(each)[0], "error": None} for each in fleet.cluster.nodes
    ]
    return json.dumps({"schema": 1, "hosts": hosts})


def said(fleet: Fleet, *words: str, reports: str | None = None) -> Said:
    """Run the verb on the controller twice, for a person and for a program, with the reports of the fleet."""
    given = reports_of(fleet) if reports is None else reports
    command = ("python3", "-W", "error", "-IS", PROGRAM, "slurm", "drift", *words)
    with_reports = (*command, "--reports", "-") if given else command
    shown = fleet.cluster.exec("ctl", with_reports, stdin=given)
    printed = fleet.cluster.exec("ctl", (*with_reports, "--json"), stdin=given)
    assert (shown.stderr, printed.stderr, shown.returncode) == ("", "", printed.returncode)
    return Said(shown.returncode, shown.stdout.splitlines(), json.loads(printed.stdout))


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@pytest.fixture
def drifting(fleet: Fleet) -> Iterator[Fleet]:
    """Provide the deployed fleet with the program on its controller."""
    path = fleet.cluster.lab.root("ctl") / PROGRAM.lstrip("/")
    path.write_bytes((REPOSITORY / "build" / "mpsfleet.pyz").read_bytes())
    yield fleet
    path.unlink()


@pytest.mark.smoke
def test_a_healthy_fleet_does_not_drift(drifting: Fleet) -> None:
    found = said(drifting, "--cluster", "lab")

    assert found.lines == ["4 compared: no drift; verdict ok."]
    assert (found.rc, found.answer) == (0, {"schema": 1, "verdict": "ok", "drifts": [], "problems": []})
    assert said(drifting, reports="").rc == 0


def test_another_cluster_is_not_compared(drifting: Fleet) -> None:
    done = drifting.cluster.exec("ctl", ("python3", "-IS", PROGRAM, "slurm", "drift", "--cluster", "prod"))

    assert (done.returncode, done.stdout) == (3, "")
    assert "This is cluster lab and not prod." in done.stderr


def test_a_daemon_that_has_ended_is_told_with_the_command_that_mends_it(drifting: Fleet) -> None:
    drifting.cluster.must("n2", "systemctl", "stop", "nvidia-mps.service")

    found = said(drifting)
    [line] = [each for each in found.lines if "[mps-not-running]" in each]
    command = re.findall(r"`(ansible-playbook [^`]*)`", line)[0].split()
    play = drifting.play(command[1].rpartition(".")[2], limit=command[3])

    assert (found.rc, found.kinds) == (2, [("mps-not-running", ["n2"])])
    assert line.startswith("n2: critical: Slurm sends jobs for gres/mps to the node, and its control daemon does not")
    assert play.rc == 0, play.out
    assert said(drifting).rc == 0


def test_a_drained_node_gets_no_jobs_so_its_daemon_is_no_alarm(drifting: Fleet) -> None:
    drifting.cluster.must("n2", "systemctl", "stop", "nvidia-mps.service")
    drifting.drain("n2", "mpsfleet: daemon-absent")

    found = said(drifting)

    assert [(each["kind"], each["severity"]) for each in found.answer["drifts"]] == [("mps-not-running", "info")]
    assert found.rc == 0


def test_a_job_beside_mps_is_told_while_it_runs(drifting: Fleet) -> None:
    drifting.cluster.submit("sleep 120", "--gres=mps:50", "--nodelist=n1")
    drifting.wait_for("a job")
    before = said(drifting)
    drifting.cluster.must("n1", "systemctl", "stop", "nvidia-mps.service")

    found = said(drifting)

    assert before.rc == 0, before.lines
    assert (found.rc, sorted(found.kinds)) == (2, [("allocated-without-daemon", ["n1"]), ("mps-not-running", ["n1"])])
    [line] = [each for each in found.lines if "[allocated-without-daemon]" in each]
    assert "`squeue --nodelist=n1`" in line


def test_slurm_tells_of_one_job_in_shares_and_of_another_by_whole_gpus(drifting: Fleet) -> None:
    drifting.cluster.submit("sleep 120", "--gres=mps:50", "--nodelist=n1")
    drifting.cluster.submit("sleep 120", "--gres=gpu:a100:1", "--nodelist=n1")
    wait_until(lambda: drifting.cluster.must("ctl", "squeue", "-h", "-o", "%T").split() == ["RUNNING"] * 2, "two run")

    table = nodes.parse(drifting.cluster.must("ctl", "scontrol", "--details", "show", "nodes"))

    used = table.nodes[0].gres_used_parsed
    assert used is not None
    assert [(each.name, each.count > 0) for each in used] == [("gpu", True), ("mps", True)]
    assert said(drifting).rc == 0


def test_a_gpu_that_has_gone_is_missed(drifting: Fleet) -> None:
    drifting.cluster.break_("n3", "gpu-missing")

    found = said(drifting)

    assert (found.rc, found.kinds) == (1, [("gpu-count", ["n3"])])
    assert "Slurm gives the node 4 GPUs, and nvidia-smi shows 3 there [gpu-count]." in found.lines[0]


def test_a_host_that_cannot_be_asked_is_unknown_and_no_drift(drifting: Fleet) -> None:
    given = json.loads(reports_of(drifting))
    given["hosts"][3].update(report=None, error="unreachable: no route to host")

    found = said(drifting, reports=json.dumps(given))

    assert (found.rc, found.answer["drifts"]) == (3, [])
    assert found.answer["problems"] == [
        "n4: The node could not be asked: unreachable: no route to host. Audit the node again; look at how it is reached."
    ]


def test_a_node_that_no_host_is_is_told_and_no_alarm(drifting: Fleet) -> None:
    given = json.loads(reports_of(drifting))
    del given["hosts"][0]
    given["hosts"][0]["node"] = given["hosts"][0]["report"]["node"] = "n22"

    found = said(drifting, reports=json.dumps(given))

    assert [(each["kind"], each["severity"], each["nodes"]) for each in found.answer["drifts"]] == [
        ("unknown-node", "unknown", ["n2"]),
        ("not-audited", "info", ["n1", "n2"]),
    ]
    assert "(perhaps n2)" in found.lines[0]


@pytest.fixture
def too_few(drifting: Fleet) -> Iterator[Fleet]:
    """Provide a fleet whose n2 has registered half of the shares, by files of its own, that slurm.conf gives it."""
    cluster = drifting.cluster
    if "20.11." in cluster.must("ctl", "scontrol", "--version"):
        pytest.skip("Slurm 20.11 has no INVALID_REG")
    conf, gres = cluster.must("n2", "cat", CONF), cluster.must("n2", "cat", GRES)

    def write(conf: str, gres: str) -> None:
        cluster.must("n2", "sh", "-c", f"cat > {CONF}", stdin=conf)
        cluster.must("n2", "sh", "-c", f"cat > {GRES}", stdin=gres)
        cluster.must("n2", "systemctl", "restart", "slurmd")

    # With lines for fewer shares than slurm.conf gives, slurmd does not start; without any line it spreads them evenly.
    write(conf.replace("mps:a100:400", "mps:a100:200"), re.sub(r"Name=mps .*nvidia[23]\n", "", gres))
    try:
        wait_until(lambda: "INVAL" in cluster.node_state("n2"), "n2 is invalid")
        yield drifting
    finally:
        write(conf, gres)
        wait_until(lambda: "INVAL" not in cluster.node_state("n2"), "n2 is valid again")
        if "DRAIN" in cluster.node_state("n2"):
            cluster.must("ctl", "scontrol", "update", "NodeName=n2", "State=RESUME")
        wait_until(lambda: cluster.node_state("n2") == "IDLE", "n2 is back")


def test_fewer_shares_than_slurm_conf_gives_are_told_with_both_counts(too_few: Fleet) -> None:
    found = said(too_few)
    alone = said(too_few, reports="")

    assert (found.rc, found.kinds) == (1, [("invalid-registration", ["n2"])]), found.lines
    if "gres/mps count" in too_few.reason("n2"):
        assert "gres/mps count reported lower than configured (200 < 400)" in found.lines[0]
        assert (
            "Its slurmd counts 200 of gres/mps by the slurm.conf and gres.conf there, slurmctld 400" in found.lines[0]
        )
        assert "`systemctl restart slurmd`" in found.lines[0]
        assert "`scontrol update NodeName=n2 State=RESUME`" in found.lines[0]
    else:  # 24.11 without accounting keeps the reason of an earlier test's drain
        assert "It registered gpu:a100:4,mps:a100:200. Make slurm.conf, gres.conf" in found.lines[0]
    assert "reset" not in found.lines[0]
    assert (alone.rc, alone.kinds) == (1, found.kinds)
