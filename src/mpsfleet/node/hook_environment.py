"""What Slurm tells a hook by its environment: a few variables, each by a strict pattern, and nothing else. Pure.

Measured on 22.05 and 24.11. In Prolog and Epilog a job with gres/shard looks like one with a whole GPU; a job with
gres/mps has the percentage, which may be above 100 (with mps and shard on one node it is reckoned from the other's
count). In a task the sharing GRES that stands earlier in GresTypes loses SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES, and
keeps its own variable: the percentage, or SLURM_SHARDS_ON_NODE. 20.11 gives a Prolog no SLURM_JOB_GPUS, and in
CUDA_VISIBLE_DEVICES minor numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB, UID, GPUS = "SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_GPUS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
LEADER = "SLURM_HET_JOB_ID"
NODE, HEALTHY = "SLURMD_NODENAME", "SLURM_NODE_IS_HEALTHY"  # a health check has these two and no more
PERCENTAGE, SHARDS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "SLURM_SHARDS_ON_NODE"
_LAST_ID = 0xFFFFFFFF  # job numbers and uids have 32 bits
_LAST_INDEX = 1023
_LAST_COUNT = 999_999
_MOST = 256  # GPUs of a job on one node


class Told(NamedTuple):
    """What is known of a job. A number that is missing or not of its pattern is -1."""

    job: int
    uid: int
    indices: tuple[int, ...]  # Slurm's; () where they are not told or not of their pattern
    has_gpus: bool  # SLURM_JOB_GPUS is there, understood or not; or what 20.11 says
    percentage: int
    shards: int
    leader: int = -1  # the number that the tasks of a heterogeneous job's component have
    has_minors: bool = False  # the indices are CUDA_VISIBLE_DEVICES: minor numbers (20.11), places in a list later

    @property
    def gres(self) -> str:
        """The kind of GRES: "mps", "shard" (only a task can tell), "gpu" for a whole GPU or a shard, or "" for none."""
        if self.percentage > 0:
            return "mps"
        if self.shards > 0:
            return "shard"
        return "gpu" if self.has_gpus else ""


def understand(environment: Mapping[str, str]) -> Told:
    """Read the environment of a Prolog, an Epilog or a task. Never raises."""
    gpus = environment.get(GPUS, "")
    indices = _indices(gpus)
    visible = () if gpus else _indices(environment.get(VISIBLE, ""))
    return Told(
        _number(environment.get(JOB, ""), _LAST_ID) or -1,  # there is no job 0
        _number(environment.get(UID, ""), _LAST_ID),
        indices or visible,
        bool(gpus or visible),
        _number(environment.get(PERCENTAGE, ""), _LAST_COUNT),
        _number(environment.get(SHARDS, ""), _LAST_COUNT),
        _number(environment.get(LEADER, ""), _LAST_ID) or -1,
        bool(visible),
    )


def _number(text: str, last: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(last))):
        return -1
    return int(text) if int(text) <= last else -1


def _indices(text: str) -> tuple[int, ...]:
    words = text.split(",", _MOST)
    found = tuple(_number(each, _LAST_INDEX) for each in words)
    return found if -1 not in found and len(set(found)) == len(found) else ()
