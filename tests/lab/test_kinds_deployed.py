"""Four kinds of node deployed by group_vars alone; after each step every node is compared with a declared truth."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mpsfleet.node.desired import Desired, Share, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from conftest import Cluster
    from fleet import Fleet, Play

# What a site writes: n1 has four GPUs under MPS, n2 two of its four, n3 one daemon for the node, n4 has no GPU.
GROUPS = "[four]\nn1\n[mixed]\nn2\n[single]\nn3\n"
GPU_NODES = "mps_daemons: gpu\nmps_gpus: [A100]\nmps_drain_wait_s: 20\n"
FOUR = "mps_shares:\n  - {gpus: [3], active_thread_percentage: 25, pinned_memory_limit: 512M}\n"
MIXED = "mps_compute_mode: exclusive_process\n"
SINGLE = "mps_daemons: node\nmps_gpus: all\n"

ALWAYS = """\
f 644 /etc/logrotate.d/mpsfleet
d 755 /etc/mpsfleet
f 644 /etc/mpsfleet/gpus.json
f 644 /etc/mpsfleet/node.toml
f 644 /etc/sysusers.d/mpsfleet.conf
f 644 /etc/tmpfiles.d/mpsfleet.conf
d 700 /run/mpsfleet
d 755 /run/nvidia-mps
d 755 /tmp/nvidia-mps
d 755 /usr/lib/mpsfleet
d 755 /usr/lib/mpsfleet/VERSION
f 755 /usr/lib/mpsfleet/VERSION/mpsfleet
d 755 /usr/lib/mpsfleet/hooks
f 755 /usr/lib/mpsfleet/hooks/epilog.sh
f 755 /usr/lib/mpsfleet/hooks/health_check.sh
f 755 /usr/lib/mpsfleet/hooks/prolog.sh
f 755 /usr/lib/mpsfleet/hooks/task_prolog.sh
l 777 /usr/sbin/mpsfleet
d 755 /var/log/nvidia-mps
"""
SYSTEMD = "/etc/systemd/system"
OF_RECORD = f"""\
f 644 {SYSTEMD}/nvidia-mps-setup.service
l 777 {SYSTEMD}/multi-user.target.wants/nvidia-mps-setup.service
"""
PER_DAEMON = f"""\
l 777 {SYSTEMD}/multi-user.target.wants/UNIT
d 755 PIPE
s 666 PIPE/control
f 600 PIPE/control_lock
s 755 PIPE/control_privileged
p 622 PIPE/log
f 600 PIPE/nvidia-cuda-mps-control.pid
d 755 LOG
f 600 LOG/control.log
"""
FIND = (
    "find /etc /usr/lib /usr/sbin /run /tmp /var/log -xdev -regex '.*/[^/]*\\(mpsfleet\\|nvidia-mps\\).*' "
    "! -path '/run/systemd/*' ! -path '/run/mpsfleet/*' ! -name '*.log.*' ! -name server.log -printf '%y %m %u %p\\n'"
)
NO_DRIVER = "cannot communicate with the NVIDIA driver"
SMI = ("nvidia-smi", "--query-gpu=index,uuid,compute_mode", "--format=csv,noheader")


class Truth(NamedTuple):
    """What one node should be. Daemons by name ("node" or the GPU's index) with the indices of the GPUs they serve."""

    daemons: Mapping[str, tuple[int, ...]]
    pipe: str = "/run/nvidia-mps/{}"
    exclusive: tuple[int, ...] = ()  # GPUs in compute mode Exclusive_Process
    has_setup: bool = True  # the unit that finds the GPUs at the first boot of an image

    def files(self) -> set[str]:
        lines = ALWAYS + (OF_RECORD if self.has_setup else "")
        template = "nvidia-mps.service" if "node" in self.daemons else "nvidia-mps@.service"
        lines += f"f 644 {SYSTEMD}/{template}\n"
        for name in self.daemons:
            log = "/var/log/nvidia-mps" + ("" if name == "node" else f"/{name}")
            one = PER_DAEMON.replace("UNIT", unit(name)).replace("PIPE", self.pipe.format(name)).replace("LOG", log)
            lines += one
        return set(lines.splitlines())


def unit(name: str) -> str:
    return "nvidia-mps.service" if name == "node" else f"nvidia-mps@{name}.service"


class Seen(NamedTuple):
    """What one node is: files (kind, mode, path), daemons with the GPUs they were told, compute modes."""

    files: set[str]
    daemons: dict[str, tuple[int, ...]]
    exclusive: tuple[int, ...]


EVERY = {str(each): (each,) for each in range(4)}
TRUTH = {
    "n1": Truth(EVERY),
    "n2": Truth({"0": (0,), "1": (1,)}, exclusive=(0, 1)),
    "n3": Truth({"node": ()}, has_setup=False),
}
# What node.toml says, where it is not the default.
ASKED = Desired(daemons="gpu", mps_gpus=("A100",))
FILE = {
    "n1": ASKED._replace(shares=(Share((3,), 25.0, 512),), gpus_expected=4),
    "n2": ASKED._replace(compute_mode="exclusive_process", gpus_expected=4),
    "n3": Desired(gpus_expected=1),
}
RECORD = {  # index, minor number, daemon
    "n1": [(0, 0, "0"), (1, 1, "1"), (2, 2, "2"), (3, 3, "3")],
    "n2": [(0, 2, "0"), (1, 3, "1"), (2, 0, ""), (3, 1, "")],
    "n3": [(0, 0, "node")],
}


def look(cluster: Cluster, node: str) -> Seen:
    """Look at a node with the node's own tools. All files of ours must be root's, and no daemon runs beside a unit."""
    found = cluster.exec(node, ("sh", "-c", FIND)).stdout.splitlines()
    strangers = [each for each in found if each.split()[2] != "root"]
    assert strangers == []
    gpus = [row.split(", ") for row in cluster.exec(node, SMI).stdout.splitlines()]
    index = {uuid: int(number) for number, uuid, _ in gpus}
    daemons, pids = {}, []
    for name in ("node", "0", "1", "2", "3"):
        pid = main_pid(cluster, node, name)
        if not pid:
            continue
        pids.append(str(pid))
        told = cluster.must(node, "sh", "-c", f"tr '\\0' '\\n' < /proc/{pid}/environ")
        visible = dict(re.findall(r"(\w+)=(.*)", told)).get("CUDA_VISIBLE_DEVICES", "")
        daemons[name] = tuple(index[each] for each in visible.split(",") if each)
    assert sorted(cluster.exec(node, ("pgrep", "-x", "nvidia-cuda-mps")).stdout.split()) == sorted(pids)
    files = {re.sub(r"(/usr/lib/mpsfleet/)[^/]+-[0-9a-f]{12}", r"\1VERSION", each) for each in found}
    exclusive = tuple(int(number) for number, _, mode in gpus if mode == "Exclusive_Process")
    return Seen({each.replace(" root ", " ", 1) for each in files}, daemons, exclusive)


def main_pid(cluster: Cluster, node: str, name: str) -> int:
    return int(cluster.exec(node, ("systemctl", "show", "-p", "MainPID", "--value", unit(name))).stdout or 0)


def pids(cluster: Cluster, node: str) -> dict[str, int]:
    return {name: main_pid(cluster, node, name) for name in TRUTH[node].daemons}


def is_as_declared(fleet: Fleet, node: str, truth: Truth) -> None:
    """Assert that files, daemons, GPUs and units of a node are the declared ones, and that it is well and in service."""
    seen = look(fleet.cluster, node)
    wanted = truth.files()
    assert {each for each in seen.files if each in wanted or "/var/log/" not in each} == wanted  # old logs stay
    assert (seen.daemons, seen.exclusive) == (truth.daemons, truth.exclusive)
    names = [unit(each) for each in truth.daemons]
    enabled = fleet.cluster.exec(node, ("systemctl", "is-enabled", *names)).stdout.split()
    assert enabled == ["enabled"] * len(names)
    fleet.well(node)


def changed(play: Play) -> list[int]:
    return [play.recap(node)["changed"] for node in ("n1", "n2", "n3", "n4")]


class Site(NamedTuple):
    """The fleet with an inventory of its own."""

    fleet: Fleet
    inventory: Path

    def write(self, group: str, text: str) -> None:
        (self.inventory / "group_vars" / f"{group}.yml").write_text(text, encoding="ascii")

    def play(self, playbook: str, *words: str, limit: str = "", **variables: Any) -> Play:
        return self.fleet.play(playbook, *words, limit=limit, inventory=self.inventory, **variables)

    def declared(self) -> None:
        for node, truth in TRUTH.items():
            is_as_declared(self.fleet, node, truth)


def write_all(site: Site) -> None:
    for group, text in (("gpu_nodes", GPU_NODES), ("four", FOUR), ("mixed", MIXED), ("single", SINGLE)):
        site.write(group, text)


def made_site(fleet: Fleet, folder: Path) -> Site:
    """Make an inventory with the group_vars of all kinds in a folder."""
    (folder / "group_vars").mkdir()
    (folder / "hosts").write_text(fleet.cluster.inventory.read_text("utf-8"), "utf-8")
    (folder / "kinds").write_text(GROUPS, "ascii")
    site = Site(fleet, folder)
    write_all(site)
    return site


@pytest.fixture(scope="module")
def bare_site(kinds_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Provide the inventory and its group_vars; nothing is deployed, and nothing is left afterwards."""
    site = made_site(kinds_fleet, tmp_path_factory.mktemp("inventory"))
    yield site
    site.play("remove_mps")


@pytest.fixture(scope="module")
def site(bare_site: Site) -> Site:
    """Provide the site with all deployed."""
    play = bare_site.play("deploy_mps")
    assert (play.rc, changed(play)) == (0, [1, 1, 1, 0]), play.out
    return bare_site


@pytest.fixture
def restored(site: Site) -> Iterator[None]:
    """Make the site again as declared after a test that writes other group_vars."""
    yield
    write_all(site)
    play = site.play("deploy_mps", mps_drain_to_change=True)
    assert play.rc == 0, play.out


def test_check_mode_on_bare_nodes_says_what_a_deploy_would_do_and_does_nothing(bare_site: Site) -> None:
    def files() -> list[set[str]]:
        return [look(bare_site.fleet.cluster, node).files - {"d 700 /run/mpsfleet"} for node in TRUTH]  # with a lock

    before = files()

    play = bare_site.play("deploy_mps", "--check", "--diff")

    assert (play.rc, changed(play)) == (0, [1, 1, 1, 0]), play.out
    for part in ('+daemons = "gpu"', '+mps = ["A100"]', "+[[share]]", "start nvidia-mps@3.service: it is inactive"):
        assert part in play.out
    assert "n4: this node has no NVIDIA GPU, so nothing is deployed on it" in play.out
    assert files() == before


@pytest.mark.smoke
def test_a_deploy_makes_each_kind_of_node_what_is_declared_and_a_second_one_changes_nothing(site: Site) -> None:
    cluster = site.fleet.cluster
    site.declared()
    for node, rows in RECORD.items():
        text = cluster.must(node, "cat", "/etc/mpsfleet/node.toml")
        assert parse(text) == (FILE[node]._replace(node_name=node), ())
        record = json.loads(cluster.must(node, "cat", "/etc/mpsfleet/gpus.json"))
        assert [(each["index"], each["minor"], each["instance"]) for each in record["gpus"]] == rows
    assert look(cluster, "n4").files <= {"d 700 /run/mpsfleet"}  # with a lock
    for words in ((), ("--check", "--diff")):
        play = site.play("deploy_mps", *words)
        assert (play.rc, changed(play)) == (0, [0, 0, 0, 0]), play.out
        assert play.recap("n4")["skipped"] > 0
    assert site.play("check_mps_health").rc == 0


def ask(site: Site, gpu: str, words: str) -> str:
    command = f"echo {words} | CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/{gpu} nvidia-cuda-mps-control"
    return site.fleet.cluster.must("n1", "sh", "-c", command).strip()


@pytest.mark.smoke
@pytest.mark.usefixtures("restored")
def test_a_change_of_a_share_is_in_effect_without_a_restart(site: Site) -> None:
    before = pids(site.fleet.cluster, "n1")
    assert [ask(site, each, "get_default_active_thread_percentage") for each in ("0", "3")] == ["100.0", "25.0"]

    site.write("four", FOUR.replace("25", "40").replace("512M", "1G"))
    play = site.play("deploy_mps")

    assert (play.rc, changed(play)) == (0, [1, 0, 0, 0]), play.out
    assert [ask(site, each, "get_default_active_thread_percentage") for each in ("0", "3")] == ["100.0", "40.0"]
    assert ask(site, "3", "get_default_device_pinned_mem_limit 0").startswith(("1G", "Unknown command"))
    assert pids(site.fleet.cluster, "n1") == before
    site.declared()


@pytest.mark.usefixtures("restored")
def test_a_directory_is_changed_only_on_a_node_that_may_be_drained_for_it(site: Site) -> None:
    cluster, fleet = site.fleet.cluster, site.fleet
    before = {node: pids(cluster, node) for node in TRUTH}
    moved = GPU_NODES + "mps_ipc_dir: /tmp/nvidia-mps\n"
    site.write("gpu_nodes", moved)

    planned = site.play("deploy_mps", "--check", mps_serial="100%", mps_drain_to_change=True)
    refused = site.play("deploy_mps", limit="n2")
    fleet.drain("n1", "maintenance")
    left_alone = site.play("deploy_mps", limit="n1", mps_drain_to_change=True)
    drains = [fleet.reason(node).partition(" [")[0] for node in TRUTH]
    fleet.undrain("n1")

    assert planned.rc == 0, planned.out
    assert "To be stopped, for which the node is drained first: nvidia-mps@0.service" in planned.out
    assert refused.rc != 0
    assert "node n2 is IDLE, not drained; drain it first" in refused.out
    assert (
        "nvidia-mps@1.service (it serves /run/nvidia-mps/1, not /tmp/nvidia-mps_1). All else was done." in refused.out
    )
    assert left_alone.rc != 0
    assert drains == ["maintenance", "", ""]
    assert {node: pids(cluster, node) for node in TRUTH} == before

    play = site.play("deploy_mps", mps_drain_to_change=True)

    assert play.rc == 0, play.out
    for node, truth in TRUTH.items():
        pipe = "/tmp/nvidia-mps" + ("" if node == "n3" else "_{}")  # the article's directory
        is_as_declared(fleet, node, truth._replace(pipe=pipe))
    assert changed(site.play("deploy_mps")) == [0, 0, 0, 0]
    site.write("gpu_nodes", GPU_NODES)
    play = site.play("deploy_mps", mps_drain_to_change=True)
    assert play.rc == 0, play.out
    site.declared()


@pytest.mark.usefixtures("restored")
def test_a_gpu_is_taken_under_mps_in_service_and_left_alone_again_on_a_drained_node(site: Site) -> None:
    before = pids(site.fleet.cluster, "n2")
    site.write("mixed", MIXED + "mps_gpus: all\n")
    play = site.play("deploy_mps", limit="n2")

    assert play.rc == 0, play.out
    is_as_declared(site.fleet, "n2", Truth(EVERY, exclusive=(0, 1, 2, 3)))
    assert pids(site.fleet.cluster, "n2") == before

    site.write("mixed", MIXED)
    refused = site.play("deploy_mps", limit="n2")
    assert refused.rc != 0
    assert "drain it first" in refused.out
    play = site.play("deploy_mps", limit="n2", mps_drain_to_change=True)
    assert play.rc == 0, play.out
    assert pids(site.fleet.cluster, "n2") == before
    site.declared()


@pytest.mark.smoke
@pytest.mark.usefixtures("restored")
def test_daemons_of_the_gpus_become_one_of_the_node_and_back(site: Site) -> None:
    site.write("gpu_nodes", GPU_NODES.replace("mps_daemons: gpu", "mps_daemons: node"))
    site.write("four", "mps_pinned_memory_limit: 8G\n")
    play = site.play("deploy_mps", mps_drain_to_change=True)

    assert play.rc == 0, play.out
    is_as_declared(site.fleet, "n1", Truth({"node": (0, 1, 2, 3)}))
    is_as_declared(site.fleet, "n2", Truth({"node": (0, 1)}, exclusive=(0, 1)))
    site.write("gpu_nodes", GPU_NODES)
    site.write("four", FOUR)
    play = site.play("deploy_mps", mps_drain_to_change=True)
    assert play.rc == 0, play.out
    site.declared()


@pytest.mark.smoke
def test_after_a_reboot_everything_is_back_before_slurmd_registers(site: Site) -> None:
    cluster = site.fleet.cluster
    for node in TRUTH:
        cluster.reboot(node)
    for node, truth in TRUTH.items():
        cluster.exec(node, ("systemctl", "is-system-running", "--wait"), timeout=120)
        until_idle(cluster, node)
        since = [moment(cluster, node, each) for each in (*map(unit, truth.daemons), "slurmd.service")]
        assert 0 < max(since[:-1]) <= since[-1]
    site.declared()
    play = site.play("deploy_mps")
    assert (play.rc, changed(play)) == (0, [0, 0, 0, 0]), play.out


def until_idle(cluster: Cluster, node: str) -> None:
    end = time.monotonic() + 60
    while cluster.node_state(node) != "IDLE" and time.monotonic() < end:
        time.sleep(0.3)


def moment(cluster: Cluster, node: str, name: str) -> int:
    """Return when a unit was last active, in microseconds since boot."""
    return int(cluster.must(node, "systemctl", "show", "-p", "ActiveEnterTimestampMonotonic", "--value", name))


def test_a_reset_passes_a_node_without_gpus_by_and_can_be_of_one_gpu(site: Site) -> None:
    before = pids(site.fleet.cluster, "n1")

    one = site.play("reset_mps", limit="n1,n4", mps_reset_gpus=[1])
    after = pids(site.fleet.cluster, "n1")
    wrong = site.play("reset_mps", limit="n1", mps_reset_gpus=[7])

    assert one.rc == 0, one.out
    assert "n4: this node has no NVIDIA GPU, so there is nothing to reset" in one.out
    assert [name for name in before if before[name] != after[name]] == ["1"]
    assert wrong.rc != 0
    assert "this node has no control daemon of its own for GPU 7; it has: 0, 1, 2, 3" in wrong.out
    assert pids(site.fleet.cluster, "n1") == after
    site.declared()


def test_a_gpu_in_mig_mode_is_refused_in_one_sentence(site: Site) -> None:
    site.fleet.cluster.break_("n2", "mig", gpu=0)
    play = site.play("deploy_mps", limit="n2")
    site.fleet.cluster.mend("n2")

    assert play.rc != 0
    assert "GPU 0 is in MIG mode, which mpsfleet does not serve; leave it out of [gpus] mps (mps_gpus)" in play.out


@pytest.mark.smoke
def test_removal_leaves_nothing_but_logs_and_a_driver_that_is_not_loaded_is_named(site: Site) -> None:
    cluster = site.fleet.cluster
    play = site.play("remove_mps")

    assert play.rc == 0, play.out
    for node in TRUTH:
        seen = look(cluster, node)
        left = {each for each in seen.files if "/var/log/nvidia-mps" not in each}
        assert left <= {"d 700 /run/mpsfleet", "d 755 /run/nvidia-mps"}
        assert (seen.daemons, seen.exclusive) == ({}, ())
        assert (cluster.node_state(node), site.fleet.reason(node)) == ("IDLE", "")
    assert changed(site.play("remove_mps")) == [0, 0, 0, 0]

    cluster.break_("n2", "driver-not-loaded")
    play = site.play("deploy_mps", limit="n2")
    cluster.mend("n2")
    assert play.rc != 0
    assert f"they cannot be read: it {NO_DRIVER}" in play.out
    assert look(cluster, "n2").daemons == {}
