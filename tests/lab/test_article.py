"""The article's own names and the situations in which hand-written playbooks go wrong, each with what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet import Fleet

ARTICLE = """\
mps_control_bin: "/usr/bin/nvidia-cuda-mps-control"
mps_ipc_dir: "/tmp/nvidia-mps"
mps_log_dir: "/var/log/nvidia-mps"
mps_active_thread_percentage: {percentage}
"""
IMPORTS = "- import_playbook: mpsfleet.mps.{name}\n"


def site(fleet: Fleet, tmp_path: Path, percentage: int = 100) -> Path:
    """Make a site as the article has it: its inventory, its group_vars, and playbooks that import ours."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/gpu_nodes.yml").write_text(ARTICLE.format(percentage=percentage))
    for name in ("deploy_mps", "check_mps_health", "reset_mps"):
        (tmp_path / f"{name}.yml").write_text(IMPORTS.format(name=name))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(fleet.cluster.inventory.read_text())
    return inventory


def test_a_site_of_the_article_switches_by_what_it_imports(fleet: Fleet, tmp_path: Path) -> None:
    inventory = site(fleet, tmp_path)
    run = {name: str(tmp_path / f"{name}.yml") for name in ("deploy_mps", "check_mps_health", "reset_mps")}
    try:
        # the daemon as the article leaves it: started by hand, in a directory of mode 0777
        fleet.drain("n3", "mpsfleet: reset")
        fleet.cluster.must("n3", "mpsfleet", "node", "remove")
        fleet.undrain("n3")
        by_hand = "mkdir -m 0777 /tmp/nvidia-mps; chmod 0777 /tmp/nvidia-mps; CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps nvidia-cuda-mps-control -d"
        fleet.cluster.must("n3", "sh", "-c", by_hand)

        first = fleet.play(run["check_mps_health"], inventory=inventory, limit="n3", trigger_drain="true")
        assert first.rc != 0
        assert "pipe directory /tmp/nvidia-mps has mode 0777: others can write in it" in first.out
        assert fleet.reason("n3") == ""

        deploy = fleet.play(run["deploy_mps"], inventory=inventory, limit="n3")
        assert "was not started by nvidia-mps.service" in deploy.out
        reset = fleet.play(run["reset_mps"], inventory=inventory, limit="n3")
        assert reset.rc == 0, reset.out
        audit = fleet.play(run["check_mps_health"], inventory=inventory, limit="n3")
        assert audit.rc == 0, audit.out
        assert fleet.cluster.must("n3", "stat", "-c", "%a %U", "/tmp/nvidia-mps").strip() == "755 root"
        assert fleet.main_pid("n3") > 0
    finally:
        fleet.drain("n3", "mpsfleet: reset")
        fleet.cluster.must("n3", "mpsfleet", "node", "remove")
        fleet.undrain("n3")
        assert fleet.play("deploy_mps", limit="n3", mps_gpus_expected=4).rc == 0


def test_a_lowered_percentage_is_tampering_and_any_user_cannot_drain_the_cluster(fleet: Fleet) -> None:
    for node in fleet.cluster.nodes:
        fleet.cluster.break_(node, "percentage-tampered")

    audit = fleet.play("check_mps_health", trigger_drain=True)
    restored = fleet.play("deploy_mps", mps_gpus_expected=4)

    assert "it was changed on the running daemon, which drivers up to 535 allow any user" in audit.out
    assert {fleet.reason(node) for node in fleet.cluster.nodes} == {""}
    assert restored.rc == 0, restored.out
    fleet.well(*fleet.cluster.nodes)


def test_a_deleted_directory_is_critical_and_the_unreachable_daemon_is_found_and_replaced(fleet: Fleet) -> None:
    fleet.cluster.break_("n2", "directory-deleted")
    lost = fleet.main_pid("n2")

    audit = fleet.play("check_mps_health", limit="n2", trigger_drain=True)
    assert "the control daemon is alive, but its files" in audit.out
    assert fleet.reason("n2").startswith("mpsfleet: daemon-unreachable")
    assert fleet.reset("n2").rc == 0

    fleet.well("n2")
    assert fleet.cluster.exec("n2", ("kill", "-0", str(lost))).returncode != 0


def test_a_replaced_control_is_critical_though_root_gets_answers_and_is_put_right(fleet: Fleet) -> None:
    fleet.cluster.break_("n2", "control-swapped")

    audit = fleet.play("check_mps_health", limit="n2", trigger_drain=True)
    assert audit.rc != 0
    assert "/run/nvidia-mps/node/control is served by a process of user" in audit.out
    assert fleet.reason("n2") == ""
    assert fleet.reset("n2").rc == 0

    fleet.well("n2")


def test_a_stopped_daemon_is_critical_for_its_node_and_the_others_are_reported_in_time(fleet: Fleet) -> None:
    sound = fleet.play("check_mps_health")
    fleet.cluster.break_("n2", "daemon-stopped")

    audit = fleet.play("check_mps_health")

    assert audit.rc != 0
    assert "is stopped (SIGSTOP)" in audit.out
    assert "n[1,3-4]" in audit.out
    assert audit.seconds < sound.seconds + 5


def test_a_percentage_configured_as_50_is_well_at_50(fleet: Fleet) -> None:
    assert fleet.play("deploy_mps", limit="n2", mps_gpus_expected=4, mps_active_thread_percentage=50).rc == 0

    audit = fleet.play("check_mps_health", limit="n2")

    assert audit.rc == 0, audit.out
    assert fleet.play("deploy_mps", limit="n2", mps_gpus_expected=4).rc == 0


def test_0755_is_well_and_what_others_can_write_is_critical(fleet: Fleet) -> None:
    verdicts = {}
    for mode in ("0755", "1777", "0777"):
        fleet.cluster.must("n2", "chmod", mode, "/run/nvidia-mps/node")
        verdicts[mode] = (fleet.audit("n2")[0]["verdict"], fleet.codes("n2"))

    assert verdicts == {
        "0755": ("ok", set()),
        "1777": ("critical", {"directory-mode"}),
        "0777": ("critical", {"directory-mode"}),
    }


def test_an_inventory_name_that_is_not_slurms_is_mapped_and_drains_the_right_node(fleet: Fleet, tmp_path: Path) -> None:
    text = fleet.cluster.inventory.read_text()
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(text.replace("\nn2 ", "\ngpu-b.example.org mps_slurm_node_name=n2 "))
    fleet.cluster.break_("n2", "daemon-stopped")

    audit = fleet.play("check_mps_health", inventory=inventory, trigger_drain=True, mps_drain_after=1)

    assert audit.rc != 0
    assert fleet.reason("n2").startswith("mpsfleet: daemon-wedged")
    assert [fleet.reason(node) for node in ("n1", "n3", "n4")] == ["", "", ""]


def test_an_inventory_name_that_slurm_does_not_know_drains_nothing_and_says_so(fleet: Fleet, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(fleet.cluster.inventory.read_text().replace("\nn2 ", "\ngpu-b.example.org "))
    fleet.cluster.break_("n2", "daemon-stopped")

    audit = fleet.play("check_mps_health", inventory=inventory, trigger_drain=True)

    assert audit.rc != 0
    assert "mps_slurm_node_name" in audit.out
    assert {fleet.reason(node) for node in fleet.cluster.nodes} == {""}
