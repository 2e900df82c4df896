"""Where what Slurm registers, what the inventory says and what runs on a node drift apart, for one host.

Pure; the inventory's map is the truth about names, Slurm's answer the truth about what it will schedule, and the node's
report the truth about what runs. What is not told proves nothing. A node that is off, in maintenance or to be rebooted
is so on purpose: it drifts in nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import codes
from mpsfleet.show import show
from mpsfleet.slurm import drains, drift_gres, drift_names, reasons, states
from mpsfleet.slurm.drift_kinds import Drift, drift
from mpsfleet.slurm.gres import count_of
from mpsfleet.slurm.notices import INFO, Notice
from mpsfleet.slurm.states import Base

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mpsfleet.slurm.nodes import Node, NodeTable, Problem
    from mpsfleet.slurm.presence import Presence
    from mpsfleet.slurm.reports import Report

# What slurmctld writes where a node registers fewer than slurm.conf gives it (gres.c in Slurm's src/interfaces).
_FEWER = re.compile(r"gres/([a-z_]{1,32}) count (?:reported lower than configured|too low) \(([0-9]+) < ([0-9]+)\)")
_WITHOUT_JOB, _QUIESCED = "client-without-job", "quiesced"


class Registry(NamedTuple):
    """Slurm's nodes, arranged for looking up: by name, by what their hosts are called, and the unreadable ones."""

    by_name: dict[str, Node]
    by_host: dict[str, str]
    problems: dict[str, Problem]
    has_sharing: bool  # some node of the inventory has gres/mps or gres/shard, so the site uses them
    models: frozenset[str] = frozenset()  # of all GPUs that the reports tell of


def registry(table: NodeTable, mapped: Iterable[str | None], told: Iterable[Presence | None] = ()) -> Registry:
    """Arrange an answer; `mapped` are the node names that the inventory gives its hosts, `told` what reports tell."""
    by_name = {each.name: each for each in table.nodes}
    by_host: dict[str, str] = {}
    for node in table.nodes:
        for alias in (node.hostname, node.address):
            if alias:
                by_host.setdefault(alias, node.name)
                by_host.setdefault(alias.split(".")[0], node.name)
    problems = {each.node: each for each in table.problems if each.node is not None}
    shares = any(drift_gres.shared_names(by_name[each]) for each in mapped if each in by_name)
    models = frozenset(gpu.model for each in told if each is not None for gpu in each.gpus)
    return Registry(by_name, by_host, problems, shares, models)


def is_planned(node: Node) -> bool:
    """Tell whether the node is out of reach, or about to be, because somebody or power saving wanted it so."""
    state = node.state
    return state.is_power or state.is_maintenance or state.is_reboot or state.base is Base.FUTURE


def of_host(host: str, name: str, slurm: Registry, report: Report | None) -> tuple[Drift, ...]:
    """Give the drift of one host that the inventory gives one literal name; `report`: one that may be relied on."""
    node = slurm.by_name.get(name)
    if node is None:
        if name in slurm.problems:
            return ()  # there is no answer to compare with
        found = (drift_names.unknown(host, name, slurm.by_name, slurm.by_host),)
        return tuple(each._replace(host=host) for each in found)
    told = None if report is None else report.mps
    return tuple(each._replace(host=host, node=name) for each in _of_node(node, slurm, report, told))


def _of_node(node: Node, slurm: Registry, report: Report | None, told: Presence | None) -> Iterator[Drift]:
    if is_planned(node):
        return
    found = frozenset() if report is None else frozenset(each.code for each in report.findings)
    invalid = registration(node, told)
    yield from invalid
    for each in drift_gres.compare(node, told, is_site_sharing=slurm.has_sharing, models=slurm.models):
        if each.kind == "mps-not-running" and _QUIESCED in found:
            yield each._replace(mend=codes.BY_NAME[_QUIESCED].remedy)
        elif not invalid or each.kind == "allocated-without-daemon":  # its Gres is what it registered, to be mended
            yield each
    if _WITHOUT_JOB in found:
        sentence = "A process of no job is a client of MPS on the node, on GPUs that Slurm counts as free."
        yield drift("process-without-job", sentence, codes.BY_NAME[_WITHOUT_JOB].remedy)


