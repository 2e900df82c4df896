"""What this suite's scontrol says is read as the same values from its text and from its JSON."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from fleet import REPOSITORY

from mpsfleet.slurm import json_nodes, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

SLURMS_WITHOUT_JSON = ("20.11.", "22.05.")
COMPARED = [key for key in nodes.Node.__dataclass_fields__ if key != "state"]


@pytest.fixture
def busy(fleet: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with a node in each situation that a site knows."""
    fleet.cluster.submit("sleep 60", "--gres=mps:50", "--nodelist=n1")
    fleet.wait_for("a job")
    fleet.drain("n1", "mpsfleet: gpu-lost gpu1")
    fleet.drain("n2", "first line\nsecond  line [root@2026-01-01T00:00:00]")
    fleet.cluster.must("ctl", "scontrol", "update", "NodeName=n3", "Comment=a b=c State=DOWN")
    fleet.cluster.exec("ctl", ("scontrol", "update", "NodeName=n3", 'Extra={"a": "b c"}'))  # not known to 20.11
    fleet.cluster.must("ctl", "scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=replacing a PSU")
    yield fleet
    fleet.cluster.must("ctl", "scontrol", "update", "NodeName=n4", "State=RESUME")
    fleet.cluster.must("ctl", "scontrol", "update", "NodeName=n3", "Comment=")
    fleet.cluster.exec("ctl", ("scontrol", "update", "NodeName=n3", "Extra="))
    fleet.undrain("n1")
    fleet.undrain("n2")
    end = time.monotonic() + 20
    while fleet.cluster.node_state("n4") != "IDLE" and time.monotonic() < end:
        time.sleep(0.2)


@pytest.mark.smoke
def test_text_and_json_of_this_slurm_give_equal_values(busy: Fleet) -> None:
    version = busy.cluster.must("ctl", "scontrol", "--version")
    option = json_nodes.option_for(version)
    if option is None:
        assert version.split()[1].startswith(SLURMS_WITHOUT_JSON)
        pytest.skip(f"{version.strip()} has no scontrol --json")

    text = nodes.parse(busy.cluster.must("ctl", "scontrol", "--details", "show", "nodes"))
    answer = json_nodes.parse(busy.cluster.must("ctl", "scontrol", option, "show", "nodes"), utc)

    assert (text.problems, answer.table.problems, answer.errors) == ((), (), ())
    assert len(text.nodes) == len(answer.table.nodes) == 4
    for one, other in zip(text.nodes, answer.table.nodes):
        assert (one.state.base, one.state.flags) == (other.state.base, other.state.flags)
        assert {key: getattr(one, key) for key in COMPARED} == {key: getattr(other, key) for key in COMPARED}


def utc(seconds: int) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


@pytest.mark.smoke
def test_the_program_reads_this_slurm_without_a_word_on_standard_error(busy: Fleet) -> None:
    program = busy.cluster.lab.root("ctl") / "root" / "mpsfleet.pyz"
    program.write_bytes((REPOSITORY / "build" / "mpsfleet.pyz").read_bytes())
    done = busy.cluster.exec("ctl", ("python3", "-W", "error", "-IS", "/root/mpsfleet.pyz", "slurm", "nodes", "--json"))
    program.unlink()

    assert (done.returncode, done.stderr) == (0, "")
    read = {each["node"]: each for each in json.loads(done.stdout)["nodes"]}
    assert [(each["drained"], each["has_jobs"], each["ours"]) for each in read.values()] == [
        (False, True, True),
        (True, False, False),
        (False, False, False),
        (False, False, False),
    ]
    assert read["n4"]["base"] == "DOWN"
    assert read["n1"]["reason"] == "mpsfleet: gpu-lost gpu1"
    assert [each["count"] for each in read["n1"]["gres"]] == [4, 400]
