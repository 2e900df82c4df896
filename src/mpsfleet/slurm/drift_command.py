"""`mpsfleet slurm drift`: ask Slurm once, compare with the nodes' reports where there are some, print."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from mpsfleet.errors import VERDICT_EXIT
from mpsfleet.show import show
from mpsfleet.slurm import drift_fleet, drift_lines, verdict
from mpsfleet.slurm.steps import NotAsked

if TYPE_CHECKING:
    import argparse

    from mpsfleet.slurm.commands import Scontrol
    from mpsfleet.slurm.reports import HostReport

_SENTENCE = 2000  # characters


def drift(words: argparse.Namespace, door: Scontrol, given: tuple[HostReport, ...] | None) -> int:
    """Print the drift and give the exit status: 0 none, 1 warnings, 2 critical, 3 something could not be compared.

    Raises NotAsked where Slurm cannot be asked or is another cluster than the wanted one.
    """
    is_asked = words.cluster is not None or any(each.cluster for each in given or ())
    cluster = door.cluster_name() if is_asked else ""
    view = verdict.view_of(cluster, door.show_nodes(), words.cluster)
    if view.error is not None:
        if words.json:
            error = [show(view.error, _SENTENCE)]
            _print({"schema": drift_lines.SCHEMA, "verdict": "unknown", "drifts": [], "problems": error})
        raise NotAsked(view.error)
    found = drift_fleet.compare(view.table, given, frozenset(words.nodes), view.cluster if is_asked else None)
    if words.json:
        _print(drift_lines.as_json(found))
    else:
        sys.stdout.write("\n".join(drift_lines.lines(found)) + "\n")
    return VERDICT_EXIT[found.verdict]


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False) + "\n")
