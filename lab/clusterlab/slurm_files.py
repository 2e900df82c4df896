"""Slurm's configuration of a lab, as text: slurm.conf, gres.conf and cgroup.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterlab.naming import CONTROLLER

if TYPE_CHECKING:
    from clusterlab.suites import Suite

CLUSTER = "lab"
PARTITION = "gpu"
GPU_TYPE = "a100"
MPS_SHARES_PER_GPU = 100
CPUS = 64
MEMORY_MIB = 256_000


def gres(gpus: int) -> str:
    """Return the Gres of a node with that many GPUs, as slurm.conf and scontrol write it."""
    if gpus == 0:
        return ""
    return f"gpu:{GPU_TYPE}:{gpus},mps:{GPU_TYPE}:{gpus * MPS_SHARES_PER_GPU}"


def slurm_conf(nodes: int, gpus: int, controller_address: str) -> str:
    """Return slurm.conf for n1 … nNODES.

    The nodes' size is claimed (config_overrides), so that many jobs fit on a small machine. proctrack/linuxproc and no
    task plugin need no control groups, which the nodes have only for their own systemd.
    """
    names = f"n[1-{nodes}]" if nodes > 1 else "n1"
    claimed = f" Gres={gres(gpus)}" if gpus else ""
    return f"""\
ClusterName={CLUSTER}
SlurmctldHost={CONTROLLER}({controller_address})
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu,mps
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
KillWait=5
DefMemPerCPU=1000
NodeName={names} CPUs={CPUS} RealMemory={MEMORY_MIB}{claimed} State=UNKNOWN
PartitionName={PARTITION} Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def gres_conf(gpus: int) -> str:
    """Return gres.conf: each GPU whole, and in shares; Slurm hands out the shares of one GPU per node at a time."""
    lines = [f"Name=gpu Type={GPU_TYPE} File=/dev/nvidia{index}" for index in range(gpus)]
    lines += [f"Name=mps Type={GPU_TYPE} Count={MPS_SHARES_PER_GPU} File=/dev/nvidia{index}" for index in range(gpus)]
    return "\n".join(lines) + "\n"


def cgroup_conf(suite: Suite) -> str:
    """Return cgroup.conf."""
    return "CgroupPlugin=disabled\n" if suite.is_cgroup_plugin_disabled else "CgroupAutomount=no\n"
