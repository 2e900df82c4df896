"""Files of ours: exact modes whatever the umask, published whole or not at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node.host import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def tight_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_every_directory_made_has_its_mode(tmp_path: Path) -> None:
    files.ensure_directory(str(tmp_path / "a/b"), 0o755)

    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b")) == (0o755, 0o755)


def test_a_file_is_published_whole_and_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("old")

    files.publish(str(path), b"new", 0o644)

    assert (path.read_text(), mode(path)) == ("new", 0o644)
    assert [each.name for each in tmp_path.iterdir()] == ["node.toml"]


def test_publishing_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "name").symlink_to(tmp_path / "target")

    files.publish(str(tmp_path / "name"), b"new", 0o644)

    assert (tmp_path / "target").read_text() == "precious"
    assert (tmp_path / "name").read_text() == "new"


def test_a_link_or_a_fifo_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")

    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=r"."):
            files.read(str(tmp_path / name))


def test_a_file_beyond_the_cap_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 11)

    with pytest.raises(OSError, match="larger than 10 bytes"):
        files.read(str(tmp_path / "big"), 10)
