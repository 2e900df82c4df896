"""What a lab is asked to be: how many nodes, of which suite, with which GPUs, and how Slurm shares those."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterlab.errors import LabError
from clusterlab.naming import MOST_NODES, gpu_nodes
from clusterlab.suites import DEFAULT_SUITE, suite_called
from mpsfleet.errors import UsageError
from mpsfleet.sim.gpu import board

if TYPE_CHECKING:
    from mpsfleet.sim.gpu.board import Board

SHARINGS = ("mps", "shard", "none")
DEFAULT_SHARING = "mps"
DEFAULT_GPUS = "4"


class Wanted(NamedTuple):
    """One lab as it is asked for."""

    suite: str
    boards: tuple[Board, ...]
    """The GPUs of n1, n2 and so on."""
    sharing: str = DEFAULT_SHARING
    """The GRES that hands out a part of a GPU: gres/mps, gres/shard, or none."""
    has_private_tmp: bool = False
    """Whether each job has a /tmp of its own (job_container/tmpfs)."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The GPU nodes; the controller comes on top."""
        return gpu_nodes(len(self.boards))

    def board(self, node: str) -> Board:
        """Return the GPUs of a node."""
        return self.boards[self.nodes.index(node)]

    def __str__(self) -> str:
        tmp = ", a /tmp per job" if self.has_private_tmp else ""
        return f"{len(self.boards)} nodes, GPUs {board.said(self.boards)}, sharing {self.sharing}{tmp}, on {self.suite}"


def wanted(
    nodes: int,
    suite: str = DEFAULT_SUITE,
    gpus: str = DEFAULT_GPUS,
    sharing: str = DEFAULT_SHARING,
    *,
    has_private_tmp: bool = False,
) -> Wanted:
    """Return what is asked for; `gpus` is as `--gpus` takes it. LabError says what cannot be had."""
    known = suite_called(suite)
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"a lab has 1 to {MOST_NODES} nodes, not {nodes}")
    if sharing == "shard" and not known.has_shard:
        raise LabError(f"{suite}'s Slurm has no gres/shard, which came with 22.05: choose a later suite")
    if has_private_tmp and not known.private_tmp:
        raise LabError(f"{suite}'s Slurm has no job_container/tmpfs: choose a later suite")
    try:
        return Wanted(suite, board.boards(gpus, nodes), sharing, has_private_tmp)
    except UsageError as error:
        raise LabError(str(error)) from error
