"""What a site can get wrong is answered by one clear sentence, and never by a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

BINARY = "/usr/bin/nvidia-cuda-mps-control"


@pytest.fixture
def without(fleet: Fleet) -> Iterator[Fleet]:
    """Provide the fleet with a door to hide programs of n2, which come back after the test."""
    yield fleet
    script = 'for f in /usr/bin/*.hidden; do [ -e "$f" ] && mv "$f" "${f%.hidden}"; done; true'
    fleet.cluster.must("n2", "sh", "-c", script)


def hide(fleet: Fleet, path: str) -> None:
    fleet.cluster.must("n2", "mv", path, f"{path}.hidden")


def test_a_missing_nvidia_package_is_named_by_deploy_and_audit(without: Fleet) -> None:
    hide(without, BINARY)

    deploy = without.play("deploy_mps", limit="n2", mps_gpus_expected=4)
    audit = without.play("check_mps_health", limit="n2")

    for play in (deploy, audit):
        assert play.rc != 0
        assert f"NVIDIA's control program {BINARY} is not installed" in play.out
        assert "Debian: nvidia-cuda-mps" in play.out
        assert "Traceback" not in play.out


def test_a_path_over_87_characters_is_refused_with_its_length(fleet: Fleet) -> None:
    path = "/run/" + "x" * 83

    play = fleet.play("deploy_mps", limit="n2", mps_ipc_dir=path)

    assert play.rc != 0
    assert "pipe_directory has 88 characters; the daemon's sockets allow 87" in play.out
    assert "Traceback" not in play.out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "pipe_directroy = '/run/x'",
            'node.toml, line 3: unknown key "pipe_directroy" in [mps]; did you mean pipe_directory?',
        ),
        ("active_thread_percentage = 0", "must be a number above 0 and at most 100, not 0"),
        ("active_thread_percentage = ", "it is not valid TOML"),
    ],
)
def test_a_mistake_in_node_toml_is_named_and_the_old_file_stays(fleet: Fleet, line: str, sentence: str) -> None:
    before = fleet.cluster.must("n2", "cat", "/etc/mpsfleet/node.toml")

    done = fleet.cluster.exec(
        "n2", ("mpsfleet", "node", "apply", "--config", "-"), stdin=f"schema = 1\n[mps]\n{line}\n"
    )
    audit = fleet.cluster.exec(
        "n2", ("mpsfleet", "node", "audit", "--config", "-"), stdin=f"schema = 1\n[mps]\n{line}\n"
    )

    assert (done.returncode, audit.returncode) == (3, 3)
    assert sentence in done.stderr
    assert sentence in audit.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    assert fleet.cluster.must("n2", "cat", "/etc/mpsfleet/node.toml") == before


def test_a_percentage_out_of_range_is_refused_by_the_playbook(fleet: Fleet) -> None:
    play = fleet.play("deploy_mps", limit="n2", mps_active_thread_percentage=150)

    assert play.rc != 0
    assert "at most 100" in play.out
    assert "Traceback" not in play.out


def test_no_scontrol_on_the_node_is_named(without: Fleet) -> None:
    without.drain("n2", "mpsfleet: reset")
    hide(without, "/usr/bin/scontrol")

    done = without.cluster.exec("n2", ("mpsfleet", "node", "reset"))

    assert done.returncode == 75
    assert "scontrol is not installed on this node" in done.stdout
    assert "slurm-client" in done.stdout


def test_no_scontrol_on_the_controller_is_named_and_the_local_results_come(fleet: Fleet) -> None:
    fleet.cluster.must("ctl", "mv", "/usr/bin/scontrol", "/usr/bin/scontrol.hidden")
    try:
        play = fleet.play("check_mps_health")
    finally:
        fleet.cluster.must("ctl", "mv", "/usr/bin/scontrol.hidden", "/usr/bin/scontrol")

    assert play.rc != 0
    assert "scontrol" in play.out
    assert "n[1-4]" in play.out
    assert "Traceback" not in play.out


def test_an_ordinary_user_is_told_to_use_root(fleet: Fleet) -> None:
    done = fleet.cluster.exec("n2", ("/usr/sbin/mpsfleet", "node", "audit"), user="alice")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "mpsfleet: `mpsfleet node audit` must run as root; run it with sudo\n"


@pytest.mark.parametrize(
    "words", [("node", "audt"), ("node", "audit", "--jsno"), ("nood",), ("slurm", "drain"), ("node", "reset", "--x")]
)
def test_wrong_words_are_answered_by_one_line_and_64(fleet: Fleet, words: tuple[str, ...]) -> None:
    done = fleet.cluster.exec("n2", ("mpsfleet", *words))

    assert done.returncode == 64
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
