"""A fleet's verdict for a person and for a program: grouped lines, and the JSON of schema 1.

Equal sentences are said once for all the hosts they hold for, the most severe first. Text written by nodes was put
through `show` where it entered; host names and everything else are put through it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.codes import SEVERITIES
from mpsfleet.show import show
from mpsfleet.slurm.drains import Action, our_reason
from mpsfleet.slurm.hostlist import compact
from mpsfleet.slurm.notices import rank
from mpsfleet.slurm.verdict import WELL

if TYPE_CHECKING:
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.verdict import FleetVerdict, HostVerdict

SCHEMA = 1
_HOSTS_LIMIT = 1000  # characters of one compact host list
_LINE_LIMIT = 1000


def grouped(fleet: FleetVerdict) -> list[str]:
    """Give the lines a person reads: `HOSTS: SEVERITY: sentence Remedy`, then the drains, then a count."""
    lines: list[str] = []
    if fleet.slurm.error is not None:
        lines.append(show(f"slurm: unknown: {fleet.slurm.error} Nothing is drained.", _LINE_LIMIT))
    lines += [
        show(f"slurm: unknown: {each.sentence}.", _LINE_LIMIT)
        for each in fleet.slurm.table.problems
        if each.node is None
    ]
    lines += [show(f"ledger: unknown: {each}", _LINE_LIMIT) for each in fleet.troubles]
    said: set[str] = set()
    for severity, sentence, remedy, hosts in _groups(fleet):
        tail = f" {remedy}" if remedy and remedy not in said else ""
        said.add(remedy)
        lines.append(_line(hosts, f"{severity}: {sentence}{tail}"))
    lines += _drain_lines(fleet)
    well = [each.host for each in fleet.hosts if each.verdict == "ok" and not each.is_off]
    if well:
        lines.append(_line(well, "ok"))
    lines.append(_count(fleet))
    return lines


def _groups(fleet: FleetVerdict) -> list[tuple[str, str, str, list[str]]]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for host in fleet.hosts:
        for notice in host.notices:
            groups.setdefault((notice.severity, notice.sentence, notice.remedy), []).append(host.host)
    ordered = sorted(groups.items(), key=lambda each: (rank(each[0][0]), -len(each[1]), each[0][1], each[1]))
    return [(severity, sentence, remedy, hosts) for (severity, sentence, remedy), hosts in ordered]


def _drain_lines(fleet: FleetVerdict) -> list[str]:
    """Say for each node with something critical, and for each that is drained by us, what becomes of it."""
    groups: dict[str, list[str]] = {}
    for host in fleet.hosts:
        is_told = host.decision.action is not Action.NONE or host.verdict == "critical"
        if is_told or (host.slurm is not None and our_reason(host.slurm) is not None and host.audit.state == WELL):
            groups.setdefault(_drain_words(host), []).append(host.host)
    return [_line(hosts, words) for words, hosts in sorted(groups.items())]


def _drain_words(host: HostVerdict) -> str:
    decision = host.decision
    if decision.action is Action.NONE:
        is_out = host.slurm is not None and our_reason(host.slurm) is not None and host.audit.state == WELL
        return f"{'not given back' if is_out else 'no drain'}: {decision.why}"
    if decision.action is Action.UNDRAIN:
        return f"given back: {decision.reason}" if decision.done else f"undrain, not done: {decision.why}"
    if decision.done:
        return f"drained: {decision.reason}"
    return f"drain, not done: {decision.why}"


def _count(fleet: FleetVerdict) -> str:
    asked = [host for host in fleet.hosts if not host.is_off]
    counts = {each: sum(host.verdict == each for host in asked) for each in reversed(SEVERITIES)}
    counts["off"] = len(fleet.hosts) - len(asked)
    told = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    return f"{len(fleet.hosts)} hosts: {told or 'none asked, so the fleet is unknown'}; verdict {fleet.verdict}."


def _line(hosts: list[str], words: str) -> str:
    return show(f"{show(compact(hosts), _HOSTS_LIMIT)}: {words}", 2 * _LINE_LIMIT)


def as_json(fleet: FleetVerdict, *, changed: bool) -> dict[str, object]:
    """Give the verdict as one object of schema 1; every text in it is printable."""
    return {
        "schema": SCHEMA,
        "verdict": fleet.verdict,
        "changed": changed,
        "slurm": {
            "asked": fleet.slurm.error is None,
            "cluster": _shown(fleet.slurm.cluster),
            "error": _shown(fleet.slurm.error, _LINE_LIMIT),
        },
        "troubles": [show(each, _LINE_LIMIT) for each in fleet.troubles],
        "hosts": [_host(each) for each in fleet.hosts],
        "lines": grouped(fleet),
    }


def _host(host: HostVerdict) -> dict[str, object]:
    decision = host.decision
    return {
        "host": show(host.host),
        "node": _shown(host.node),
        "verdict": host.verdict,
        "message": show(host.message, _LINE_LIMIT),
        "state": _shown(None if host.slurm is None else host.slurm.state.raw),
        "reason": _shown(reason_text(host.slurm)),
        "decision": {
            "action": decision.action.value,
            "reason": None if decision.reason is None else str(decision.reason),
            "why": show(decision.why, _LINE_LIMIT),
            "done": decision.done,
        },
    }


def reason_text(node: Node | None) -> str | None:
    """Give the text of a node's reason, None where there is none."""
    return None if node is None or node.reason is None else node.reason.text


def _shown(text: str | None, limit: int = 300) -> str | None:
    return None if text is None else show(text, limit)
