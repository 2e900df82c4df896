"""Which node a report is about, where node.toml does not say it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node.audit import audit
from mpsfleet.node.host import Host
from mpsfleet.node.probe import short_name

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.uname().nodename.partition(".")[0]


def under(root: Path, hostname: str | None) -> Host:
    (root / "etc").mkdir()
    if hostname is not None:
        (root / "etc/hostname").write_text(hostname)
    return Host.at(str(root))


@pytest.mark.parametrize("hostname", ["n1\n", "n1.cluster.example\n"])
def test_under_a_root_it_is_the_one_of_its_own_hostname_file(tmp_path: Path, hostname: str) -> None:
    assert short_name(under(tmp_path, hostname)) == "n1"


@pytest.mark.parametrize("hostname", [None, "", "\n", "# none yet\n", "n1\nn2\n", "n[1-2]\n", "\x1b[31mn1\n", "ALL\n"])
def test_a_root_without_a_name_is_called_by_this_machines(tmp_path: Path, hostname: str | None) -> None:
    assert short_name(under(tmp_path, hostname)) == HERE


def test_of_this_machine_the_kernel_is_asked() -> None:
    assert short_name(Host()) == HERE


def test_a_node_without_node_toml_is_called_by_its_name(tmp_path: Path) -> None:
    assert audit(under(tmp_path, "n1\n")).node == "n1"
