"""Packages of the host: what a lab needs installed, put there with apt when it is missing, and said so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from clusterlab.commands import must, run, search_path
from clusterlab.errors import LabError, LabUnavailableError
from clusterlab.mirror import KEYRING
from clusterlab.terminal import say

NEEDED = (
    ("debootstrap", "debootstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    (KEYRING, "debian-archive-keyring"),
)
APT_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive"}


def missing_packages() -> tuple[str, ...]:
    """Return the Debian packages whose program or file is not on this host."""
    absent = []
    for thing, package in NEEDED:
        there = Path(thing).exists() if thing.startswith("/") else shutil.which(thing, path=search_path()) is not None
        if not there and package not in absent:
            absent.append(package)
    return tuple(absent)


def ensure_host_packages() -> None:
    """Install what is missing; nothing is asked of apt when all is there.

    Raises LabUnavailableError when not root or on a host without apt, LabError when apt fails.
    """
    if os.geteuid() != 0:
        raise LabUnavailableError("a lab needs root: it mounts, makes network links and boots machines")
    absent = missing_packages()
    if not absent:
        return
    if shutil.which("apt-get", path=search_path()) is None:
        raise LabUnavailableError(f"this host has no apt-get and lacks {', '.join(absent)}")
    say(f"installing host packages: {' '.join(absent)}")
    environment = {**os.environ, **APT_ENVIRONMENT}
    install = ("apt-get", "install", "-y", "--no-install-recommends", *absent)
    if run(install, timeout_s=600, env=environment).returncode != 0:
        # A fresh machine has no package lists, or ones older than the archive.
        must(("apt-get", "update"), "updating apt's lists", timeout_s=300, env=environment)
        must(install, f"installing {' '.join(absent)}", timeout_s=600, env=environment)
    absent = missing_packages()
    if absent:
        raise LabError(f"apt installed them, but {', '.join(absent)} are still missing")
