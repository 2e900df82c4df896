"""Some GPUs of a node that jobs run on: what speaks for their being in use. Each answer is one sentence, or None.

Slurm's own evidence decides: records of jobs and Slurm's step daemons. What is seen on the GPUs now, compute processes
and MPS clients, can only add to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpsfleet.node import daemon, instances, jobs, steps, topology
from mpsfleet.node.host import children
from mpsfleet.node.model import Answers, Unreadable
from mpsfleet.node.probe import directories, mps, procfs, uses
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Process


def by_records(
    records: tuple[jobs.Record, ...], listed: tuple[steps.Listed, ...] | Unreadable, gpus: frozenset[str], now: float
) -> str | None:
    """Judge by the records and by Slurm's step daemons: each job must be recorded, and on other GPUs. Pure."""
    if isinstance(listed, Unreadable):
        return f"{listed.reason}, so whether the GPUs are free is not known"
    known = steps.jobs(listed)
    for each in records:
        if each.may_use(gpus):
            return sentence(each, stale=jobs.is_stale(each, known, now))
    recorded = {each.name for each in records}
    stranger = next((each for each in listed if each.job not in recorded), None)
    if stranger is not None:
        who = f"process {stranger.pid} of job {show(stranger.job, 20)}"
        return f"{who} is on this node and no Prolog recorded it, so which GPUs it uses is not known; wait for its end"
    return None


def sentence(record: jobs.Record, *, stale: bool = False) -> str:
    """Say that a record speaks for use, and what ends it."""
    if isinstance(record, jobs.Garbled):
        path = show(f"{jobs.DIRECTORY}/{record.name}", 80)
        return f"the record {path} cannot be read ({show(record.reason, 60)}), so which GPUs its job uses is not known"
    where = f"on {', '.join(record.gpus)}" if record.gpus else "and its GPUs are not known"
    if not stale:
        return f"job {record.job} is recorded {where}; wait for its end"
    return (
        f"job {record.job} is recorded {where}, but no step of it is on this node; if `squeue -j {record.job}` "
        f"does not know it, forget it with `SLURM_JOB_ID={record.job} mpsfleet node hook epilog`"
    )


def by_compute_processes(host: Host, desired: Desired, gpus: frozenset[str], named: tuple[Process, ...]) -> str | None:
    """Ask nvidia-smi for compute processes; a server of ours is none, for its clients are asked for apart."""
    limit_s = desired.nvidia_smi_timeout_s
    found = uses.understand(children.run((uses.question(host, limit_s),))[0], limit_s)
    if isinstance(found, Unreadable):
        return f"nvidia-smi cannot be asked for compute processes ({found.reason})"
    servers = {str(each.pid) for each in named if procfs.is_server(host, each)}
    for each in found:
        if each.gpu in gpus and each.pid not in servers:
            return f"compute process {show(each.pid, 20)} is on {each.gpu}; wait for its end"
    return None


def by_clients(host: Host, desired: Desired, gpus: frozenset[str], named: tuple[Process, ...]) -> str | None:
    """Ask the daemons that serve these GPUs for clients of their servers.

    A daemon that gives no answer is no evidence where Slurm's own has been heard (a reset is for such a daemon); where
    there is no scheduler, nothing else would speak for a client, so a server then counts as one.
    """
    recorded = topology.recorded(host)
    if isinstance(recorded, Unreadable):
        return f"which daemon serves which GPU is not known: {recorded.reason}"
    servers = [each for each in named if each.state != "Z" and not procfs.is_control_program(host, each.pid)]
    for each in instances.of(desired, recorded):
        if each.gpus and gpus.isdisjoint(each.gpus):
            continue
        clients = _clients(host, desired, each, named)
        if clients:
            return f"the MPS servers of {each.unit} have clients ({show(clients, 80)}); wait for their end"
        if clients is None and not desired.slurm_enabled and servers:
            who = f"MPS server {servers[0].pid}"
            return f"{who} runs, and {each.unit} cannot be asked whether it has clients; end it first"
    return None


def _clients(host: Host, desired: Desired, instance: Instance, named: tuple[Process, ...]) -> str | None:
    """Return the clients that the daemon of an instance names, "" for none; None where it cannot be asked."""
    pipe, fd = directories.look(host, instance.pipe_directory)
    try:
        if daemon.hears_root(host, pipe, fd, procfs.daemons(host, named)) is None:
            return None
        binary, limit_s = host.path(desired.control_binary), desired.query_timeout_s
        said = mps.understand(children.run((mps.question(binary, fd, limit_s),))[0], limit_s)
        if not isinstance(said, Answers):
            return None
        asked = tuple(mps.command(binary, fd, f"get_client_list {pid}\n".encode(), limit_s) for pid in said.servers)
        answers = tuple(children.run((each,))[0] for each in asked)  # one at a time: it serves one connection
        if any(each.rc != 0 or "not found" in each.out for each in answers):
            return None
        return " ".join(each.out.strip() for each in answers).strip()
    finally:
        if fd >= 0:
            os.close(fd)
