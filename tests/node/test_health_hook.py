"""The health check on a node under a temporary root: what Slurm is told, when, and what is done of its own accord."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpsfleet.errors import MpsfleetError
from mpsfleet.node import health_check, health_state, hook_files
from mpsfleet.node.files import HEAL
from mpsfleet.node.health_state import REFRESH_S, State
from mpsfleet.node.host import Host, journal
from mpsfleet.slurm import publication
from mpsfleet.slurm.publication import Entry, Publication

SOURCE = Path(__file__).parents[2] / "src"
TOLD = {"SLURMD_NODENAME": "n1"}
MISSING = Entry("directory-missing", "critical", "either")
SCONTROL = """\
#!/bin/sh
cd "$(dirname "$0")/../../slurm" || exit 9
echo "$*" >> calls
[ -e hung ] && exec sleep 30
[ -e down ] && { echo "slurm_load_node error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
if [ "$1" = show ]; then
    printf 'NodeName=%s Arch=x86_64 CoresPerSocket=1 \\n   State=IDLE ThreadsPerCore=1\\n' "$3"
    for each in Comment Extra; do [ -s $each ] && printf '   %s=%s\\n' $each "$(cat $each)"; done
    echo
    exit 0
fi
field="${3%%=*}"
[ -e $field.unknown ] && { echo "Update of this parameter is not supported: $3" >&2; echo "Request aborted" >&2; exit 1; }
printf '%s' "${3#*=}" > "$field"
"""
MISMATCH = """\
#!/bin/sh
echo "Failed to initialize NVML: Driver/library version mismatch"
exit 18
"""
LOGS = """\
#!/bin/sh
here="$(dirname "$0")/../.."
echo "$*" >> "$here/$(basename "$0").calls"
[ -e "$here/$(basename "$0").fails" ] && { echo "it failed" >&2; exit 2; }
exit 0
"""


class Node:
    """A node under a root, with stand-ins for Slurm's, systemd's and our own program."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.chmod(0o755)
        for each in ("run/systemd/system", "etc/mpsfleet", "usr/bin", "usr/sbin", "slurm", "proc"):
            (root / each).mkdir(parents=True)
        self.program("usr/bin/scontrol", SCONTROL)
        self.program("usr/bin/systemctl", LOGS)
        self.program("usr/sbin/mpsfleet", LOGS)
        self.program("usr/bin/nvidia-cuda-mps-control", LOGS)
        self.configure("")
        self.host = Host.at(str(root))

    def program(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)
        (self.root / path).chmod(0o755)

    def configure(self, of_slurm: str) -> None:
        path = self.root / "etc/mpsfleet/node.toml"
        path.write_text(f"schema = 1\n[slurm]\n{of_slurm}")
        path.chmod(0o644)

    def fall_ill(self) -> None:
        """Let the node have a driver, and so be one that lacks its MPS directories."""
        (self.root / "proc/driver/nvidia").mkdir(parents=True)

    def check(self, environment: dict[str, str] = TOLD) -> None:
        health_check.run(self.host, environment, 50.0)

    def calls(self, path: str = "slurm/calls") -> list[str]:
        """Return what a stand-in was called with since this was asked last."""
        try:
            said = (self.root / path).read_text().splitlines()
            (self.root / path).unlink()
        except FileNotFoundError:
            return []
        return said

    def told(self, field: str = "Extra") -> Publication | None:
        try:
            return publication.parse((self.root / "slurm" / field).read_text())
        except FileNotFoundError:
            return None

    @property
    def state(self) -> State:
        return health_state.read(self.host)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(health_check, "MOST_DELAY_S", 0.0)
    return Node(tmp_path)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sentences: list[str] = []
    monkeypatch.setattr(journal, "say", sentences.append)
    return sentences


def test_a_node_that_is_well_tells_so_three_times_and_then_asks_slurm_nothing(node: Node) -> None:
    for seen in (1, 2, 3):
        node.check()
        found = node.told()
        assert found is not None
        assert (found.verdict, found.seen, found.entries) == ("ok", seen, ())
        assert [each.split()[0] for each in node.calls()] == ["show", "update"]

    for _ in range(5):
        node.check()

    assert node.calls() == []
    assert node.state.now is not None
    assert node.state.now.seen == 8


def test_a_change_is_told_and_the_count_begins_anew(node: Node) -> None:
    for _ in range(4):
        node.check()
    node.fall_ill()
    node.check()

    found = node.told()
    assert found is not None
    assert (found.verdict, found.seen) == ("critical", 1)
    assert MISSING in found.entries


def test_after_six_hours_slurm_is_told_again(node: Node) -> None:
    for _ in range(4):
        node.check()
    node.calls()
    state = node.state
    assert state.published is not None
    old = state.published._replace(time=state.published.time - REFRESH_S - 1801)
    health_state.keep(node.host, state._replace(published=old))

    node.check()

    assert [each.split()[0] for each in node.calls()] == ["show", "update"]


def test_what_slurm_could_not_be_told_is_told_by_the_next_check(node: Node, said: list[str]) -> None:
    (node.root / "slurm/down").touch()
    node.check()
    node.check()

    assert len(said) == 2
    assert "Unable to contact slurm controller" in said[0]
    assert node.calls() == ["show node n1"] * 2
    (node.root / "slurm/down").unlink()
    node.check()

    found = node.told()
    assert found is not None
    assert found.seen == 3


def test_a_text_of_somebody_elses_stays_and_is_spoken_of_once(node: Node, said: list[str]) -> None:
    (node.root / "slurm/Extra").write_text("rack 7")
    for _ in range(6):
        node.check()

    assert (node.root / "slurm/Extra").read_text() == "rack 7"
    why = "the Extra of node n1 is somebody else's text, which stays, so Slurm is not told how the node is"
    assert said == [f"hook health-check: {why}"]
    assert node.calls() == ["show node n1"] * 3
    (node.root / "slurm/Extra").unlink()
    node.fall_ill()
    node.check()
    assert node.told() is not None


def test_a_slurm_without_extra_is_told_by_the_comment(node: Node) -> None:
    (node.root / "slurm/Extra.unknown").touch()

    node.check()
    node.check()

    found = node.told("Comment")
    assert found is not None
    assert found.seen == 2


def test_a_comment_of_somebody_elses_stays_on_a_slurm_without_extra(node: Node, said: list[str]) -> None:
    (node.root / "slurm/Extra.unknown").touch()
    (node.root / "slurm/Comment").write_text("ours? no")

    node.check()

    assert (node.root / "slurm/Comment").read_text() == "ours? no"
    assert "the Comment of node n1" in said[0]


@pytest.mark.parametrize(
    ("of_slurm", "environment", "why"),
    [
        ("", {}, "SLURMD_NODENAME is not the name of one node (empty)"),
        ("", {"SLURMD_NODENAME": "n[1-4]"}, "is not the name of one node"),
        ("", {"SLURMD_NODENAME": "ALL"}, "is not the name of one node"),
        ('node_name = "n2"\n', TOLD, "slurmd calls this node n1 and node.toml n2"),
    ],
)
def test_a_name_that_is_not_certain_is_told_nothing_of(
    node: Node, of_slurm: str, environment: dict[str, str], why: str
) -> None:
    node.configure(of_slurm)

    with pytest.raises(MpsfleetError) as raised:
        node.check(environment)

    assert why in str(raised.value)
    assert node.calls() == []


@pytest.mark.parametrize("of_slurm", ["publish = false\n", "enabled = false\n"])
def test_where_it_is_not_wanted_slurm_is_told_nothing(node: Node, of_slurm: str) -> None:
    node.configure(of_slurm)

    node.check()

    assert node.calls() == []
    assert json.loads((node.root / "run/mpsfleet/report.json").read_text())["verdict"] == "ok"


def test_a_wrong_configuration_is_told_as_a_finding(node: Node) -> None:
    (node.root / "etc/mpsfleet/node.toml").write_text("schema = 7\nown_drain = true\n")

    for _ in range(4):
        node.check()

    found = node.told()
    assert found is not None
    assert (found.verdict, found.entries) == ("unknown", (Entry("configuration-invalid", "unknown", "node"),))
    assert node.calls("mpsfleet.calls") == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"now": 1}', "[" * 60_000, "x" * 70_000])
