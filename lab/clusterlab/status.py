"""The status of a lab, as lines for a person."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from clusterlab.access import init_process, inventory_path, run_in_node
from clusterlab.errors import LabError
from clusterlab.naming import CONTROLLER
from clusterlab.record import read_record
from clusterlab.teardown import is_anything_left

if TYPE_CHECKING:
    from clusterlab.naming import Lab


def status_lines(lab: Lab) -> tuple[list[str], bool]:
    """Return what is up, and whether all of it runs."""
    record = read_record(lab)
    if record is None:
        if is_anything_left(lab):
            return [f"lab {lab.name}: left-overs of an earlier start; `lab down` removes them"], False
        return [f"lab {lab.name}: not up"], False
    lines = [
        f"lab {lab.name}: {CONTROLLER} and {record.wanted}",
        f"MPS package: nvidia-cuda-mps {record.mps_version}, md5 {record.mps_md5}",
        f"base tree: {record.base}",
        f"inventory: {inventory_path(lab)}",
    ]
    is_well = record.is_ready
    if not record.is_ready:
        lines.append("its start did not finish, or goes on right now")
    for node in (CONTROLLER, *record.nodes):
        try:
            init_process(lab, node)
        except LabError as error:
            lines.append(str(error))
            is_well = False
    try:
        done = run_in_node(lab, CONTROLLER, ("sinfo", "--noheader", "--format=%N %T %E"), timeout_s=10)
        lines += [f"Slurm: {line}" for line in (done.stdout or done.stderr).strip().splitlines()]
    except (LabError, subprocess.TimeoutExpired):
        lines.append("Slurm: slurmctld does not answer")
        is_well = False
    return lines, is_well
