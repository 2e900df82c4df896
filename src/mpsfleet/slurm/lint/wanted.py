"""The lines of slurm.conf that serve MPS in a wanted way, beside those that are there: for their owner to merge.

Nothing here writes. A line is shown as it would be after the change, with the owner's other settings on it. A program
that the owner has set as a hook stays: it must call ours, and no second line of the kind is proposed, which would
silently replace it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.slurm.lint.gres_conf import SHARED
from mpsfleet.slurm.lint.judge_cluster import runs_at_allocation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mpsfleet.slurm.gres import Gres
    from mpsfleet.slurm.lint.findings import Place
    from mpsfleet.slurm.lint.settings import Setting
    from mpsfleet.slurm.lint.slurm_conf import SlurmConf
    from mpsfleet.slurm.lint.told import Told

NONE = "none"
WAYS = (*SHARED, NONE)
DEFAULT_SHARES = {"mps": 100, "shard": 4, NONE: 0}
_LONGEST = 2000
HOOKS = {  # as the deploy writes them on a node
    "Prolog": "/usr/lib/mpsfleet/hooks/prolog.sh",
    "Epilog": "/usr/lib/mpsfleet/hooks/epilog.sh",
    "TaskProlog": "/usr/lib/mpsfleet/hooks/task_prolog.sh",
}
ORDER = (
    "1. On every node: mpsfleet itself, for a Prolog that is not there drains the node.",
    "2. On every node: gres.conf (or the file it includes), then the new slurm.conf.",
    "3. On every node: restart slurmd. Running jobs go on.",
    "4. When all have started: the new slurm.conf on the controller, then restart slurmctld.",
    "Taking a resource away goes the other way round: slurmctld first, then the nodes.",
)


class Change(NamedTuple):
    """One line: as it is ("" where there is none) and as it would be."""

    place: Place | None
    before: str
    after: str


class Want(NamedTuple):
    """How GPUs are to be shared."""

    way: str  # "mps", "shard", or "none" for no sharing GRES at all
    per_gpu: int  # the shares of each GPU that is shared
    gpus: Mapping[str, int]  # by node how many of its GPUs are; those that gres.conf names, else all, where not said
    is_multi_user: bool = False


def changes(conf: SlurmConf, told: tuple[Told, ...], want: Want) -> tuple[Change, ...]:
    """Give the lines to change so that the nodes that were asked about share their GPUs in the wanted way."""
    way = want.way
    lines = {each.line.place: each for each in told if each.claimed("gpu") or each.of("gpu")}
    if not lines:
        return ()
    found: list[Change] = []
    if way != NONE:
        found += _listed(conf.get("grestypes"), "GresTypes", ("gpu", way), _no_longer(conf, lines, way))
        select = conf.get("selecttype")
        if select is None or select.value.lower() != "select/cons_tres":
            found.append(_scalar(select, "SelectType", "select/cons_tres"))
    found += [Change(None, "", f"{key}={path}") for key, path in HOOKS.items() if conf.get(key.lower()) is None]
    if not runs_at_allocation(conf.get("prologflags")):
        found += _listed(conf.get("prologflags"), "PrologFlags", ("Alloc",))
    for each in lines.values():
        found += _node(each, want)
    if not want.is_multi_user:
        names = [name for each in told if each.line.place in lines for name in each.names]
        found += _partitions(conf, names)
    return tuple(found)


def _partitions(conf: SlurmConf, names: list[str]) -> list[Change]:
    found = []
    for each in conf.partitions:
        if not each.is_one_users and any(map(each.has, names)):
            written = [(setting.key, setting.value) for setting in each.line.settings]
            kept = [pair for pair in written if pair[0].lower() != "exclusiveuser"]
            found.append(Change(each.place, _text(written), _text([*kept, ("ExclusiveUser", "YES")])))
    return found


def _no_longer(conf: SlurmConf, lines: Mapping[Place, Told], way: str) -> set[str]:
    """Give the other way's name, unless a node that is not asked about has it: both at once mislead jobs."""
    kept = {gres.name for each in conf.nodes if each.place not in lines for gres in each.claimed}
    return set(SHARED) - {way} - kept


def _listed(setting: Setting | None, key: str, names: tuple[str, ...], dropped: Collection[str] = ()) -> list[Change]:
    there = [each.strip() for each in setting.value.split(",") if each.strip()] if setting else []
    kept = [each for each in there if each.lower() not in dropped]
    wanted = [*kept, *(each for each in names if each.lower() not in {word.lower() for word in kept})]
    return [] if wanted == there else [_scalar(setting, key, ",".join(wanted))]


def _scalar(setting: Setting | None, key: str, value: str) -> Change:
    if setting is None:
        return Change(None, "", f"{key}={value}")
    return Change(setting.place, f"{setting.key}={setting.value}", f"{setting.key}={value}")


def _node(told: Told, want: Want) -> list[Change]:
    way = want.way
    claimed = told.line.claimed
    gpus = told.claimed("gpu") or sum(each.total for each in told.of("gpu"))
    kept = [_word(each) for each in claimed if each.name not in SHARED]
    if not told.claimed("gpu"):
        kept += [f"gpu:{each.type}:{each.total}" if each.type else f"gpu:{each.total}" for each in told.of("gpu")]
    named = len({file for each in told.of(way) for file in each.devices}) or gpus
    serving = max((want.gpus[each] for each in told.names if each in want.gpus), default=named)
    wanted = ",".join((*kept, *([f"{way}:{serving * want.per_gpu}"] if way != NONE else [])))
    same = {(each.name, each.count) for each in claimed if each.name in SHARED}
    if same == ({(way, serving * want.per_gpu)} if way != NONE else set()):
        return []
    written = [(each.key, each.value) for each in told.line.line.settings]
    after = [(key, value) for key, value in written if key.lower() != "gres"]
    position = next((at for at, (key, _) in enumerate(written) if key.lower() == "gres"), len(after))
    if wanted:
        after.insert(position, ("Gres", wanted))
    return [Change(told.line.place, _text(written), _text(after))]


def _word(gres: Gres) -> str:
    sockets = f"(S:{gres.sockets})" if gres.sockets else ""
    return ":".join(filter(None, (gres.name, gres.type, str(gres.count)))) + sockets


def _text(settings: list[tuple[str, str]]) -> str:
    return " ".join(f'{key}="{value}"' if re.search(r"\s", value) else f"{key}={value}" for key, value in settings)


def as_diff(changed: tuple[Change, ...]) -> str:
    """Give the changes as a person reads them: place, line before, line after."""
    rows = []
    for each in changed:
        rows.append(f"@@ {each.place.file}:{each.place.line}" if each.place else "@@ new line")
        rows += [f"{sign}{line[:_LONGEST]}" for sign, line in (("-", each.before), ("+", each.after)) if line]
    return "\n".join(rows)