def test_a_state_that_is_not_as_written_is_as_none(node: Node, content: str) -> None:
    node.check()
    node.check()
    (node.root / "run/mpsfleet/health.json").write_text(content)

    node.check()

    assert node.state.now is not None
    assert node.state.now.seen == 1


def test_a_link_in_the_place_of_the_state_is_not_followed(node: Node, tmp_path: Path) -> None:
    node.check()
    bait = tmp_path / "bait"
    bait.write_text("bait")
    path = node.root / "run/mpsfleet/health.json"
    path.unlink()
    path.symlink_to(bait)

    node.check()

    assert bait.read_text() == "bait"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_state_that_others_can_write_is_as_none(node: Node) -> None:
    node.check()
    (node.root / "run/mpsfleet/health.json").chmod(0o666)

    assert node.state == State()


def test_daemons_are_put_right_by_the_unit_only_where_it_is_asked_for_and_not_again_at_once(node: Node) -> None:
    node.fall_ill()
    node.check()
    assert f"start --no-block {HEAL}" not in node.calls("systemctl.calls")
    node.configure("own_reset = true\n")

    for _ in range(3):
        node.check()

    assert node.calls("systemctl.calls").count(f"start --no-block {HEAL}") == 1
    health_state.keep(node.host, node.state._replace(reset_at=int(time.time()) - 601))
    node.check()
    assert node.calls("systemctl.calls").count(f"start --no-block {HEAL}") == 1


