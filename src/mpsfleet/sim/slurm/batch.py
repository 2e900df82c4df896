"""The simulated squeue, sbatch, srun and scancel: jobs that sleep on their node until they end or are cancelled."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from mpsfleet.sim.place import is_up
from mpsfleet.sim.slurm import columns, jobs
from mpsfleet.sim.slurm.cluster import Job, controller_of, declared_uid, name_of
from mpsfleet.sim.slurm.talk import NoAnswer, complain, slurmctld

if TYPE_CHECKING:
    from mpsfleet.sim.slurm.cluster import Cluster

_SUBMIT = {
    "-w": "node", "--nodelist": "node", "--gres": "gres", "-J": "name", "--job-name": "name", "-D": "folder",
    "--chdir": "folder", "--wrap": "wrap", "-p": "partition", "--partition": "partition", "-o": "output",
    "--output": "output", "-n": "tasks", "--ntasks": "tasks", "-N": "nodes", "--nodes": "nodes", "-t": "time",
    "--time": "time",
}  # fmt: skip
_LIST = {"-t": "states", "--states": "states", "-o": "format", "--format": "format", "-w": "node", "--nodelist": "node",
         "-j": "jobs", "--jobs": "jobs", "-u": "user", "--user": "user"}  # fmt: skip
_USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_HEADINGS = {
    "i": "JOBID", "P": "PARTITION", "j": "NAME", "u": "USER", "t": "ST", "M": "TIME", "D": "NODES",
    "R": "NODELIST(REASON)", "T": "STATE", "N": "NODELIST",
}  # fmt: skip
_SHORT = {"PENDING": "PD", "RUNNING": "R"}
_NOWHERE = "Requested node configuration is not available"
_MPS_AND_GPU = "Invalid generic resource (gres) specification"


def main(argv: list[str]) -> int:
    """Run one tool: the first words are the root and the tool's name. Exit statuses are the tools' own."""
    root, tool, words = argv[0], argv[1], argv[2:]
    verbs = {"squeue": _squeue, "sbatch": _sbatch, "srun": _srun, "scancel": _scancel}
    return verbs[tool](root, words)


def _squeue(root: str, words: list[str]) -> int:
    found, _ = columns.options(words, _LIST)
    states = [each.upper() for each in found.get("states", "PENDING,RUNNING").split(",")]
    form = found.get("format", _USUAL)
    try:
        with slurmctld(root) as cluster:
            shown = [each for each in cluster.jobs.values() if _is_listed(each, states, found)]
            lines = [columns.line(form, _values(cluster, each)) for each in shown]
    except NoAnswer as error:
        return complain("slurm_load_jobs error", error)
    if not found.keys() & {"h", "noheader"}:
        lines.insert(0, columns.line(form, _HEADINGS))
    sys.stdout.write("".join(f"{each}\n" for each in lines))
    return 0


def _is_listed(job: Job, states: list[str], found: dict[str, str]) -> bool:
    return (
        (job.state in states or _SHORT.get(job.state) in states)
        and found.get("node", job.node) == job.node
        and found.get("user", job.user) == job.user
        and found.get("jobs", str(job.number)) == str(job.number)
    )


def _values(cluster: Cluster, job: Job) -> dict[str, str]:
    seconds = int((job.ended or time.time()) - job.started) if job.started else 0
    return {
        "i": str(job.number),
        "P": cluster.partition,
        "j": job.name,
        "u": job.user,
        "t": _SHORT.get(job.state, job.state[:2]),
        "T": job.state,
        "M": f"{seconds // 60}:{seconds % 60:02}",
        "D": "1",
        "R": job.node or f"({job.why})",
        "N": job.node,
    }


def _sbatch(root: str, words: list[str]) -> int:
    found, rest = columns.options(words, _SUBMIT)
    if "wrap" not in found and not rest:
        sys.stderr.write("sbatch: error: the simulated sbatch takes a script or --wrap=COMMAND\n")
        return 1
    command = found.get("wrap", "")
    if not command:
        try:
            with open(rest[0], encoding="utf-8", errors="replace") as stream:
                command = stream.read(65536)
        except OSError:
            sys.stderr.write(f"sbatch: error: Unable to open file {rest[0]}\n")
            return 1
    name = found.get("name") or ("wrap" if "wrap" in found else os.path.basename(rest[0]))
    number = _submit(root, "sbatch", found, command, name)
    if number:
        sys.stdout.write(f"{number}\n" if "parsable" in found else f"Submitted batch job {number}\n")
    return 0 if number else 1


def _submit(root: str, tool: str, found: dict[str, str], command: str, name: str) -> int:
    """Queue a job and start it where that can be done; return its number, 0 where it was refused."""
    gres = found.get("gres", "").removeprefix("gres:")
    kinds = {each.split(":")[0] for each in gres.split(",") if each}
    try:
        with slurmctld(root) as cluster:
            refused = _why_refused(cluster, kinds, found.get("node", ""))
            if refused:
                sys.stderr.write(f"{tool}: error: Batch job submission failed: {refused}\n")
                return 0
            number, uid = cluster.next_job, declared_uid()
            user, folder = name_of(controller_of(root), uid), found.get("folder") or os.getcwd()
            job = Job(
                number, name, user, uid, gres, found.get("node", ""), folder,
                jobs.seconds_of(command), time.time(), is_batch=tool == "sbatch",
            )  # fmt: skip
            if not _is_anywhere(cluster, job):
                sys.stderr.write(f"{tool}: error: Batch job submission failed: {_NOWHERE}\n")
                return 0
            cluster.jobs[str(number)] = job
            cluster.next_job += 1
            jobs.bring_forward(controller_of(root), cluster)
    except NoAnswer as error:
        return complain(f"{tool}: error: Batch job submission failed", error) - 1
    return number


def _why_refused(cluster: Cluster, kinds: set[str], node: str) -> str:
    if len(kinds & {"mps", "gpu"}) > 1 or kinds - {"mps", "gpu"}:
        return _MPS_AND_GPU
    return "Invalid node name specified" if node and node not in cluster.nodes else ""


def _is_anywhere(cluster: Cluster, job: Job) -> bool:
    """Whether a node the job may run on has as many GPUs of its type as it asks for."""
    wanted = max(job.gpus(), 1 if job.shares() else 0)
    nodes = [each for each in cluster.nodes.values() if job.wanted_node in ("", each.name)]
    return any(sum(job.type() in ("", kind) for kind in each.types) >= wanted for each in nodes)


def _srun(root: str, words: list[str]) -> int:
    """Queue a job and wait for its end."""
    found, rest = columns.options(words, _SUBMIT)
    number = _submit(root, "srun", found, " ".join(rest), rest[0] if rest else "srun")
    controller = controller_of(root)
    while number and is_up(controller.fleet):
        try:
            with slurmctld(root) as cluster:
                job = cluster.jobs.get(str(number))
                if job is None or job.ended:
                    return 0 if job is None or job.state == "COMPLETED" else 1
        except NoAnswer:
            pass
        time.sleep(0.2)
    return 1


def _scancel(root: str, words: list[str]) -> int:
    _, numbers = columns.options(words, _LIST)
    try:
        with slurmctld(root) as cluster:
            for number in numbers:
                job = cluster.jobs.get(number)
                if job is not None and not job.ended:
                    jobs.cancel(controller_of(root), cluster, job)
    except NoAnswer as error:
        return complain("scancel: error", error)
    return 0
