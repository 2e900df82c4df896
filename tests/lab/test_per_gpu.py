"""A daemon for each GPU: one is broken, named and reset, and the others' daemons never notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

NODE = "n3"
CONFIG = """\
schema = 1
[mps]
daemons = "gpu"
active_thread_percentage = 100
pinned_memory_limit = "8G"
[gpus]
mps = [0, 1, 3]
compute_mode = "exclusive_process"
[[share]]
gpus = [3]
active_thread_percentage = 25
pinned_memory_limit = "512M"
client_priority = 1
"""
SERVED = ("0", "1", "3")


def apply(fleet: Fleet, config: str | None = None) -> str:
    words = ("mpsfleet", "node", "apply", *(("--config", "-") if config else ()))
    done = fleet.cluster.exec(NODE, words, stdin=config or "")
    assert done.returncode in (0, 1 if fleet.unsupported else 0), done.stdout + done.stderr  # 1: the audit warns
    return done.stdout


@pytest.fixture(scope="module")
def per_gpu(deployed: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with three daemons on n3, whose GPU 2 is left alone, and n3 as it was afterwards."""
    before = deployed.cluster.must(NODE, "cat", "/etc/mpsfleet/node.toml")
    deployed.drain(NODE, "mpsfleet: reset")
    apply(deployed, CONFIG)
    deployed.undrain(NODE)
    yield deployed
    deployed.cluster.mend(NODE)
    deployed.drain(NODE, "mpsfleet: reset")
    apply(deployed, before)
    deployed.undrain(NODE)
    deployed.well(NODE)
    modes = deployed.cluster.must(NODE, "nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader")
    assert set(modes.split()) == {"Default"}, "what the deploy found is put back"
    assert "nothing to apply" in apply(deployed)


@pytest.fixture
def drained(per_gpu: Fleet) -> Iterator[Fleet]:
    per_gpu.drain(NODE, "mpsfleet: reset")
    yield per_gpu
    per_gpu.undrain(NODE)


def pids(fleet: Fleet) -> dict[str, int]:
    """Return the daemons' pids by the index of their GPU."""
    shown = {
        each: fleet.cluster.must(NODE, "systemctl", "show", "-p", "MainPID", "--value", f"nvidia-mps@{each}.service")
        for each in SERVED
    }
    return {each: int(pid) for each, pid in shown.items()}


def ask(fleet: Fleet, gpu: str, words: str) -> str:
    """Ask one GPU's daemon as root."""
    command = f"echo {words} | CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/{gpu} nvidia-cuda-mps-control"
    return fleet.cluster.must(NODE, "sh", "-c", command).strip()


def is_well(fleet: Fleet) -> bool:
    """Return whether the audit finds nothing but settings that this MPS does not know."""
    return fleet.codes(NODE) == fleet.unsupported


@pytest.mark.smoke
def test_each_gpu_under_mps_has_its_daemon_with_its_share_and_the_rest_is_left_alone(per_gpu: Fleet) -> None:
    assert is_well(per_gpu)
    assert all(pids(per_gpu).values())
    assert per_gpu.cluster.must(NODE, "ls", "/run/nvidia-mps").split() == list(SERVED)
    percentages = [ask(per_gpu, each, "get_default_active_thread_percentage") for each in SERVED]
    limits = [ask(per_gpu, each, "get_default_device_pinned_mem_limit 0") for each in SERVED]
    modes = per_gpu.cluster.must(NODE, "nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader").splitlines()
    assert percentages == ["100.0", "100.0", "25.0"]
    assert limits in (["8G", "8G", "512M"], ['Unknown command "get_default_device_pinned_mem_limit"'] * 3)  # 470
    assert modes == ["Exclusive_Process", "Exclusive_Process", "Default", "Exclusive_Process"]
    assert "nothing to apply" in apply(per_gpu)


@pytest.mark.smoke
def test_one_daemon_is_wedged_and_reset_while_the_others_serve_on(drained: Fleet) -> None:
    before = pids(drained)
    drained.cluster.must(NODE, "kill", "-STOP", str(before["1"]))

    (finding,) = (each for each in drained.audit(NODE)[0]["findings"] if each["code"] not in drained.unsupported)
    done = drained.cluster.exec(NODE, ("mpsfleet", "node", "reset", "--gpu", "1"))

    assert (finding["code"], finding["subject"]) == ("daemon-wedged", "daemon gpu1")
    assert done.returncode == bool(drained.unsupported), done.stdout + done.stderr
    after = pids(drained)
    assert after["1"] != before["1"]
    assert {each: after[each] for each in ("0", "3")} == {each: before[each] for each in ("0", "3")}
    assert is_well(drained)


def test_a_reset_of_a_gpu_without_a_daemon_is_refused_and_says_which_have_one(drained: Fleet) -> None:
    done = drained.cluster.exec(NODE, ("mpsfleet", "node", "reset", "--gpu", "2"))

    assert done.returncode == 64
    assert "this node has no control daemon of its own for GPU 2; it has: 0, 1, 3" in done.stderr


