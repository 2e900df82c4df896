"""Public cases about a node's GPUs and their daemons: whose number is whose, and where a daemon is found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.node import daemon, hooks, instances, probe, recording, slurm_order, topology
from mpsfleet.node.cards import Card
from mpsfleet.node.desired import DEFAULT_DIRECTORY, SOCKET_PATH_LIMIT, Desired, parse
from mpsfleet.node.host import Host
from mpsfleet.node.model import Gpu, Gpus, Unreadable
from mpsfleet.node.probe import mps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cases.conftest import Row

LONGEST_SOCKET = 107  # bytes of sun_path without its end (unix(7))
WORDS = st.sampled_from(["run", "x", "nvidia-mps", "node", "0", "mps_0", "log", "y" * 30])
PATHS = st.lists(WORDS, min_size=1, max_size=5).map(lambda words: "/" + "/".join(words))


def card(index: int, uuid: str = "", minor: int = -1) -> Card:
    return Card(index, uuid or f"GPU-{index}", minor, f"00000000:{index:02X}:00.0", "NVIDIA A100")


def configured(row: Row) -> Desired:
    desired = Desired(daemons=row["daemons"], mps_gpus=tuple(row.get("selected", ())))
    return desired._replace(pipe_directory=row.get("configured", desired.pipe_directory))


def test_a_job_gets_the_gpu_that_slurm_means(choose: Row) -> None:
    cards = tuple(card(number, uuid, minor) for number, (uuid, minor) in enumerate(choose["minors"].items()))
    order = slurm_order.understand(f"slurmd: {choose['slurmd']}\n")
    known = () if isinstance(order, Unreadable) else order
    assert [each.uuid for each in hooks.choose(cards, known, tuple(choose["indices"]))] == choose["uuids"]


def test_minor_numbers_come_from_the_driver(minors: Row, tmp_path: Path) -> None:
    for bus, (uuid, minor) in minors["files"].items():
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA A100\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text, encoding="utf-8")
    assert topology.minors(Host(str(tmp_path))) == minors["found"]


def test_a_gpu_is_known_by_its_class_on_the_bus(on_the_bus: Row, tmp_path: Path) -> None:
    for number, word in enumerate(on_the_bus["classes"]):
        folder = tmp_path / "sys/bus/pci/devices" / f"0000:3b:00.{number}"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n", encoding="utf-8")
        (folder / "class").write_text(f"{word}\n", encoding="utf-8")
    assert probe._has_nvidia_device(Host(str(tmp_path))) is on_the_bus["is_gpu"]


def test_everybody_is_told_the_pipe_directory(pipe_directory: Row) -> None:
    desired = configured(pipe_directory)
    cards = instances.assign(desired, (card(0, minor=0),))
    (instance,) = instances.of(desired, cards)
    name, directory = "CUDA_MPS_PIPE_DIRECTORY", pipe_directory["directory"]
    assert dict(daemon.environment(Host(), instance))[name] == directory
    assert dict(hooks.exports(desired, cards, cards))[name] == directory
    asked = mps.command("/usr/bin/nvidia-cuda-mps-control", 5, b"get_server_list\n", 1.0)
    assert (dict(asked.environment)[name], asked.keep_fd) == ("/proc/self/fd/5", 5)


def test_gpus_that_meet_a_daemon_not_theirs_are_named(caught: Row) -> None:
    desired = configured(caught)
    said = instances.caught(desired, instances.assign(desired, tuple(card(each) for each in range(3))))
    assert len(said) == ("others" in caught)
    assert caught.get("others", "") in " ".join(said)


def test_node_toml_tells_what_cannot_work(node_toml: Row) -> None:
    lines = [f'daemons = "{node_toml["daemons"]}"' if "daemons" in node_toml else "", node_toml.get("text", "")]
    if "pipe_length" in node_toml:
        lines.append(f'pipe_directory = "{"/run/".ljust(node_toml["pipe_length"], "x")}"')
    _, mistakes = parse("\n".join(("schema = 1", "[mps]", *lines)))
    assert len(mistakes) == ("mistake" in node_toml)
    assert node_toml.get("mistake", "") in " ".join(map(str, mistakes))


def test_a_deploy_refuses_what_driver_and_gpus_cannot_do(deploy: Row) -> None:
    desired, mistakes = parse(f"schema = 1\n[mps]\n{deploy['text']}\n")
    assert mistakes == ()
    row = Gpu("0", "GPU-0", "00000000:3B:00.0", deploy["model"], deploy["driver"], "Default", "16384 MiB", "[N/A]")
    found = recording.find(desired, Gpus((row,), "ok", rc=0, driver=deploy["driver"]), {"GPU-0": 0}, ())
    assert (found.problem is not None) == ("refused" in deploy)
    assert deploy.get("refused", "") in str(found.problem)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["node", "gpu"]), PATHS, PATHS, st.sets(st.integers(0, 9999), min_size=1, max_size=3))
def test_directories_that_are_taken_fit_and_do_not_meet(daemons: str, pipe: str, log: str, indices: set[int]) -> None:
    text = f'schema = 1\n[mps]\ndaemons = "{daemons}"\npipe_directory = "{pipe}"\nlog_directory = "{log}"\n'
    desired, mistakes = parse(text)
    if mistakes:
        return
    found = instances.of(desired, instances.assign(desired, tuple(card(each) for each in indices)))
    pipes = [each.pipe_directory for each in found]
    assert len(set(pipes)) == len(found) == (1 if daemons == "node" else len(indices))
    assert all(len(os.fsencode(f"{each}/control_privileged")) - 1 < LONGEST_SOCKET for each in pipes)
    assert all(len(each) <= SOCKET_PATH_LIMIT for each in pipes)
    assert not any(f"{each.log_directory}/".startswith(f"{one}/") for each in found for one in pipes)
    assert instances.caught(desired, ()) == () or DEFAULT_DIRECTORY in pipes


@settings(max_examples=100, deadline=None)
@given(
    st.permutations(range(6)),
    st.permutations(range(6)),
    st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True),
)
def test_a_choice_is_joined_by_minor_and_never_by_index(
    minors: list[int], order: list[int], indices: list[int]
) -> None:
    cards = tuple(card(index, minor=minor) for index, minor in enumerate(minors))
    chosen = hooks.choose(cards, tuple(order), tuple(indices))
    assert [each.minor for each in chosen] == ([order[each] for each in indices] if max(indices) < len(order) else [])
