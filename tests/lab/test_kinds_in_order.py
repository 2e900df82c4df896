"""Which nodes a deploy reaches and when: canary, batches, --limit, --tags; and work on the driver, node by node."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from fleet import REPOSITORY
from test_kinds_deployed import NO_DRIVER, TRUTH, Site, is_as_declared, look, made_site, pids, until_idle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet import Fleet, Play

SITES_OWN = """\
- import_playbook: mpsfleet.mps.deploy_mps
  tags: mps
- import_playbook: mpsfleet.mps.tell_slurm
  tags: slurm
- hosts: gpu_nodes
  gather_facts: false
  tags: other
  tasks:
    - debug:
"""
REBOOT = """\
- name: Boot the node
  ansible.builtin.command:
    argv: [{python}, {lab}, reboot, "{{{{ inventory_hostname }}}}"]
  environment:
    MPSFLEET_LAB_NAME: {name}
  delegate_to: localhost
  become: false
- name: Wait for it
  ansible.builtin.wait_for_connection:
"""


@pytest.fixture(scope="module")
def site(kinds_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Provide the inventory and its group_vars; what the tests deploy is taken away afterwards."""
    made = made_site(kinds_fleet, tmp_path_factory.mktemp("inventory"))
    yield made
    made.play("remove_mps")


@pytest.fixture
def bare(site: Site) -> Site:
    """Provide the site with nothing deployed."""
    play = site.play("remove_mps")
    assert play.rc == 0, play.out
    return site


@pytest.fixture
def n1_without_driver(bare: Site) -> Iterator[Site]:
    """Provide the bare site with n1's driver not loaded."""
    bare.fleet.cluster.break_("n1", "driver-not-loaded")
    yield bare
    bare.fleet.cluster.mend("n1")


def reached(play: Play) -> list[str]:
    """Return the nodes of the recap."""
    return re.findall(r"^(n\d)\s+: ok=", play.out, re.MULTILINE)


def is_bare(site: Site, *nodes: str) -> None:
    for node in nodes:
        seen = look(site.fleet.cluster, node)
        assert {each for each in seen.files if "/etc/" in each or "/usr/" in each} == set()
        assert seen.daemons == {}


def test_a_canary_that_fails_stops_the_rest(n1_without_driver: Site) -> None:
    play = n1_without_driver.play("deploy_mps")

    assert (play.rc, reached(play)) == (2, ["n1"]), play.out
    assert NO_DRIVER in play.out
    is_bare(n1_without_driver, "n2", "n3")


def test_batches_go_on_while_no_more_fail_than_are_allowed(n1_without_driver: Site) -> None:
    play = n1_without_driver.play("deploy_mps", mps_serial=2, mps_max_fail_percentage=50)

    assert (play.rc, reached(play)) == (2, ["n1", "n2", "n3", "n4"]), play.out
    assert [play.recap(node)["failed"] for node in reached(play)] == [1, 0, 0, 0]
    for node in ("n2", "n3"):
        is_as_declared(n1_without_driver.fleet, node, TRUTH[node])


def test_a_limit_touches_that_node_alone(bare: Site) -> None:
    play = bare.play("deploy_mps", limit="n3")

    assert (play.rc, reached(play)) == (0, ["n3"]), play.out
    is_as_declared(bare.fleet, "n3", TRUTH["n3"])
    is_bare(bare, "n1", "n2")


def test_each_tag_of_a_site_does_a_whole_thing_and_nothing_else(bare: Site) -> None:
    cluster = bare.fleet.cluster
    playbook = bare.inventory.parent / "site.yml"
    playbook.write_text(SITES_OWN, "ascii")
    lines = "/etc/slurm/gres-mpsfleet.conf"

    def run(tag: str, limit: str = "", **variables: object) -> Play:
        play = bare.play(str(playbook), "--tags", tag, limit=limit, **variables)
        assert play.rc == 0, play.out
        return play

    run("other")
    is_bare(bare, "n1", "n2", "n3")
    run("mps", limit="n3")
    is_as_declared(bare.fleet, "n3", TRUTH["n3"])
    assert run("mps", limit="n3").recap("n3")["changed"] == 0
    assert cluster.exec("n3", ("test", "-e", lines)).returncode == 1

    run("slurm", mps_slurm_configless=True, mps_slurm_gpu_files=["/dev/nvidia0"], mps_slurm_fail_on="never")
    written = cluster.must("ctl", "cat", lines)
    cluster.must("ctl", "rm", lines)
    assert written.count("Name=mps Count=100 File=/dev/nvidia0") == len(cluster.nodes)
    listed = bare.play("deploy_mps", "--list-tags")
    assert re.findall(r"TASK TAGS: (.*)", listed.out) == ["[always]"]  # the check of the variables, which Ansible adds


