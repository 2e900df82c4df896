"""A node that is deployed without its systemd running, as an image is, and one that is stopped for work on the driver."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from test_a_deploy import take_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

PER_GPU = 'schema = 1\n[mps]\ndaemons = "gpu"\n[gpus]\nexpected = 4\n'
# As in an image that is being made: the node's own tree, seen without a running systemd.
WITHOUT_SYSTEMD = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh")
UNITS = [f"nvidia-mps@{each}.service" for each in range(4)]


@pytest.fixture
def bare(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with n4 bare, and deployed as all others afterwards."""
    take_off(deployed, "n4")
    yield deployed
    take_off(deployed, "n4")
    assert deployed.play("deploy_mps", limit="n4", mps_gpus_expected=4).rc == 0


@pytest.fixture
def drained(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with n4 drained by us, and in service afterwards."""
    deployed.drain("n4", "mpsfleet: reset")
    yield deployed
    deployed.undrain("n4")


def states(fleet: Fleet, *units: str) -> list[str]:
    return fleet.cluster.exec("n4", ("systemctl", "is-active", *units)).stdout.split()


def until_settled(fleet: Fleet) -> None:
    """Wait until nothing is starting any more after a reboot."""
    fleet.cluster.exec("n4", ("systemctl", "is-system-running", "--wait"), timeout=120)
    end = time.monotonic() + 60
    while fleet.cluster.node_state("n4") not in ("IDLE", "IDLE+DRAIN") and time.monotonic() < end:
        time.sleep(0.3)


def test_an_image_is_deployed_and_its_first_boot_starts_a_daemon_for_each_gpu_before_slurmd(bare: Fleet) -> None:
    send_program(bare)

    done = bare.cluster.exec(
        "n4", (*WITHOUT_SYSTEMD, "python3", "/root/m.pyz", "node", "apply", "--config", "-"), stdin=PER_GPU
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "systemd does not run here" in done.stdout
    again = bare.cluster.exec("n4", (*WITHOUT_SYSTEMD, "mpsfleet", "node", "apply"))
    assert "nothing to apply" in again.stdout
    assert bare.cluster.exec("n4", ("test", "-e", "/etc/mpsfleet/gpus.json")).returncode == 1

    bare.cluster.reboot("n4")
    until_settled(bare)

    assert states(bare, *UNITS) == ["active"] * 4
    assert bare.audit("n4")[0]["verdict"] == "ok"
    record = json.loads(bare.cluster.must("n4", "cat", "/etc/mpsfleet/gpus.json"))
    assert [each["instance"] for each in record["gpus"]] == ["0", "1", "2", "3"]
    since = [moment(bare, unit) for unit in (*UNITS, "slurmd.service")]
    assert max(since[:-1]) <= since[-1]
    second = bare.cluster.exec("n4", ("mpsfleet", "node", "apply"))
    assert "nothing to apply" in second.stdout


def send_program(fleet: Fleet) -> None:
    """Put the program on n4 by ssh, as an image's builder copies it."""
    archive = next(fleet.collections.glob("**/files/mpsfleet.pyz")).read_bytes()
    decode = "import sys; open('/root/m.pyz', 'wb').write(bytes.fromhex(sys.stdin.read()))"
    fleet.cluster.must("n4", "python3", "-c", decode, stdin=archive.hex())


def moment(fleet: Fleet, unit: str) -> int:
    """Return when a unit was last active, in microseconds since boot."""
    shown = fleet.cluster.must("n4", "systemctl", "show", "-p", "ActiveEnterTimestampMonotonic", "--value", unit)
    return int(shown)


def test_a_quiesced_node_stays_quiet_over_a_reboot_until_it_is_unquiesced(drained: Fleet) -> None:
    cluster = drained.cluster
    done = cluster.exec("n4", ("mpsfleet", "node", "quiesce"))
    assert done.returncode == 1, done.stdout + done.stderr  # a warning: it is not in service as MPS goes
    assert states(drained, "nvidia-mps.service") == ["inactive"]
    assert drained.codes("n4") == {"quiesced"}
    assert drained.play("check_mps_health", limit="n4", trigger_drain=True).rc == 0

    cluster.reboot("n4")
    until_settled(drained)
    assert states(drained, "nvidia-mps.service") == ["inactive"]
    assert drained.codes("n4") == {"quiesced"}
    refused = cluster.exec("n4", ("mpsfleet", "node", "reset"))
    assert (refused.returncode, "mpsfleet node unquiesce" in refused.stdout) == (75, True)

    done = cluster.exec("n4", ("mpsfleet", "node", "unquiesce"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert states(drained, "nvidia-mps.service") == ["active"]
    assert drained.audit("n4")[0]["verdict"] == "ok"


def test_a_node_in_service_is_not_quiesced(deployed: Fleet) -> None:
    refused = deployed.cluster.exec("n4", ("mpsfleet", "node", "quiesce"))

    assert (refused.returncode, "drain it first" in refused.stdout) == (75, True)
    assert states(deployed, "nvidia-mps.service") == ["active"]
