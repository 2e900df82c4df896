"""The simulated scontrol: show node, nodes, job, config; update of nodes; listpids; ping; reboot is not there."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from mpsfleet.sim.place import Place
from mpsfleet.sim.slurm import jobs, show
from mpsfleet.sim.slurm.cluster import REGISTERS_S, controller_of, declared_uid, name_of, read
from mpsfleet.sim.slurm.names import expand
from mpsfleet.sim.slurm.talk import NoAnswer, complain, slurmctld

if TYPE_CHECKING:
    from mpsfleet.sim.slurm.cluster import Cluster, Node

_STATES = (
    "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n"
    "Not all states are valid given a node's prior state\n"
)


def main(argv: list[str]) -> int:
    """Run one command: the first word is the root of the node or controller. Exit statuses are scontrol's."""
    root, words = argv[0], argv[1:]
    flags = {each for each in words if each.startswith("-")}
    words = [each for each in words if not each.startswith("-")]
    verb = words[0].lower() if words else ""
    if verb == "show":
        return _show(root, words[1:], flags)
    if verb == "update":
        return _update(root, words[1:])
    if verb == "listpids":
        return _listpids(root)
    if verb == "ping":
        return _ping(root)
    sys.stderr.write(f"invalid keyword: {words[0] if words else ''}\n")
    return 1


def _show(root: str, words: list[str], flags: set[str]) -> int:
    what = words[0].lower() if words else ""
    name = words[1] if len(words) > 1 else ""
    what, equals, after = what.partition("=")
    name = after if equals else name
    loading = {"config": "slurm_load_ctl_conf", "job": "slurm_load_jobs", "jobs": "slurm_load_jobs"}
    try:
        with slurmctld(root) as cluster:
            if what in ("node", "nodes"):
                return _show_nodes(cluster, name, flags)
            if what in ("job", "jobs"):
                return _show_jobs(cluster, name)
            if what == "config":
                sys.stdout.write(show.config_record(cluster))
                return 0
    except NoAnswer as error:
        return complain(f"{loading.get(what, 'slurm_load_node')} error", error)
    sys.stderr.write(f"invalid entity: {what} for keyword:show \n")
    return 1


def _show_nodes(cluster: Cluster, names: str, flags: set[str]) -> int:
    one_line = bool(flags & {"-o", "--oneliner"})
    details = bool(flags & {"-d", "--details"})
    rc = 0
    for name in expand(names) if names else cluster.nodes:
        node = cluster.nodes.get(name)
        if node is None:
            sys.stdout.write(f"Node {name} not found\n")
            rc = 1
        else:
            sys.stdout.write(show.node_record(cluster, node, one_line=one_line, details=details))
    return rc


def _show_jobs(cluster: Cluster, number: str) -> int:
    found = [each for each in cluster.jobs.values() if not number or str(each.number) == number]
    if number and not found:
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
        return 1
    sys.stdout.write("".join(show.job_record(cluster, each) for each in found) or "No jobs in the system\n")
    return 0


def _update(root: str, words: list[str]) -> int:
    settings = {key.lower(): value for key, _, value in (each.partition("=") for each in words)}
    state = settings.get("state", "").upper()
    if state and state not in ("DRAIN", "UNDRAIN", "RESUME", "DOWN"):
        sys.stderr.write(f"Invalid input: State={settings['state']}\nRequest aborted\n{_STATES}")
        return 1
    if state in ("DRAIN", "DOWN") and not settings.get("reason"):
        sys.stderr.write("You must specify a reason when DOWNING or DRAINING a node. Request denied\n")
        return 1
    try:
        with slurmctld(root) as cluster:
            names = expand(settings.get("nodename", ""))
            if not names or any(each not in cluster.nodes for each in names):
                sys.stderr.write("slurm_update error: Invalid node name specified\n")
                return 1
            for name in names:
                problem = _change(controller_of(root), cluster, cluster.nodes[name], settings)
                if problem:
                    sys.stderr.write(f"slurm_update error: {problem}\n")
                    return 1
    except NoAnswer as error:
        return complain("slurm_update error", error)
    return 0


def _change(controller: Place, cluster: Cluster, node: Node, settings: dict[str, str]) -> str:
    """Change one node; return why not, or "". A reason overwrites the one before without a word, as in Slurm."""
    now, state = time.time(), settings.get("state", "").upper()
    if state == "RESUME" and not (node.is_drain or node.is_down):
        return "Invalid node state specified"
    if "reason" in settings:
        node.reason, node.reason_time = settings["reason"], now
        node.reason_user = name_of(controller, declared_uid())
    if state == "DRAIN":
        node.is_drain = True
    elif state == "DOWN":
        node.is_down = True
        for job in cluster.on_node(node.name):
            jobs.cancel(controller, cluster, job)
    elif state in ("UNDRAIN", "RESUME"):
        node.is_drain = False
        node.is_down = node.is_down and state != "RESUME"
        node.reason, node.silent_until, node.busy = "", now + REGISTERS_S, now
    node.comment = settings.get("comment", node.comment)
    node.extra = settings.get("extra", node.extra)
    return ""


def _listpids(root: str) -> int:
    """Ask the node's own slurmstepd's; slurmctld has no part in it."""
    place = Place(root)
    found = jobs.processes_on(place, read(controller_of(root)))
    if not found:
        sys.stderr.write("No job steps exist on this node.\n")
    sys.stdout.write("PID      JOBID    STEPID   LOCALID GLOBALID\n")
    for pid, job in found:  # a step's processes
        sys.stdout.write(f"{pid:<8} {job.number:<8} {'batch' if job.is_batch else '0':<8} 0       0       \n")
    return 0 if found else 1


def _ping(root: str) -> int:
    is_answering = read(controller_of(root)).slurmctld == "up"
    sys.stdout.write(f"Slurmctld(primary) at ctl is {'UP' if is_answering else 'DOWN'}\n")
    return 0 if is_answering else 1
