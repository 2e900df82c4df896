"""Is the node free for a step that would end jobs' MPS clients? Could not ask means no.

A client seen is proof of use; no client is no proof of none (a job sits between two CUDA phases). So a node is free
only when it is drained by us and idle, no job is recorded on it, and Slurm's step daemons know of no process of a job.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpsfleet.node import daemon
from mpsfleet.node.host import children, locks
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import procfs, short_name
from mpsfleet.show import show
from mpsfleet.slurm import nodes, reasons

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer

_ASK_S = 8.0
_PLACES = ("/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol", "/usr/local/slurm/bin/scontrol")


def why_not(host: Host, desired: Desired, *, any_drain: bool) -> str | None:
    """Return one sentence why the node is not free; None when it is. Asks slurmctld once and the local slurmstepds."""
    recorded = _recorded(host)
    if recorded:
        return f"job {recorded[0]} is recorded on this node; wait for its end"
    if not desired.slurm_enabled:
        return _by_clients(host, desired)
    scontrol = next((each for each in _PLACES if os.access(host.path(each), os.X_OK)), None)
    if scontrol is None:
        return (
            "scontrol is not installed on this node, so whether a job runs here is not known; install Slurm's client "
            "(Debian: slurm-client), or say [slurm] enabled = false in node.toml where the node is not Slurm's"
        )
    name = desired.node_name or short_name()
    asked = ((scontrol, "-o", "show", "node", name), (scontrol, "listpids"))
    shown, pids = children.run(tuple(children.Command((host.path(argv[0]), *argv[1:]), _ASK_S) for argv in asked))
    return _by_drain(shown, name, any_drain=any_drain) or _by_processes(pids)


def _by_clients(host: Host, desired: Desired) -> str | None:
    """Where there is no scheduler: every MPS server must say, through its daemon, that it has no client."""
    named = procfs.named_mps(host)
    if isinstance(named, Unreadable):
        return f"the processes of the node are not known: {named.reason}"
    for each in named:
        if procfs.is_control_program(host, each.pid) or each.state == "Z":
            continue
        answer = daemon.command(host, desired, f"get_client_list {each.pid}", desired.query_timeout_s)
        if answer.rc != 0 or "not found" in answer.out:
            who = f"MPS server {each.pid} of user {each.uid}"
            return f"{who} runs, and whether it has clients cannot be asked; end it first"
        if answer.out.strip():
            return f"MPS server {each.pid} has clients ({show(answer.out.strip(), 80)}); wait for their end"
    return None


def _recorded(host: Host) -> list[str]:
    try:
        return sorted(os.listdir(host.path(f"{locks.STATE}/jobs")))
    except FileNotFoundError:
        return []


def _by_drain(shown: Answer, name: str, *, any_drain: bool) -> str | None:
    if shown.rc != 0:
        return f"Slurm cannot be asked about node {name} ({_said(shown)}), so whether it is free is not known"
    table = nodes.parse(shown.out)
    node = table.node(name)
    if node is None:
        return f"Slurm's answer about node {name} is not understood, so whether it is free is not known"
    state, reason = node.state, node.reason
    if not state.is_drain:
        return f"node {name} is {state.raw}, not drained; drain it first (`mpsfleet slurm drain {name} --code reset`)"
    ours = reason is not None and reasons.parse(reason.text) is not None
    if not ours and not any_drain:
        text = f"“{show(reason.text)}” by {show(reason.user)}" if reason is not None else "without a reason"
        return f"node {name} was drained by somebody else ({text}); ask them, or use --any-drain"
    if not state.drained:
        return f"node {name} is {state.raw}: a job is still on it; wait for its end"
    return None


def _by_processes(pids: Answer) -> str | None:
    """Read `scontrol listpids`: a heading, then a line for each process of a job step."""
    if pids.rc is None or pids.missing:
        return f"Slurm's step daemons cannot be asked ({_said(pids)}), so whether the node is free is not known"
    for line in pids.out.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].isdigit():
            return f"process {words[0]} of job {show(words[1], 20)} is on this node; wait for its end"
    said = pids.out + pids.err
    if pids.rc != 0 and "No job steps" not in said and "does not exist" not in said:
        return f"Slurm's step daemons cannot be asked ({_said(pids)}), so whether the node is free is not known"
    return None


def _said(answer: Answer) -> str:
    if answer.rc is None:
        return f"no answer within {_ASK_S:g} s"
    return show((answer.err.strip() or answer.out.strip() or f"exit status {answer.rc}").partition("\n")[0])