def test_what_a_reset_does_not_mend_starts_no_unit(node: Node) -> None:
    node.fall_ill()
    (node.root / "usr/bin/nvidia-cuda-mps-control").unlink()  # mps-package-missing
    node.configure("own_reset = true\n")

    node.check()

    assert f"start --no-block {HEAL}" not in node.calls("systemctl.calls")


@pytest.fixture
def failing(node: Node) -> Node:
    """Provide a node with something critical that is its own: libraries of another version than the driver."""
    node.fall_ill()
    node.program("usr/bin/nvidia-smi", MISMATCH)
    node.configure('own_drain = true\ncluster = "lab"\n')
    return node


def test_a_node_drains_itself_at_the_third_check_and_once(failing: Node) -> None:
    for drained in ([], [], ["slurm drain n1 --code driver-mismatch --cluster lab"], [], []):
        failing.check()
        assert failing.calls("mpsfleet.calls") == drained


def test_a_drain_that_did_not_come_about_is_tried_again(failing: Node, said: list[str]) -> None:
    (failing.root / "mpsfleet.fails").touch()

    for _ in range(4):
        failing.check()

    assert len(failing.calls("mpsfleet.calls")) == 2
    assert said[-1] == "hook health-check: node n1 is not drained by itself for driver-mismatch: it failed"


@pytest.mark.parametrize(
    ("of_slurm", "environment"),
    [("", TOLD), ("own_drain = true\n", {**TOLD, "SLURM_NODE_IS_HEALTHY": "no"})],
)
def test_no_node_drains_itself_unasked_or_when_it_is_out_of_service(
    failing: Node, of_slurm: str, environment: dict[str, str]
) -> None:
    failing.configure(of_slurm)

    for _ in range(4):
        failing.check(environment)

    assert failing.calls("mpsfleet.calls") == []


def test_what_can_be_a_users_doing_drains_no_node(node: Node) -> None:
    node.fall_ill()
    node.configure("own_drain = true\n")

    for _ in range(4):
        node.check()

    assert node.state.now is not None
    assert {each.origin for each in node.state.now.entries if each.severity == "critical"} == {"either"}
    assert node.calls("mpsfleet.calls") == []


