"""Debian suites a lab can run: each brings its own Slurm, Python, systemd and MPS package."""

from __future__ import annotations

from typing import NamedTuple

from clusterlab.errors import LabError

DEFAULT_SUITE = "bookworm"
JOB_CONTAINER = "JobContainerType=job_container/tmpfs"
NAMESPACE = "NamespaceType=namespace/tmpfs"  # the same plugin in Slurm 26.05; its file is job_container.conf still


class Suite(NamedTuple):
    """What a suite's Slurm and systemd need."""

    name: str
    is_unified: bool
    """Whether its systemd wants cgroup v2 in the node (256 and later do; Slurm 22.05 refuses a hybrid host's v2)."""
    is_cgroup_plugin_disabled: bool
    """Whether slurmd is told `CgroupPlugin=disabled` (known since Slurm 23.11)."""
    has_shard: bool
    """Whether its Slurm knows gres/shard (22.05 and later)."""
    spreads_shards: bool
    """Whether it can prefer the GPU with most free shards (LL_SHARED_GRES, which 22.05 refuses)."""
    private_tmp: str
    """The line of slurm.conf that gives each job a /tmp of its own, "" where its Slurm has no such plugin."""


SUITES = (
    Suite(
        "bullseye",
        is_unified=False,
        is_cgroup_plugin_disabled=False,
        has_shard=False,
        spreads_shards=False,
        private_tmp="",
    ),
    Suite(
        "bookworm",
        is_unified=False,
        is_cgroup_plugin_disabled=False,
        has_shard=True,
        spreads_shards=False,
        private_tmp=JOB_CONTAINER,
    ),
    Suite(
        "trixie",
        is_unified=True,
        is_cgroup_plugin_disabled=True,
        has_shard=True,
        spreads_shards=True,
        private_tmp=JOB_CONTAINER,
    ),
    Suite(
        "sid",
        is_unified=True,
        is_cgroup_plugin_disabled=True,
        has_shard=True,
        spreads_shards=True,
        private_tmp=NAMESPACE,
    ),
)


def suite_called(name: str) -> Suite:
    """Return the suite of that name; LabError names the known ones."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise LabError(f"suite {name} is not known; known are {', '.join(suite.name for suite in SUITES)}")
