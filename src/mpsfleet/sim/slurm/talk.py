"""Talking to the simulated slurmctld: it answers, refuses the connection after a while, or is silent."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from mpsfleet.sim.place import is_up
from mpsfleet.sim.slurm import jobs
from mpsfleet.sim.slurm.cluster import changing, controller_of, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.sim.slurm.cluster import Cluster

_SILENT_S = 100.0  # a client of the real one gives up in the end
_REFUSED = "Unable to contact slurm controller (connect failure)"
_SILENT = "Socket timed out on send/recv operation"


class NoAnswer(Exception):
    """slurmctld gave no answer; the words a client prints after its own prefix."""


@contextlib.contextmanager
def slurmctld(root: str) -> Iterator[Cluster]:
    """Reach the slurmctld of the fleet in which `root` lies, with jobs brought forward; changes are kept. NoAnswer."""
    controller = controller_of(root)
    state = read(controller)
    if not state.nodes or state.slurmctld == "stopped":
        time.sleep(state.refusal_s)
        raise NoAnswer(_REFUSED)
    limit = time.monotonic() + _SILENT_S
    while read(controller).slurmctld == "hung":
        if time.monotonic() > limit or not is_up(controller.fleet):
            raise NoAnswer(_SILENT)
        time.sleep(0.2)
    with changing(controller) as cluster:
        jobs.bring_forward(controller, cluster)
        yield cluster


def complain(prefix: str, error: NoAnswer) -> int:
    """Print why there is no answer, as a client does; return its exit status."""
    sys.stderr.write(f"{prefix}: {error}\n")
    return 1
