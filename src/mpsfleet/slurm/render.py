"""Nodes and outcomes of steps as a line for a person or as JSON of schema 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import Refused
from mpsfleet.show import show
from mpsfleet.slurm.drains import Action, our_reason
from mpsfleet.slurm.lines import SCHEMA, reason_text

if TYPE_CHECKING:
    from mpsfleet.slurm.gres import Gres
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.steps import Outcome


def node_line(node: Node) -> str:
    """Give one line: name, state, GRES, and the reason with who set it."""
    gres = ",".join(_gres_word(each) for each in node.gres) or "no GRES"
    line = f"{node.name}  {show(node.state.raw, 80)}  {show(gres)}"
    if node.reason is None:
        return line
    by = f" [{show(node.reason.user)}]" if node.reason.user else ""
    ours = " (ours)" if our_reason(node) is not None else ""
    return f"{line}  {show(node.reason.text)}{by}{ours}"


def _gres_word(gres: Gres) -> str:
    return ":".join(each for each in (gres.name, gres.type, str(gres.count)) if each)


def node_json(node: Node) -> dict[str, object]:
    """Give a node as one object; texts are shown, so a program must not compare reasons by them."""
    return {
        "node": node.name,
        **_state_json(node),
        "base": node.state.base.value,
        "flags": sorted(show(each) for each in node.state.flags),
        "drained": node.state.drained,
        "has_jobs": node.state.has_jobs,
        "responding": node.state.responding,
        "ours": our_reason(node) is not None,
        "reason_time": None if node.reason is None else node.reason.time,
        "hostname": _shown(node.hostname),
        "address": _shown(node.address),
        "version": _shown(node.version),
        "boot_time": node.boot_time,
        "gres": [{"name": each.name, "type": each.type, "count": each.count} for each in node.gres],
        "gres_used": _shown(node.gres_used),
        "partitions": [show(each) for each in node.partitions],
    }


def outcome_json(outcome: Outcome) -> dict[str, object]:
    """Give what came of a drain or an undrain as one object."""
    error = None if outcome.error is None else show(outcome.error, 1000)
    is_refused = isinstance(outcome.error, Refused)
    return {
        "schema": SCHEMA,
        "node": show(outcome.node),
        "changed": outcome.changed,
        "action": outcome.action.value,
        "why": show(outcome.why, 1000),
        "before": None if outcome.before is None else _state_json(outcome.before),
        "after": None if outcome.after is None else _state_json(outcome.after),
        "refused": error if is_refused else None,
        "failed": None if is_refused else error,
        "dry_run": outcome.dry_run,
    }


def outcome_line(outcome: Outcome) -> str:
    """Give what came of a step that did not fail, as one sentence."""
    name = show(outcome.node)
    if outcome.action is Action.NONE:
        return f"{name}: nothing to do. {outcome.why}"
    if outcome.dry_run:
        return f"{name}: would {outcome.action.value} (dry run). {outcome.why}"
    state = f", state {show(outcome.after.state.raw, 80)}" if outcome.after is not None else ""
    return f"{name}: {outcome.action.value}ed{state}."


def _state_json(node: Node) -> dict[str, object]:
    return {
        "state": show(node.state.raw),
        "reason": _shown(reason_text(node)),
        "reason_user": _shown(None if node.reason is None else node.reason.user),
    }


def _shown(text: str | None) -> str | None:
    return None if text is None else show(text, 300)