def test_sockets_of_another_gpu_at_a_gpus_name_never_let_a_reset_end_that_gpus_daemon(drained: Fleet) -> None:
    before = pids(drained)
    swap = "cd /run/nvidia-mps/1 && rm control control_privileged && ln ../0/control ../0/control_privileged ."
    drained.cluster.must(NODE, "sh", "-c", swap)

    codes = {(each["code"], each["subject"]) for each in drained.audit(NODE)[0]["findings"]}
    done = drained.cluster.exec(NODE, ("mpsfleet", "node", "reset", "--gpu", "1"))

    assert ("socket-hijacked", "/run/nvidia-mps/1/control") in codes
    assert done.returncode == bool(drained.unsupported), done.stdout + done.stderr
    assert pids(drained)["0"] == before["0"]
    assert pids(drained)["1"] != before["1"]
    assert is_well(drained)


def test_limits_that_a_restart_forgets_are_set_again_at_every_start(drained: Fleet) -> None:
    drained.cluster.must(NODE, "systemctl", "restart", "nvidia-mps@3.service")

    assert ask(drained, "3", "get_default_device_pinned_mem_limit 0").startswith(("512M", "Unknown command"))
    assert ask(drained, "3", "get_default_client_priority").startswith(("1", "Unknown command"))
    assert is_well(drained)


def test_a_priority_that_was_changed_on_the_running_daemon_is_named_and_set_again_without_a_restart(
    per_gpu: Fleet,
) -> None:
    before = pids(per_gpu)
    if ask(per_gpu, "3", "set_default_client_priority 0"):
        pytest.skip("this driver's MPS knows no priority")

    (finding,) = per_gpu.audit(NODE)[0]["findings"]
    said = apply(per_gpu)

    assert (finding["code"], finding["subject"]) == ("priority-differs", "daemon gpu3")
    assert "is 0, not the configured 1" in finding["message"]
    assert "client priority of nvidia-mps@3.service" in said
    assert is_well(per_gpu)
    assert pids(per_gpu) == before


def test_tmp_cleaning_takes_other_files_of_that_age_and_touches_nothing_of_ours(drained: Fleet) -> None:
    cluster = drained.cluster
    in_tmp = CONFIG.replace("[mps]\n", '[mps]\npipe_directory = "/tmp/nvidia-mps"\n')
    apply(drained, in_tmp)
    cluster.must(NODE, "sh", "-c", "mkdir -p /tmp/other && touch /tmp/other/file && mkfifo /tmp/other/log")
    # As after ten days: all in /tmp that is older than a second is old.
    cluster.must(NODE, "sh", "-c", "cat > /etc/tmpfiles.d/tmp.conf", stdin="q /tmp 1777 root root 1s\n")
    listing = ("sh", "-c", "find /tmp/nvidia-mps* | sort")
    before = cluster.must(NODE, *listing).split()

    cluster.must(NODE, "sh", "-c", "sleep 1.5; systemd-tmpfiles --clean")

    cluster.must(NODE, "rm", "/etc/tmpfiles.d/tmp.conf")
    after = cluster.must(NODE, *listing).split()
    assert cluster.exec(NODE, ("ls", "/tmp/other/file", "/tmp/other/log")).stdout == ""
    assert after == before
    assert {"/tmp/nvidia-mps", "/tmp/nvidia-mps_0/log", "/tmp/nvidia-mps_3/control_lock"} <= set(after)
    assert is_well(drained)
    apply(drained, CONFIG)
    assert cluster.must(NODE, *listing).split() == ["/tmp/nvidia-mps"]


def test_a_change_of_directories_waits_for_a_free_node_and_then_converges(per_gpu: Fleet) -> None:
    cluster, before = per_gpu.cluster, pids(per_gpu)
    moved = CONFIG.replace("[mps]\n", '[mps]\npipe_directory = "/run/mps"\n')

    waiting = cluster.exec(NODE, ("mpsfleet", "node", "apply", "--config", "-"), stdin=moved)
    untouched = pids(per_gpu)
    per_gpu.drain(NODE, "mpsfleet: reset")
    apply(per_gpu)
    directories = [each for each in SERVED if cluster.exec(NODE, ("test", "-S", f"/run/mps_{each}/control")).returncode]
    codes = per_gpu.codes(NODE)
    apply(per_gpu, CONFIG)
    per_gpu.undrain(NODE)

    assert waiting.returncode == 75
    assert "refused: node n3 is IDLE, not drained; drain it first" in waiting.stdout
    assert (
        "these daemons run on as they are: nvidia-mps@0.service (it serves /run/nvidia-mps/0, not /run/mps_0), "
        "nvidia-mps@1.service"
    ) in waiting.stdout
    assert untouched == before
    assert directories == []
    assert codes == per_gpu.unsupported