def test_the_hours_between_two_publications_differ_by_the_name_alone() -> None:
    found = {health_state.jitter_s(f"n{each}") for each in range(100)}

    assert len(found) > 90
    assert all(0 <= each <= 1800 for each in found)
    assert health_state.jitter_s("n1") == health_state.jitter_s("n1")


# As a process of its own, and the shell around it


SCRIPT = "import sys; sys.path.insert(0, {source!r}); from mpsfleet.{what}; {call}"


def process(node: Node, call: str, what: str = "cli import main", **more: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(source=str(SOURCE), what=what, call=call)
    return subprocess.run(
        (sys.executable, "-IS", "-c", script, "--root", str(node.root), "node", "hook", "health-check"),
        env={**TOLD, **more}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


def test_a_steady_check_loads_nothing_dear_and_prints_nothing(node: Node) -> None:
    for _ in range(4):
        node.check()

    done = process(node, "print(main(), *sys.modules)")

    status, *loaded = done.stdout.split()
    assert (status, done.stderr) == ("0", "")
    dear = {"argparse", "subprocess", "dataclasses", "concurrent.futures", "logging", "asyncio", "pathlib", "tomllib"}
    assert set(loaded) & dear == set()
    assert "mpsfleet.node.publishing" not in loaded


def test_a_check_that_takes_too_long_ends_with_0_and_one_sentence(node: Node) -> None:
    (node.root / "slurm/hung").touch()
    call = f"hooks.HEALTH_LIMIT_S = 6.0; sys.exit(hooks.main(['health-check'], {str(node.root)!r}))"
    begun = time.monotonic()

    done = process(node, call, "node import hooks")

    assert done.returncode == 0
    assert time.monotonic() - begun < 10
    assert done.stderr.startswith("mpsfleet: hook health-check: ")
    assert node.state.now is not None  # kept before Slurm was asked


def test_the_kill_switch_stops_the_check(node: Node) -> None:
    (node.root / "etc/mpsfleet/off").touch()

    done = process(node, "sys.exit(main())")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert node.calls() == []
    assert not (node.root / "run/mpsfleet").exists()


def test_a_file_in_the_place_of_our_directory_is_one_sentence(node: Node) -> None:
    (node.root / "run/mpsfleet").write_text("")

    done = process(node, "sys.exit(main())")

    assert done.returncode == 0
    assert done.stderr.startswith("mpsfleet: hook health-check: ")
    assert done.stderr.count("\n") == 1
    assert node.calls() == []


def test_the_shell_passes_on_two_variables_and_ends_with_0(tmp_path: Path) -> None:
    called, program, script = (tmp_path / each for each in ("called", "mpsfleet", "hook.sh"))
    (text,) = (each.content.decode() for each in hook_files.owned() if each.path == hook_files.HEALTH_CHECK)
    program.write_text(f'#!/bin/sh\n{{ echo "$*"; /usr/bin/env; }} > {called}\nexit 7\n')
    script.write_text(text.replace("/usr/sbin/mpsfleet", str(program)).replace("/etc/mpsfleet/off", f"{tmp_path}/off"))
    for each in (program, script):
        each.chmod(0o755)
    hostile = {**TOLD, "SLURM_NODE_IS_HEALTHY": "$(reboot)", "LD_AUDIT": "", "PYTHONPATH": "/x"}

    done = subprocess.run((str(script),), env=hostile, check=False, timeout=20)

    words, *variables = called.read_text().splitlines()
    names = {each.partition("=")[0] for each in variables} - {"PWD", "_", "SHLVL"}  # the stand-in's own shell
    assert (done.returncode, words) == (0, "node hook health-check")
    assert names == {"SLURMD_NODENAME", "SLURM_NODE_IS_HEALTHY"}
    assert os.path.exists(called)
    called.unlink()
    (tmp_path / "off").touch()
    assert subprocess.run((str(script),), env=TOLD, check=False, timeout=20).returncode == 0
    assert not called.exists()
