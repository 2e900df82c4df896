"""The simulated sinfo: partitions, nodes (-N), reasons (-R), with -h and -o."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mpsfleet.sim.slurm import columns, show
from mpsfleet.sim.slurm.talk import NoAnswer, complain, slurmctld
from mpsfleet.slurm.hostlist import compact

if TYPE_CHECKING:
    from mpsfleet.sim.slurm.cluster import Cluster, Node

_VALUED = {"-o": "format", "--format": "format", "-n": "nodes", "--nodes": "nodes", "-t": "states", "-p": "partition"}
_USUAL = "%9P %.5a %.10l %.6D %.6t %N"
_PER_NODE = "%10N %.6D %.9P %6t"
_REASONS = "%20E %9u %19H %N"
_HEADINGS = {
    "P": "PARTITION",
    "a": "AVAIL",
    "l": "TIMELIMIT",
    "D": "NODES",
    "t": "STATE",
    "T": "STATE",
    "N": "NODELIST",
    "n": "HOSTNAMES",
    "E": "REASON",
    "u": "USER",
    "H": "TIMESTAMP",
    "G": "GRES",
}
_LONG = {"drain": "drained", "drng": "draining", "mix": "mixed", "alloc": "allocated"}


def main(argv: list[str]) -> int:
    """Print; the first word is the root. Exit statuses are sinfo's."""
    found, _ = columns.options(argv[1:], _VALUED)
    is_reasons = "R" in found or "list-reasons" in found
    is_per_node = "N" in found or "Node" in found
    form = found.get("format") or (_REASONS if is_reasons else _PER_NODE if is_per_node else _USUAL)
    try:
        with slurmctld(argv[0]) as cluster:
            nodes = [each for each in cluster.nodes.values() if each.reason or not is_reasons]
            groups: dict[tuple[str, ...], list[str]] = {}
            for node in nodes:
                values = _values(cluster, node)
                key = tuple(f"{letter}{values[letter]}" for letter in values if f"{letter}" in _letters(form))
                groups.setdefault((*key, node.name if is_per_node else ""), []).append(node.name)
            lines = [_line(cluster, form, names) for names in groups.values()]
    except NoAnswer as error:
        return complain("slurm_load_partitions", error)
    if not found.keys() & {"h", "noheader", "hR", "hN", "hNo"}:
        lines.insert(0, columns.line(form, _HEADINGS))
    sys.stdout.write("".join(f"{each}\n" for each in lines))
    return 0


def _letters(form: str) -> set[str]:
    return {match[-1] for match in columns.FIELD.findall(form)}


def _line(cluster: Cluster, form: str, names: list[str]) -> str:
    values = _values(cluster, cluster.nodes[names[0]])
    return columns.line(form, {**values, "N": compact(names), "n": compact(names), "D": str(len(names))})


def _values(cluster: Cluster, node: Node) -> dict[str, str]:
    short = short_state(show.state_of(cluster, node))
    return {
        "P": f"{cluster.partition}*",
        "a": "up",
        "l": "infinite",
        "t": short,
        "T": _LONG.get(short.rstrip("*"), short),
        "E": node.reason or "none",
        "u": node.reason_user or "Unknown",
        "H": show.moment(node.reason_time) if node.reason else "Unknown",
        "G": node.gres,
    }


def short_state(word: str) -> str:
    """Return sinfo's short form of a state word."""
    flags = word.split("+")
    sign = "*" if "NOT_RESPONDING" in flags else ""
    if "DRAIN" in flags and flags[0] != "DOWN":
        return ("drain" if flags[0] == "IDLE" else "drng") + sign
    return {"MIXED": "mix", "ALLOCATED": "alloc"}.get(flags[0], flags[0].lower()) + sign
