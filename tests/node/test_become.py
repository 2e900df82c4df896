"""What becomes the control daemon: its words and its environment are the configured ones, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BINARY = "usr/bin/nvidia-cuda-mps-control"
STAND_IN = """\
#!/bin/sh
echo "words: $*"
env
"""
BECOME = """\
import os, sys
from mpsfleet.node import daemon, instances
from mpsfleet.node.desired import parse
from mpsfleet.node.host import Host
desired, mistakes = parse("schema = 1\\n[mps]\\n" + sys.argv[2])
assert not mistakes, mistakes
(instance,) = instances.of(desired, None)
daemon.become(Host(sys.argv[1], "/proc", os.geteuid(), os.getegid()), desired, instance)
"""


def become(root: Path, text: str) -> tuple[str, set[str]]:
    """Return the words and the names of the variables that the stand-in was started with."""
    (root / "usr/bin").mkdir(parents=True)
    (root / BINARY).write_text(STAND_IN, encoding="ascii")
    (root / BINARY).chmod(0o755)
    (root / "var/log/nvidia-mps").mkdir(parents=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": "/x"}
    subprocess.run((sys.executable, "-c", BECOME, str(root), text), check=True, timeout=30, env=environment)
    words, *variables = (root / "var/log/nvidia-mps/control.log").read_text(encoding="utf-8").splitlines()
    names = {each.partition("=")[0] for each in variables} - {"PWD", "_", "SHLVL", "OLDPWD"}  # the shell's own
    return words, {each for each in names if not each.startswith(("LANG", "LC_", "PATH", "HOME"))}


@pytest.mark.parametrize(
    ("text", "words", "more"),
    [
        ("", "words: -f", set()),
        ("multi_user = true", "words: -f -multiuser-server", {"MPSFLEET_MULTI_USER"}),
    ],
)
def test_the_daemon_is_started_with_what_is_configured(text: str, words: str, more: set[str], tmp_path: Path) -> None:
    always = {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}

    assert become(tmp_path, text) == (words, always | more)
