"""The text of `scontrol show`: node, job and config, field by field as Slurm 22.05.8 prints them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mpsfleet.sim.slurm.cluster import CPUS

if TYPE_CHECKING:
    from mpsfleet.sim.slurm.cluster import Cluster, Job, Node

_MEMORY_MIB = 256000
_JOB_MIB = 1000


def moment(seconds: float) -> str:
    """Return a time as Slurm prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds)) if seconds else "None"


def state_of(cluster: Cluster, node: Node) -> str:
    """Return the node's state word."""
    running = len(cluster.on_node(node.name))
    base = "DOWN" if node.is_down else "IDLE" if not running else "ALLOCATED" if running >= CPUS else "MIXED"
    flags = [base]
    if node.is_drain:
        flags.append("DRAIN")
    if time.time() < node.silent_until:
        flags.append("NOT_RESPONDING")
    return "+".join(flags)


def node_record(cluster: Cluster, node: Node, *, one_line: bool, details: bool = False) -> str:
    """Return the record of a node."""
    jobs = len(cluster.on_node(node.name))
    here = os.uname()
    lines = [
        f"NodeName={node.name} Arch=x86_64 CoresPerSocket=1 ",
        f"CPUAlloc={jobs} CPUEfctv={CPUS} CPUTot={CPUS} CPULoad={os.getloadavg()[0]:.2f}",
        "AvailableFeatures=(null)",
        "ActiveFeatures=(null)",
        f"Gres={node.gres}",
        *([f"GresUsed={_used(cluster, node)}"] if details else []),
        f"NodeAddr={node.name} NodeHostName={node.name} Version={cluster.version}",
        f"OS={here.sysname} {here.release} {here.version} ",
        f"RealMemory={_MEMORY_MIB} AllocMem={jobs * _JOB_MIB} FreeMem=200000 Sockets={CPUS} Boards=1",
        f"State={state_of(cluster, node)} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={cluster.partition} ",
        f"BootTime={moment(node.started)} SlurmdStartTime={moment(node.started)}",
        f"LastBusyTime={moment(node.busy)}",
        f"CfgTRES=cpu={CPUS},mem=250G,billing={CPUS}",
        f"AllocTRES={f'cpu={jobs},mem={jobs * _JOB_MIB}M' if jobs else ''}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if node.reason:
        lines.append(f"Reason={node.reason} [{node.reason_user}@{moment(node.reason_time)}]")
    lines += [f"{key}={value}" for key, value in (("Comment", node.comment), ("Extra", node.extra)) if value]
    return " ".join(lines) + "\n" if one_line else "\n   ".join(lines) + "\n\n"


def _used(cluster: Cluster, node: Node) -> str:
    running = cluster.on_node(node.name)
    whole = sorted(index for each in running if each.gpus() for index in each.indices)
    shared = sorted({index for each in running if each.shares() for index in each.indices})
    parts = []
    for name, indices in (("gpu", whole), ("mps", shared)):
        for kind in dict.fromkeys(node.types):
            mine = [index for index in indices if node.types[index] == kind]
            parts.append(f"{name}:{kind}:{len(mine)}(IDX:{_ranges(mine) or 'N/A'})")
    return ",".join(parts) or "gpu:0,mps:0"


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers as Slurm writes them: 0-1,3."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)


def job_record(cluster: Cluster, job: Job) -> str:
    """Return the record of a job, as far as people and scripts read it."""
    run_s = (job.ended or time.time()) - job.started if job.started else 0
    out = os.path.join(job.folder, f"slurm-{job.number}.out")
    lines = [
        f"JobId={job.number} JobName={job.name}",
        f"UserId={job.user}({job.uid}) GroupId={job.user}({job.uid}) MCS_label=N/A",
        "Priority=4294901759 Nice=0 Account=(null) QOS=(null)",
        f"JobState={job.state} Reason={job.why} Dependency=(null)",
        f"Requeue=1 Restarts=0 BatchFlag={int(job.is_batch)} Reboot=0 ExitCode=0:0",
        f"RunTime={span(run_s)} TimeLimit=UNLIMITED TimeMin=N/A",
        f"SubmitTime={moment(job.submitted)} EligibleTime={moment(job.submitted)}",
        f"StartTime={moment(job.started)} EndTime={moment(job.ended) if job.ended else 'Unknown'} Deadline=N/A",
        f"Partition={cluster.partition} AllocNode:Sid=ctl:0",
        f"ReqNodeList={job.wanted_node or '(null)'} ExcNodeList=(null)",
        f"NodeList={job.node or '(null)'}",
        *([f"BatchHost={job.node}"] if job.node else []),
        "NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*",
        "Command=(null)",
        f"WorkDir={job.folder}",
        f"StdErr={out}",
        "StdIn=/dev/null",
        f"StdOut={out}",
        "Power=",
        *([f"TresPerNode=gres:{job.gres}"] if job.gres else []),
    ]
    return "\n   ".join(lines) + "\n   \n\n"


def span(seconds: float) -> str:
    """Return a run time as HH:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"


def config_record(cluster: Cluster) -> str:
    """Return `scontrol show config`, the settings that somebody may look for."""
    settings = {
        "AuthType": "auth/munge",
        "BOOT_TIME": moment(cluster.started),
        "ClusterName": cluster.name,
        "GresTypes": "gpu,mps",
        "HealthCheckInterval": "0 sec",
        "HealthCheckProgram": "(null)",
        "MessageTimeout": "10 sec",
        "Prolog": "(null)",
        "SelectType": "select/cons_tres",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_VERSION": cluster.version,
        "SlurmctldHost[0]": "ctl",
        "StateSaveLocation": "/var/spool/slurmctld",
    }
    lines = (f"{key:<23} = {value}" for key, value in settings.items())
    return f"Configuration data as of {moment(time.time())}\n" + "\n".join(lines) + "\n\n"
