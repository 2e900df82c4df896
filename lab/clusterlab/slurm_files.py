"""Slurm's configuration of a lab, as text: slurm.conf, gres.conf, cgroup.conf, and that of a /tmp per job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterlab.naming import CONTROLLER
from clusterlab.suites import suite_called

if TYPE_CHECKING:
    from clusterlab.suites import Suite
    from clusterlab.wanted import Wanted
    from mpsfleet.sim.gpu.board import Board

CLUSTER = "lab"
PARTITION = "gpu"
SHARES_PER_GPU = {"mps": 100, "shard": 4}
CPUS = 64
MEMORY_MIB = 256_000
TMP_FOLDER = "var/lib/slurm-job-tmp"


def gres(board: Board, sharing: str) -> str:
    """Return the Gres of a node, as slurm.conf and scontrol write it; "" for one without GPUs."""
    counts = [(kind, len(board.minors(kind))) for kind in board.types]
    parts = [f"gpu:{kind}:{count}" for kind, count in counts]
    if sharing in SHARES_PER_GPU:
        parts += [f"{sharing}:{kind}:{count * SHARES_PER_GPU[sharing]}" for kind, count in counts]
    return ",".join(parts)


def slurm_conf(wanted: Wanted, controller_address: str) -> str:
    """Return slurm.conf.

    The nodes' size is claimed (config_overrides), so that many jobs fit on a small machine. proctrack/linuxproc and no
    task plugin need no control groups, which the nodes have only for their own systemd.
    """
    types = ",".join(("gpu", *((wanted.sharing,) if wanted.sharing in SHARES_PER_GPU else ())))
    # Without LL_SHARED_GRES Slurm fills the shards of one GPU before it takes the next.
    spread = ",LL_SHARED_GRES" if wanted.sharing == "shard" and suite_called(wanted.suite).spreads_shards else ""
    nodes = "".join(
        f"NodeName={names} CPUs={CPUS} RealMemory={MEMORY_MIB}{_claimed(board, wanted.sharing)} State=UNKNOWN\n"
        for names, board in _groups(wanted)
    )
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
RebootProgram=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory{spread}
SlurmdParameters=config_overrides
GresTypes={types}
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
KillWait=5
DefMemPerCPU=1000
{_private_tmp(wanted)}{nodes}PartitionName={PARTITION} Nodes={_all(wanted)} Default=YES MaxTime=INFINITE State=UP
"""


def _groups(wanted: Wanted) -> list[tuple[str, Board]]:
    """Return each board once, with its nodes as a host list."""
    if len(set(wanted.boards)) == 1:
        return [(_all(wanted), wanted.boards[0])]
    return [
        (",".join(node for node in wanted.nodes if wanted.board(node) == board), board)
        for board in dict.fromkeys(wanted.boards)
    ]


def _all(wanted: Wanted) -> str:
    return f"n[1-{len(wanted.nodes)}]" if len(wanted.nodes) > 1 else "n1"


def _claimed(board: Board, sharing: str) -> str:
    return f" Gres={gres(board, sharing)}" if board.kinds else ""


def _private_tmp(wanted: Wanted) -> str:
    if not wanted.has_private_tmp:
        return ""
    return f"PrologFlags=Contain\n{suite_called(wanted.suite).private_tmp}\n"


def gres_conf(wanted: Wanted) -> str:
    """Return gres.conf: each GPU whole, and in shares. Nodes are named in it where they differ."""
    groups = _groups(wanted)
    lines = []
    for names, board in groups:
        node = f"NodeName={names} " if len(groups) > 1 else ""
        files = [(kind.type, f"File=/dev/nvidia{minor}") for kind, minor in zip(board.kinds, board.minors())]
        lines += [f"{node}Name=gpu Type={kind} {file}" for kind, file in files]
        if wanted.sharing in SHARES_PER_GPU:
            count = SHARES_PER_GPU[wanted.sharing]
            lines += [f"{node}Name={wanted.sharing} Type={kind} Count={count} {file}" for kind, file in files]
    return "\n".join(lines) + "\n"


def cgroup_conf(suite: Suite) -> str:
    """Return cgroup.conf."""
    return "CgroupPlugin=disabled\n" if suite.is_cgroup_plugin_disabled else "CgroupAutomount=no\n"


def private_tmp_conf() -> str:
    """Return job_container.conf: the jobs' folders lie in one that Slurm makes."""
    return f"AutoBasePath=true\nBasePath=/{TMP_FOLDER}\n"
