"""Whether slurm.conf is fit for MPS as a whole: types, selection, hooks, users, the jobs' /tmp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpsfleet.slurm.lint.findings import Finding, Place
from mpsfleet.slurm.lint.gres_conf import SHARED
from mpsfleet.slurm.lint.slurm_conf import HOOKS
from mpsfleet.slurm.lint.told import shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.lint.settings import Setting
    from mpsfleet.slurm.lint.slurm_conf import SlurmConf
    from mpsfleet.slurm.lint.told import Told

DEFAULT_PIPE_DIRECTORY = "/run/nvidia-mps/node"
_OURS = "mpsfleet"
_HOOKS = (  # key, as written, code where it is not set
    ("prolog", "Prolog", "prolog-missing"),
    ("epilog", "Epilog", "epilog-missing"),
    ("taskprolog", "TaskProlog", "task-prolog-missing"),
    ("healthcheckprogram", "HealthCheckProgram", "health-check-missing"),
)
_ALLOC = frozenset({"alloc", "contain", "x11", "nohold"})  # each of them has slurmd run the prolog at allocation
_PRIVATE = ("/tmp/", "/dev/shm/")  # noqa: S108  compared, never opened
_TMP_PLUGINS = ("job_container/tmpfs", "namespace/tmpfs")


@dataclass(frozen=True)
class Site:
    """What the files do not say."""

    pipe_directory: str = DEFAULT_PIPE_DIRECTORY
    is_multi_user: bool = False


def judge(conf: SlurmConf, told: tuple[Told, ...], site: Site) -> Iterator[Finding]:
    """Give what is wrong with slurm.conf; `told` are the nodes that were asked about."""
    yield from _repeated_nodes(conf)
    yield from _types(conf, told)
    has_gpus = any(each.claimed("gpu") or each.of("gpu") for each in told)
    if any(map(shares, told)):
        yield from _selection(conf)
        yield from _filling(conf, told)
        yield from _users(conf, told, site)
    if has_gpus:
        yield from _hooks(conf)
        yield from _tmp(conf, site)


def _repeated_nodes(conf: SlurmConf) -> Iterator[Finding]:
    seen: dict[str, Place] = {}
    for line in conf.nodes:
        for name in line.names:
            if name in seen:
                there = f"{seen[name].file}:{seen[name].line}"
                yield Finding("node-repeated", line.place, f"the node has a NodeName line already, at {there}", (name,))
            seen.setdefault(name, line.place)


def _types(conf: SlurmConf, told: tuple[Told, ...]) -> Iterator[Finding]:
    setting = conf.get("grestypes")
    known = {each.strip() for each in setting.value.split(",")} if setting else set()  # of one case (22.05, 24.11)
    place = setting.place if setting else Place(conf.path, 0)
    if setting and known.issuperset(SHARED):
        yield Finding("gres-types-both", place, f"GresTypes is {setting.value}, with both mps and shard")
    for name in sorted({gres.name for each in told for gres in each.line.claimed}):
        if name not in known:
            what = f"GresTypes is {setting.value}" if setting else "GresTypes is not set"
            nodes = tuple(host for each in told if each.claimed(name) for host in each.names)
            yield Finding("gres-types", place, f"{what}, and nodes have Gres={name}", nodes)


def _selection(conf: SlurmConf) -> Iterator[Finding]:
    setting = conf.get("selecttype")
    if setting is None:
        yield Finding("select-type-unset", Place(conf.path, 0), "SelectType is not set")
    elif setting.value.lower() != "select/cons_tres":
        yield Finding("select-type", setting.place, f"SelectType is {setting.value}, and nodes have mps or shard")


def _filling(conf: SlurmConf, told: tuple[Told, ...]) -> Iterator[Finding]:
    setting = conf.get("selecttypeparameters")
    words = {each.strip().upper() for each in setting.value.split(",")} if setting else set()
    nodes = tuple(name for each in told if each.claimed("shard") and each.claimed("gpu") > 1 for name in each.names)
    if nodes and "LL_SHARED_GRES" not in words:
        place = setting.place if setting else Place(conf.path, 0)
        yield Finding("shard-fills-first", place, "SelectTypeParameters has no LL_SHARED_GRES", nodes)


def _hooks(conf: SlurmConf) -> Iterator[Finding]:
    for key, name, code in _HOOKS:
        if conf.get(key) is None:
            yield Finding(code, Place(conf.path, 0), f"{name} is not set")
    for setting in conf.scalars:
        if setting.key.lower() in HOOKS and _OURS not in setting.value:
            yield Finding("hook-other", setting.place, f"{setting.key} is {setting.value}")
    flags, prolog = conf.get("prologflags"), conf.get("prolog")
    if prolog is not None and not runs_at_allocation(flags):
        what = f"PrologFlags is {flags.value}" if flags else "PrologFlags is not set"
        yield Finding("prolog-flags", (flags or prolog).place, f"{what}, without Alloc")


def runs_at_allocation(flags: Setting | None) -> bool:
    """Tell whether PrologFlags has slurmd run the Prolog when the job gets its nodes (slurm.conf(5))."""
    return flags is not None and any(each.strip().lower() in _ALLOC for each in flags.value.split(","))


def _users(conf: SlurmConf, told: tuple[Told, ...], site: Site) -> Iterator[Finding]:
    if site.is_multi_user:
        return
    sharing = {name: None for each in told if shares(each) for name in each.names}
    for partition in conf.partitions:
        nodes = tuple(each for each in sharing if partition.has(each))
        if nodes and not partition.is_one_users:
            message = f"partition {partition.name} places several users on a node that shares GPUs"
            yield Finding("several-users", partition.place, message, nodes)


def _tmp(conf: SlurmConf, site: Site) -> Iterator[Finding]:
    setting = conf.get("jobcontainertype") or conf.get("namespacetype")
    is_in_tmp = any(f"{site.pipe_directory}/".startswith(top) for top in _PRIVATE)
    if setting is not None and setting.value.lower() in _TMP_PLUGINS and is_in_tmp:
        message = f"{setting.key} is {setting.value}, and the pipe directory is {site.pipe_directory}"
        yield Finding("private-tmp", setting.place, message)
