"""Prepare: whatever lies at the pipe or log directory, afterwards it is root's own, and nothing outside has changed.

Run as the developer's own user under a temporary root: `owner_uid` stands for root. Real other users are in tests/lab.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mpsfleet.errors import MpsfleetError, Refused
from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host, files
from mpsfleet.node.instances import of
from mpsfleet.node.prepare import clear, prepare

(INSTANCE,) = of(Desired(), None)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    root = tmp_path / "n1"
    (root / "run").mkdir(parents=True)
    (root / "var/log").mkdir(parents=True)
    for each in (root, root / "run", root / "var", root / "var/log"):
        each.chmod(0o755)
    return Host(str(root), owner_uid=os.getuid(), owner_gid=os.getgid())


@pytest.fixture
def bait(tmp_path: Path) -> Path:
    """Make a tree that links lead to; its `state` must not change."""
    tree = tmp_path / "bait"
    tree.mkdir(mode=0o700)
    (tree / "control").write_text("precious")
    (tree / "control.log").write_text("precious")
    (tree / "secret").write_text("precious")
    (tree / "secret").chmod(0o600)
    return tree


def state(tree: Path) -> list[tuple[str, int, int, str]]:
    return [
        (
            str(each.relative_to(tree)),
            each.lstat().st_mode,
            each.lstat().st_mtime_ns,
            each.read_text() if each.is_file() else "",
        )
        for each in sorted([tree, *tree.rglob("*")])
    ]


class Stand:
    """The host's files, with some calls answered by the test."""

    def __init__(self, **calls: Any) -> None:
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(files, name)


def pipe(host: Host) -> Path:
    return Path(host.path(INSTANCE.pipe_directory))


def log(host: Host) -> Path:
    return Path(host.path(INSTANCE.log_directory))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_on_a_fresh_node_both_directories_are_made(host: Host) -> None:
    changes = prepare(host, (INSTANCE,))

    assert mode(pipe(host)) == mode(log(host)) == mode(pipe(host).parent) == 0o755
    assert mode(pipe(host) / "control_lock") == 0o600
    assert mode(pipe(host) / "nvidia-cuda-mps-control.pid") == 0o600
    assert {each.action for each in changes} == {"create"}


def test_twice_changes_nothing(host: Host) -> None:
    prepare(host, (INSTANCE,))

    assert prepare(host, (INSTANCE,)) == ()


def test_the_umask_of_the_caller_does_not_matter(host: Host) -> None:
    before = os.umask(0o077)
    try:
        prepare(host, (INSTANCE,))
    finally:
        os.umask(before)

    assert mode(pipe(host)) == 0o755


@pytest.mark.parametrize("wrong", [0o777, 0o1777, 0o700])
def test_a_mode_is_put_right_before_the_left_overs_go(host: Host, wrong: int) -> None:
    pipe(host).mkdir(parents=True)
    (pipe(host) / "control").write_text("")
    pipe(host).chmod(wrong)

    changes = prepare(host, (INSTANCE,))

    assert [each.action for each in changes[:2]] == ["chmod", "remove"]
    assert mode(pipe(host)) == 0o755
    assert not (pipe(host) / "control").exists()


def test_a_link_at_the_name_is_replaced_and_not_followed(host: Host, bait: Path) -> None:
    before = state(bait)
    pipe(host).parent.mkdir()
    pipe(host).symlink_to(bait)

    prepare(host, (INSTANCE,))

    assert not pipe(host).is_symlink()
    assert mode(pipe(host)) == 0o755
    assert state(bait) == before


def test_a_dangling_link_is_replaced(host: Host, tmp_path: Path) -> None:
    pipe(host).parent.mkdir()
    pipe(host).symlink_to(tmp_path / "later")

    prepare(host, (INSTANCE,))

    assert pipe(host).is_dir()
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize(
    "name", ["control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid"]
)
def test_a_link_at_a_daemons_name_is_removed_and_not_followed(host: Host, bait: Path, name: str) -> None:
    before = state(bait)
    pipe(host).mkdir(parents=True)
    (pipe(host) / name).symlink_to(bait / "secret")

    prepare(host, (INSTANCE,))

    assert not (pipe(host) / name).is_symlink()
    assert state(bait) == before


@pytest.mark.parametrize("name", ["control.log", "server.log"])
def test_a_link_at_a_logs_name_is_set_aside_and_not_followed(host: Host, bait: Path, name: str) -> None:
    before = state(bait)
    log(host).mkdir(parents=True)
    (log(host) / name).symlink_to(bait / "control.log")

    prepare(host, (INSTANCE,))

    assert not (log(host) / name).exists()
    assert state(bait) == before


def test_a_log_with_a_second_name_is_set_aside(host: Host, bait: Path) -> None:
    log(host).mkdir(parents=True)
    os.link(bait / "control.log", log(host) / "control.log")

    prepare(host, (INSTANCE,))

    assert not (log(host) / "control.log").exists()
    assert (bait / "control.log").read_text() == "precious"