def registration(node: Node, told: Presence | None = None) -> tuple[Drift, ...]:
    """Say that the node registered with less than slurm.conf gives it, which count is meant and where to mend it."""
    if states.INVALID_REG not in node.state.flags or is_planned(node):
        return ()
    reason = node.reason.text if node.reason else ""
    cause = show(reason) if reason else "no reason is given"
    if reason.startswith(reasons.TAG) or reason == reasons.GIVEN_BACK:
        # 24.11 without accounting drains the node and keeps the reason of an older drain, ours as any other.
        cause = "slurmctld's log says which; the reason is one of before"
    sentence = f"The node registered with other resources than slurm.conf gives it ({cause})."
    match = _FEWER.search(reason)
    if match is None:
        mend = "Make slurm.conf, gres.conf and the node's GPUs agree; restart its slurmd."
        has_now = ",".join(":".join(filter(None, (each.name, each.type, str(each.count)))) for each in node.gres)
        mend = f"It registered {show(has_now)}. {mend}" if has_now else mend
        return (drift("invalid-registration", sentence, mend),)
    name, has, wanted = match.group(1), int(match.group(2)), int(match.group(3))
    return (drift("invalid-registration", sentence, f"{_which_side(name, has, wanted, told)} {_again(node)}"),)


def _which_side(name: str, has: int, wanted: int, told: Presence | None) -> str:
    found = told.found if told is not None and name == "gpu" else None
    if found is not None and found >= wanted:
        return f"nvidia-smi shows {found} GPUs there: correct the gpu lines of the node's gres.conf."
    if found is not None:
        return f"nvidia-smi shows {found} GPUs there: bring the others back, or set gpu to {found} in slurm.conf."
    return (
        f"Its slurmd counts {has} of gres/{name} by the slurm.conf and gres.conf there, slurmctld {wanted}: correct "
        "the node's files where slurmctld is right, else the controller's slurm.conf."
    )


def _again(node: Node) -> str:
    restart = "Then `systemctl restart slurmd` on it"
    return f"{restart}, and `scontrol update NodeName=NODE State=RESUME`." if node.state.is_drain else f"{restart}."


def notices(
    host: str, name: str, slurm: Registry, report: Report | None = None, *, is_clean: bool
) -> tuple[Notice, ...]:
    """Say what Slurm's side of one host shows; `is_clean`: the node's own report found nothing.

    What the node's own report says already is not said again.
    """
    found = [each.notice for each in of_host(host, name, slurm, report) if not _is_reported(each, report)]
    node = slurm.by_name.get(name)
    if node is not None:
        return (*found, *_gres_notices(node, found), *_state_notices(node, is_clean=is_clean))
    if not found:
        return (Notice("unknown", f"Slurm's answer about the node is not used: {slurm.problems[name].sentence}."),)
    return tuple(found)


def _is_reported(found: Drift, report: Report | None) -> bool:
    if found.kind == "process-without-job":
        return True
    return found.kind == "mps-not-running" and report is not None and report.verdict == "critical"


def _gres_notices(node: Node, found: list[Notice]) -> list[Notice]:
    """Say which way of sharing the node has, where that is no drift."""
    names = drift_gres.shared_names(node)
    if "mps" in names or not count_of(node.gres, "gpu") or found or is_planned(node):
        return []
    if names:
        return [Notice(INFO, "Slurm gives the node gres/shard and no gres/mps.")]
    return [Notice(INFO, "Slurm gives the node no gres/mps, so no job can ask for it there.")]


def _state_notices(node: Node, *, is_clean: bool) -> list[Notice]:
    state, ours = node.state, drains.our_reason(node)
    if is_clean and ours is not None:
        sentence = f"Nothing was found, and the node is still drained by mpsfleet ({ours})."
        return [Notice(INFO, sentence, "Give it back with `mpsfleet slurm undrain NODE`.")]
    if states.INVALID_REG in state.flags:
        return []  # told as drift
    if ours is None and (state.is_drain or state.base is Base.DOWN or not state.responding):
        told = f": {show(node.reason.text)}" if node.reason else ""
        return [Notice(INFO, f"Slurm has the node in state {show(state.raw, 80)}{told}.")]
    return []
