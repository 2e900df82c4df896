"""Is the node, or are some of its GPUs, free for a step that would end jobs' MPS clients? Could not ask means no.

A client seen is proof of use; no client is no proof of none (a job sits between two CUDA phases). So a node is free
only when it is drained by us and idle, no job is recorded on it, and Slurm's step daemons know of no process of a job.
Some of its GPUs are free, while jobs run on the others, when it is drained by us, each job that the step daemons know
is recorded on other GPUs, and neither a compute process nor an MPS client is seen on these.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mpsfleet.node import daemon, free_gpus, instances, jobs, steps, topology
from mpsfleet.node.host import children
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import procfs, short_name
from mpsfleet.show import show
from mpsfleet.slurm import nodes, reasons

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer

_NO_SCONTROL = (
    "scontrol is not installed on this node, so whether a job runs here is not known; install Slurm's client "
    "(Debian: slurm-client), or say [slurm] enabled = false in node.toml where the node is not Slurm's"
)


def why_not(host: Host, desired: Desired, *, any_drain: bool, gpus: frozenset[str] | None = None) -> str | None:
    """Return one sentence why the node, or the GPUs of these UUIDs, is not free; None when it is.

    Asks slurmctld once and the local slurmstepds.
    """
    records = jobs.read_all(host)
    if isinstance(records, Unreadable):
        return f"the jobs recorded on this node are not known: {records.reason}"
    if records and gpus is None:
        return f"job {show(records[0].name, 40)} is recorded on this node; wait for its end"
    if not desired.slurm_enabled:
        return _by_clients(host, desired) if gpus is None else _recorded_on(records, gpus) or _seen(host, desired, gpus)
    scontrol = steps.scontrol(host)
    if scontrol is None:
        return _NO_SCONTROL
    name = desired.node_name or short_name(host)
    asked = ((scontrol, "-o", "show", "node", name), (scontrol, "listpids"))
    commands = tuple(children.Command((host.path(argv[0]), *argv[1:]), steps.LIMIT_S) for argv in asked)
    shown, pids = children.run(commands)
    listed = steps.understand(pids)
    if gpus is None:
        return _by_drain(shown, name, any_drain=any_drain, idle=True) or _by_processes(listed)
    return (
        _by_drain(shown, name, any_drain=any_drain, idle=False)
        or free_gpus.by_records(records, listed, gpus, time.time())
        or _seen(host, desired, gpus)
    )


def why_not_idle(host: Host, desired: Desired) -> str | None:
    """Return one sentence why a job may be on the node, drained or not; None when none is. Asks no slurmctld.

    Enough for a step that ends nothing: a job may start meanwhile.
    """
    records = jobs.read_all(host)
    if isinstance(records, Unreadable):
        return f"the jobs recorded on this node are not known: {records.reason}"
    if records:
        return free_gpus.sentence(records[0])
    if not desired.slurm_enabled:
        return _by_clients(host, desired)
    scontrol = steps.scontrol(host)
    if scontrol is None:
        return _NO_SCONTROL
    command = children.Command((host.path(scontrol), "listpids"), steps.LIMIT_S)
    return _by_processes(steps.understand(children.run((command,))[0]))


def _recorded_on(records: tuple[jobs.Record, ...], gpus: frozenset[str]) -> str | None:
    return next((free_gpus.sentence(each) for each in records if each.may_use(gpus)), None)


def _seen(host: Host, desired: Desired, gpus: frozenset[str]) -> str | None:
    """Look for what uses the GPUs now: compute processes, and clients of the daemons that serve them."""
    servers = procfs.named_mps(host)
    if isinstance(servers, Unreadable):
        return f"the processes of the node are not known: {servers.reason}"
    return free_gpus.by_compute_processes(host, desired, gpus, servers) or free_gpus.by_clients(
        host, desired, gpus, servers
    )


def _by_clients(host: Host, desired: Desired) -> str | None:
    """Where there is no scheduler: every MPS server must say, through its daemon, that it has no client."""
    named = procfs.named_mps(host)
    if isinstance(named, Unreadable):
        return f"the processes of the node are not known: {named.reason}"
    recorded = topology.recorded(host)
    if isinstance(recorded, Unreadable):
        return f"the control daemons of the node are not known: {recorded.reason}"
    places = tuple(each.pipe_directory for each in instances.of(desired, recorded))
    for each in named:
        if procfs.is_control_program(host, each.pid) or each.state == "Z":
            continue
        words = f"get_client_list {each.pid}"
        answers = (daemon.command(host, desired, place, words, desired.query_timeout_s) for place in places)
        heard = next((answer for answer in answers if answer.rc == 0 and "not found" not in answer.out), None)
        if heard is None:
            who = f"MPS server {each.pid} of user {each.uid}"
            return f"{who} runs, and whether it has clients cannot be asked; end it first"
        if heard.out.strip():
            return f"MPS server {each.pid} has clients ({show(heard.out.strip(), 80)}); wait for their end"
    return None


def _by_drain(shown: Answer, name: str, *, any_drain: bool, idle: bool) -> str | None:
    if shown.rc != 0:
        return f"Slurm cannot be asked about node {name} ({steps.said(shown)}), so whether it is free is not known"
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
    if idle and not state.drained:
        return f"node {name} is {state.raw}: a job is still on it; wait for its end"
    if state.work_obstacle is not None:
        return f"node {name} {state.work_obstacle} (state {show(state.raw, 80)}); it is left alone until that is over"
    return None


def _by_processes(listed: tuple[steps.Listed, ...] | Unreadable) -> str | None:
    if isinstance(listed, Unreadable):
        return f"{listed.reason}, so whether the node is free is not known"
    if listed:
        return f"process {listed[0].pid} of job {show(listed[0].job, 20)} is on this node; wait for its end"
    return None
