"""`mpsfleet node hook health-check`: slurmd has the node audited, and Slurm is told of it where something changed.

slurmd runs it as root with no PATH and hardly a variable, on every node, at its own start too (before the node is
registered), and kills it after 60 s. A node that stays as it is asks slurmctld nothing for hours. Daemons are put right
by a unit of their own, which outlives this process.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mpsfleet import codes
from mpsfleet.errors import OK, REFUSED, MpsfleetError, NotInEffect
from mpsfleet.node import audit, config, health_state
from mpsfleet.node.desired import Desired
from mpsfleet.node.files import HEAL, PROGRAM_LINK
from mpsfleet.node.hook_environment import HEALTHY, NODE
from mpsfleet.node.host import children, journal, locks
from mpsfleet.node.render import json as render
from mpsfleet.show import show
from mpsfleet.slurm import publication
from mpsfleet.slurm.names import is_literal
from mpsfleet.slurm.publication import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mpsfleet.node.health_state import State
    from mpsfleet.node.host import Host
    from mpsfleet.node.model import Report

MOST_DELAY_S = 3.0  # before Slurm is told of a change: nodes that share a cause do not all call at once
_SPARE_S = 5.0  # of the limit, to keep what was done and to say what was not
_START_S = 5.0
_DRAIN_S = 10.0
_BACK_OFF_S = 600
_CERTAIN = 3  # this many equal health checks before a drain of our own


def run(host: Host, environment: Mapping[str, str], limit_s: float) -> None:
    """Audit the node, keep what was found, and do what the configuration allows. MpsfleetError, OSError."""
    if os.geteuid() != host.owner_uid:
        raise MpsfleetError("it must run as root, as slurmd runs it")
    end = time.monotonic() + limit_s - _SPARE_S
    with locks.held(host, "health", 0.0):  # beside slurmd's, one by hand
        _run(host, environment, end)


def _run(host: Host, environment: Mapping[str, str], end: float) -> None:
    desired, mistakes = config.load(host)
    desired = Desired() if mistakes else desired
    report = audit.audit(host)
    state = _keep(host, report)
    if desired.own_reset and _is_mended_by_reset(report) and _is_time(state):
        state = state._replace(reset_at=int(time.time()))
        health_state.keep(host, state)  # before the start: one that hangs is not tried at each run
        _start(host)
    if not desired.slurm_enabled:
        return
    node = _name(desired, environment)
    if desired.publish and state.is_due(node):
        state = _publish(host, node, state, end)
    if desired.own_drain and environment.get(HEALTHY) != "no":
        _drain(host, desired, node, state, end)


def _keep(host: Host, report: Report) -> State:
    """Keep the report and return the state after it, which is kept as well."""
    found = publication.chosen(
        Entry(each.code, each.severity, each.origin, publication.gpu_of(each.subject, each.evidence))
        for each in report.findings
        if each.severity != "ok"
    )
    state = health_state.read(host).after(report.verdict, found, int(time.time()))
    health_state.keep(host, state)
    health_state.keep_report(host, render.report(report))
    return state


def _name(desired: Desired, environment: Mapping[str, str]) -> str:
    """Return the node's name in Slurm: slurmd's word for it, which node.toml may not contradict."""
    told = environment.get(NODE, "")
    name = desired.node_name or told
    if not is_literal(name):
        shown = show(told or "empty", 60)
        raise MpsfleetError(f"{NODE} is not the name of one node ({shown}), so Slurm is told nothing")
    if told not in ("", name):
        message = f"slurmd calls this node {show(told, 60)} and node.toml {name}, so Slurm is told nothing"
        raise MpsfleetError(f"{message}; correct mps_slurm_node_name and deploy again")
    return name


def _publish(host: Host, node: str, state: State, end: float) -> State:
    """Tell Slurm, and return the state after that; a failure is said, and the next run tries again."""
    from mpsfleet.node import publishing  # only where something is to be told

    if state.now is None:
        return state
    if not state.now.is_as(state.published):
        time.sleep(MOST_DELAY_S * os.urandom(1)[0] / 256)
    try:
        taken = publishing.publish(host, node, state.now, end - time.monotonic())
    except MpsfleetError as error:
        _say(str(error))
        return state
    if taken and not state.is_taken:
        _say(f"the {taken} of node {node} is somebody else's text, which stays, so Slurm is not told how the node is")
    state = state._replace(published=state.now, is_taken=taken is not None)
    health_state.keep(host, state)
    return state


def _is_mended_by_reset(report: Report) -> bool:
    """Tell whether resetting daemons helps: something critical is of that kind, and nothing is beyond it."""
    found = {each.code for each in report.findings}
    critical = {each.code for each in report.findings if each.severity == "critical"}
    return bool(critical & codes.MENDED_BY_RESET) and not found & codes.BEYOND_RESET


def _is_time(state: State) -> bool:
    return not 0 <= time.time() - state.reset_at < _BACK_OFF_S


def _start(host: Host) -> None:
    from mpsfleet.node import units  # only on an ill node

    try:
        units.tell(host, "start", "--no-block", HEAL, limit_s=_START_S)
    except NotInEffect as error:
        _say(str(error))


def _drain(host: Host, desired: Desired, node: str, state: State, end: float) -> None:
    """Drain this node where three health checks in a row found what fails jobs. There is no budget here."""
    cause = None if state.now is None or state.now.seen < _CERTAIN or state.is_drained else _cause(state.now.entries)
    limit_s = min(_DRAIN_S, end - time.monotonic())
    if cause is None or limit_s < 1:
        return
    gpu = () if cause.gpu is None else ("--gpu", str(cause.gpu))
    cluster = ("--cluster", desired.cluster) if desired.cluster else ()
    argv = (host.path(PROGRAM_LINK), "slurm", "drain", node, "--code", cause.code, *gpu, *cluster)
    answer = children.run((children.Command(argv, limit_s),))[0]
    if answer.rc in (OK, REFUSED):  # refused: somebody else has drained it, or it is in no state to be drained
        health_state.keep(host, state._replace(is_drained=True))
        return
    said = answer.err.strip().partition("\n")[0] or ("no answer in time" if answer.rc is None else f"exit {answer.rc}")
    _say(f"node {node} is not drained by itself for {cause.code}: {show(said, 300)}")


def _cause(entries: tuple[Entry, ...]) -> Entry | None:
    """Return the finding that drains, the first by the order of codes.py. Pure."""
    return next(
        (
            each
            for each in entries
            if (each.severity, each.origin) == ("critical", "node") and codes.BY_NAME[each.code].drain
        ),
        None,
    )


def _say(sentence: str) -> None:
    journal.say(f"hook health-check: {show(sentence, 400)}")
