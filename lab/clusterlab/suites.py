"""Debian suites a lab can run: each brings its own Slurm, Python, systemd and MPS package."""

from __future__ import annotations

from typing import NamedTuple

from clusterlab.errors import LabError

DEFAULT_SUITE = "bookworm"


class Suite(NamedTuple):
    """What a suite's Slurm and systemd need."""

    name: str
    is_unified: bool
    """Whether its systemd wants cgroup v2 in the node (256 and later do; Slurm 22.05 refuses a hybrid host's v2)."""
    is_cgroup_plugin_disabled: bool
    """Whether slurmd is told `CgroupPlugin=disabled` (known since Slurm 23.11)."""


SUITES = (
    Suite("bullseye", is_unified=False, is_cgroup_plugin_disabled=False),
    Suite("bookworm", is_unified=False, is_cgroup_plugin_disabled=False),
    Suite("trixie", is_unified=True, is_cgroup_plugin_disabled=True),
    Suite("sid", is_unified=True, is_cgroup_plugin_disabled=True),
)


def suite_called(name: str) -> Suite:
    """Return the suite of that name; LabError names the known ones."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise LabError(f"suite {name} is not known; known are {', '.join(suite.name for suite in SUITES)}")
