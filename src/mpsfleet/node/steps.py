"""Slurm's step daemons on this node: `scontrol listpids`, which asks no slurmctld and works while it is down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node.model import Unreadable
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer

LIMIT_S = 8.0
_PLACES = ("/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol", "/usr/local/slurm/bin/scontrol")
_PID_AND_JOB = 2  # the first two columns
_DIGITS = 18  # of a job's number, which has 32 bits


class Listed(NamedTuple):
    """One process of a job step."""

    pid: str
    job: str  # Slurm's word, a number


def scontrol(host: Host) -> str | None:
    """Return the path of scontrol on the node; None where it is not installed."""
    return next((each for each in _PLACES if os.access(host.path(each), os.X_OK)), None)


def understand(answer: Answer) -> tuple[Listed, ...] | Unreadable:
    """Read `scontrol listpids`: a heading, then a line for each process of a job step. Without steps it ends with 1.

    A step daemon that was killed is told on stderr and its job not at all, though the job's processes may live (24.11).
    """
    if answer.rc is None or answer.missing or "slurmstepd" in answer.err:
        return Unreadable(f"Slurm's step daemons cannot be asked ({said(answer)})")
    rows = (line.split() for line in answer.out.splitlines())
    found = tuple(Listed(row[0], row[1]) for row in rows if len(row) >= _PID_AND_JOB and row[0].lstrip("-").isdigit())
    both = answer.out + answer.err
    if not found and answer.rc != 0 and "No job steps" not in both and "does not exist" not in both:
        return Unreadable(f"Slurm's step daemons cannot be asked ({said(answer)})")
    return found


def jobs(listed: tuple[Listed, ...]) -> frozenset[int]:
    """Return the numbers of the jobs that have a step here."""
    names = (each.job for each in listed if each.job.isascii() and each.job.isdigit() and len(each.job) <= _DIGITS)
    return frozenset(int(each) for each in names)


def said(answer: Answer) -> str:
    """Return how a command of Slurm's failed, in its own words."""
    if answer.rc is None:
        return f"no answer within {LIMIT_S:g} s"
    return show((answer.err.strip() or answer.out.strip() or f"exit status {answer.rc}").partition("\n")[0])