@pytest.mark.parametrize("is_configless", [False, True])
def test_a_folder_of_gres_conf_that_is_not_there_is_named(site: Site, is_configless: bool) -> None:  # noqa: FBT001  # pytest's
    play = site.play("tell_slurm", mps_slurm_gres_file="/etc/slrum/gres.conf", mps_slurm_configless=is_configless)

    assert play.rc == 2
    said = " ".join(play.out.split())
    assert f"/etc/slrum is not on {'the controller ctl' if is_configless else 'this host'}" in said
    assert "mps_slurm_gres_file" in said


def test_a_node_that_should_have_gpus_and_has_no_package_is_told_which(site: Site) -> None:
    play = site.play("deploy_mps", limit="n4", mps_gpus_expected=1)

    assert play.rc == 2
    assert "NVIDIA's control program /usr/bin/nvidia-cuda-mps-control is not installed" in play.out
    assert "Debian: nvidia-cuda-mps; Ubuntu:" in play.out


def test_a_node_outside_slurm_is_reset_without_a_drain(bare: Site) -> None:
    assert bare.play("deploy_mps", limit="n3", mps_slurm_enabled=False).rc == 0
    before = pids(bare.fleet.cluster, "n3")

    play = bare.play("reset_mps", limit="n3", mps_slurm_enabled=False)

    assert play.rc == 0, play.out
    assert pids(bare.fleet.cluster, "n3") != before
    assert "slurm_node" not in play.out
    removed = bare.play("remove_mps", limit="n3", mps_slurm_enabled=False)
    assert removed.rc == 0, removed.out
    is_bare(bare, "n3")


@pytest.fixture
def upgrade(bare: Site) -> Path:
    """Provide the playbook of the documentation on a deployed site; the work on the driver is a reboot."""
    assert bare.play("deploy_mps").rc == 0
    text = (REPOSITORY / "docs" / "how-to" / "upgrade-the-driver.md").read_text("utf-8")
    (playbook,) = re.findall(r"```yaml\n# upgrade_driver.yml\n(.*?)```", text, re.DOTALL)
    path = bare.inventory.parent / "upgrade_driver.yml"
    path.write_text(playbook, "utf-8")
    lab = bare.fleet.cluster.lab
    work = REBOOT.format(python=sys.executable, lab=REPOSITORY / "lab" / "lab", name=lab.name)
    (path.parent / "driver.yml").write_text(work, "utf-8")
    return path


def test_the_driver_is_upgraded_node_by_node_and_where_it_does_not_work_the_rest_is_left(
    bare: Site, upgrade: Path
) -> None:
    cluster, fleet = bare.fleet.cluster, bare.fleet
    before = {node: pids(cluster, node) for node in TRUTH}
    planned = bare.play(str(upgrade), "--check", limit="n2,n4")
    assert planned.rc == 0, planned.out
    assert {node: pids(cluster, node) for node in TRUTH} == before

    play = bare.play(str(upgrade), limit="n2,n4")
    assert play.rc == 0, play.out
    assert "n4: this node has no NVIDIA GPU, so there is nothing to quiesce" in play.out
    is_as_declared(fleet, "n2", TRUTH["n2"])
    assert pids(cluster, "n2") != before["n2"]

    cluster.break_("n2", "driver-not-loaded")
    fleet_before = pids(cluster, "n3")
    (upgrade.parent / "driver.yml").write_text("[]\n", "ascii")
    play = bare.play(str(upgrade), limit="n2,n3")
    assert (play.rc, reached(play)) == (2, ["n2"]), play.out
    assert NO_DRIVER in play.out
    assert fleet.reason("n2").startswith("mpsfleet: reset")
    assert fleet.codes("n2") == {"quiesced"}
    assert pids(cluster, "n3") == fleet_before

    cluster.mend("n2")
    play = bare.play(str(upgrade), limit="n2,n3")
    assert play.rc == 0, play.out
    for node in ("n2", "n3"):
        until_idle(cluster, node)
        is_as_declared(fleet, node, TRUTH[node])


def test_a_node_that_somebody_else_drained_is_not_touched_by_an_upgrade(bare: Site, upgrade: Path) -> None:
    before = pids(bare.fleet.cluster, "n3")
    bare.fleet.drain("n3", "maintenance")
    play = bare.play(str(upgrade), limit="n3")
    reason = bare.fleet.reason("n3")
    bare.fleet.undrain("n3")

    assert play.rc == 2, play.out
    assert "for another reason, which is left alone: maintenance" in play.out
    assert reason.startswith("maintenance")
    assert pids(bare.fleet.cluster, "n3") == before
