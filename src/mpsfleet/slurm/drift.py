"""Where Slurm's registration and the inventory drift apart: unknown names, missing GRES, states that need a look.

Pure; the inventory's map is the truth about names, and Slurm's answer the truth about what it will schedule.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.show import show
from mpsfleet.slurm import drains, states
from mpsfleet.slurm.gres import count_of
from mpsfleet.slurm.notices import INFO, Notice
from mpsfleet.slurm.states import Base

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mpsfleet.slurm.nodes import Node, NodeTable, Problem

_MOST_COMPARED = 256  # names that one name is compared with; likeness costs time for each


class Registry(NamedTuple):
    """Slurm's nodes, arranged for looking up: by name, by what their hosts are called, and the unreadable ones."""

    by_name: dict[str, Node]
    by_host: dict[str, str]
    problems: dict[str, Problem]
    has_sharing: bool  # some node of the inventory has gres/mps or gres/shard, so the site uses them


def registry(table: NodeTable, mapped: Iterable[str | None]) -> Registry:
    """Arrange an answer; `mapped` are the node names that the inventory gives its hosts."""
    by_name = {each.name: each for each in table.nodes}
    by_host: dict[str, str] = {}
    for node in table.nodes:
        for alias in (node.hostname, node.address):
            if alias:
                by_host.setdefault(alias, node.name)
                by_host.setdefault(alias.split(".")[0], node.name)
    problems = {each.node: each for each in table.problems if each.node is not None}
    return Registry(by_name, by_host, problems, any(_shares(by_name[each]) for each in mapped if each in by_name))


def notices(host: str, name: str, slurm: Registry, *, is_clean: bool) -> tuple[Notice, ...]:
    """Say what Slurm's side of one host shows; `is_clean`: the node's own report found nothing."""
    node = slurm.by_name.get(name)
    if node is None:
        return (_not_readable(host, name, slurm),)
    return (*_gres_notices(node, slurm), *_state_notices(node, is_clean=is_clean))


def _not_readable(host: str, name: str, slurm: Registry) -> Notice:
    problem = slurm.problems.get(name)
    if problem is not None:
        return Notice("unknown", f"Slurm's answer about the node is not used: {problem.sentence}.")
    which = "by this host's short name" if name == host.split(".", maxsplit=1)[0] else f"called {name}"
    near = slurm.by_host.get(host) or slurm.by_host.get(host.split(".", maxsplit=1)[0]) or slurm.by_host.get(name)
    if near is None and len(slurm.by_name) <= _MOST_COMPARED:
        near = next(iter(difflib.get_close_matches(name, slurm.by_name, 1)), None)
    remedy = "Set mps_slurm_node_name of the host to its NodeName in slurm.conf"
    return Notice(
        "unknown", f"slurmctld knows no node {which}.", f"{remedy} (perhaps {near})." if near else f"{remedy}."
    )


def _shares(node: Node) -> bool:
    return bool(count_of(node.gres, "mps") or count_of(node.gres, "shard"))


def _gres_notices(node: Node, slurm: Registry) -> list[Notice]:
    if count_of(node.gres, "mps"):
        return []
    if _shares(node):
        return [Notice(INFO, "Slurm gives the node gres/shard and no gres/mps.")]
    # A site may use MPS without any sharing GRES; a node that differs from its fellows is drift.
    severity = "warn" if slurm.has_sharing or not count_of(node.gres, "gpu") else INFO
    missing = "gres/gpu" if not count_of(node.gres, "gpu") else "gres/mps"
    return [
        Notice(
            severity,
            f"Slurm gives the node no {missing}, so no job can ask for it there.",
            "Compare the node's Gres in slurm.conf and gres.conf with those of the other GPU nodes.",
        ),
    ]


def _state_notices(node: Node, *, is_clean: bool) -> list[Notice]:
    state, ours = node.state, drains.our_reason(node)
    if is_clean and ours is not None:
        sentence = f"Nothing was found, and the node is still drained by mpsfleet ({ours})."
        return [Notice(INFO, sentence, "Give it back with `mpsfleet slurm undrain NODE`.")]
    if states.INVALID_REG in state.flags:
        told = show(node.reason.text) if node.reason else "no reason is given"
        sentence = f"The node registered with other resources than slurm.conf gives it ({told})."
        return [Notice("warn", sentence, "Make slurm.conf, gres.conf and the node's GPUs agree; restart its slurmd.")]
    if ours is None and (state.is_drain or state.base is Base.DOWN or not state.responding):
        told = f": {show(node.reason.text)}" if node.reason else ""
        return [Notice(INFO, f"Slurm has the node in state {show(state.raw, 80)}{told}.")]
    return []