def test_a_log_is_kept(host: Host) -> None:
    log(host).mkdir(parents=True)
    (log(host) / "control.log").write_text("yesterday\n")

    prepare(host, (INSTANCE,))

    assert (log(host) / "control.log").read_text() == "yesterday\n"


def test_a_huge_log_is_set_aside_and_not_deleted(host: Host) -> None:
    log(host).mkdir(parents=True)
    with (log(host) / "control.log").open("wb") as stream:
        stream.truncate(17 << 20)

    prepare(host, (INSTANCE,))

    assert [each.name.startswith("control.log.old-") for each in log(host).iterdir()] == [True]


def test_a_directory_at_a_daemons_name_is_set_aside_with_its_content(host: Host) -> None:
    (pipe(host) / "control/deep").mkdir(parents=True)

    prepare(host, (INSTANCE,))

    (aside,) = (each for each in pipe(host).iterdir() if each.is_dir())
    assert aside.name.startswith("control.foreign-")
    assert (aside / "deep").is_dir()


def test_a_name_that_comes_and_goes_is_taken_once_there_is_a_moment_for_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's answers to a name that is there at one step and gone at the next, fifty times, then true ones."""
    lost = iter(range(50))

    def gone(at: int, name: str) -> int:
        if name == pipe(host).name and next(lost, None) is not None:
            raise FileNotFoundError
        return files.open_directory(at, name)

    def taken(at: int, name: str, mode: int = 0o755) -> None:
        if name == pipe(host).name and next(lost, None) is not None:
            raise FileExistsError
        files.make_directory(at, name, mode)

    with monkeypatch.context() as patch:
        patch.setattr("mpsfleet.node.prepare.files", Stand(open_directory=gone, make_directory=taken))
        prepare(host, (INSTANCE,))

    assert mode(pipe(host)) == 0o755
    assert next(lost, None) is None


def test_a_name_that_never_stays_is_said_after_a_while(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(at: int, name: str) -> int:
        if name == pipe(host).name:
            raise FileNotFoundError
        return files.open_directory(at, name)

    def taken(at: int, name: str, mode: int = 0o755) -> None:
        if name == pipe(host).name:
            raise FileExistsError
        files.make_directory(at, name, mode)

    with monkeypatch.context() as patch:
        patch.setattr("mpsfleet.node.prepare.files", Stand(open_directory=never, make_directory=taken))
        with pytest.raises(MpsfleetError, match="somebody keeps replacing it"):
            prepare(host, (INSTANCE,))


def test_what_is_not_the_daemons_is_left_and_told(host: Host) -> None:
    pipe(host).mkdir(parents=True)
    (pipe(host) / "notes").write_text("mine")

    changes = prepare(host, (INSTANCE,))

    assert (pipe(host) / "notes").read_text() == "mine"
    assert ("leave", f"{INSTANCE.pipe_directory}/notes") in {(each.action, each.what) for each in changes}


def test_of_very_many_foreign_names_the_first_are_told_and_the_rest_counted(host: Host) -> None:
    pipe(host).mkdir(parents=True)
    for number in range(1000):
        (pipe(host) / f"x{number:04}").touch()

    changes = prepare(host, (INSTANCE,))

    left = [each for each in changes if each.action == "leave"]
    assert len(left) == 21
    assert left[-1].detail == "980 more names that are not MPS's"


@pytest.mark.parametrize("parent", ["run", "var/log"])
def test_a_parent_that_others_can_write_is_refused(host: Host, parent: str) -> None:
    Path(host.root, parent).chmod(0o777)

    with pytest.raises(Refused, match="others can replace what lies in it"):
        prepare(host, (INSTANCE,))


def test_a_sticky_parent_is_accepted(host: Host) -> None:
    Path(host.root, "run").chmod(0o1777)

    prepare(host, (INSTANCE,))

    assert pipe(host).is_dir()


def test_a_link_above_is_refused_and_not_followed(host: Host, bait: Path) -> None:
    before = state(bait)
    pipe(host).parent.symlink_to(bait)

    with pytest.raises(Refused, match="/run/nvidia-mps is a link"):
        prepare(host, (INSTANCE,))

    assert state(bait) == before


def test_clearing_takes_the_directory_away(host: Host) -> None:
    prepare(host, (INSTANCE,))

    clear(host, INSTANCE.pipe_directory)

    assert not pipe(host).exists()


def test_clearing_leaves_what_is_not_the_daemons(host: Host) -> None:
    prepare(host, (INSTANCE,))
    (pipe(host) / "notes").write_text("mine")

    clear(host, INSTANCE.pipe_directory)

    assert [each.name for each in pipe(host).iterdir()] == ["notes"]
