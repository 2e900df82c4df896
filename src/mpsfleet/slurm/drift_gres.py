"""What Slurm registers of a node's GPUs, beside what is on the node: counts, types, shares, allocations. Pure.

Nothing is concluded from what is not told. From a count alone less follows than it seems: shares of a GPU may be any
number, a site may share fewer GPUs than MPS serves, leave a GPU out of Slurm, and call a type by any word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mpsfleet.show import show
from mpsfleet.slurm import tres
from mpsfleet.slurm.drift_kinds import Drift, drift
from mpsfleet.slurm.gres import count_of
from mpsfleet.slurm.notices import INFO
from mpsfleet.slurm.states import Base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.gres import Gres
    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.presence import Gpu, Presence

SHARING = ("mps", "shard")
_COMPARE = "Compare the node's Gres in slurm.conf and gres.conf with those of the other GPU nodes."
_FILES = "Make the node's Gres in slurm.conf and its gres.conf say what is there (`mpsfleet slurm lint`)"
_RESTART = "then restart slurmctld and the node's slurmd."
_RESET = "`ansible-playbook mpsfleet.mps.reset_mps --limit HOST`, or `mpsfleet node reset{}` on the drained node."
# Words that are models wherever they are a Type; another word is one where it is part of a GPU's name in the fleet.
_MODELS = frozenset(
    """
    k80 p4 p40 p100 v100 t4 a2 a10 a16 a30 a40 a100 a800 l4 l40 l40s h20 h100 h200 h800 gh200 b100 b200 gb200
    """.split(),  # noqa: SIM905  read more easily so
)
_DIGIT = re.compile(r"[0-9]")


def shared_names(node: Node) -> tuple[str, ...]:
    """Give which of gres/mps and gres/shard Slurm has of the node."""
    return tuple(name for name in SHARING if count_of(node.gres, name))


def compare(node: Node, told: Presence | None, *, is_site_sharing: bool, models: frozenset[str]) -> Iterator[Drift]:
    """Give how a node's GRES differ from what its report tells, None where it tells nothing.

    `is_site_sharing`: Slurm shares GPUs of some node of the inventory; `models`: of all GPUs that the reports tell of.
    """
    found = tuple(_gpus(node, told))
    yield from found
    if told is not None and not found:
        yield from _types(node, told, models)
    if not count_of(node.gres, "gpu"):
        return
    names = shared_names(node)
    if not names and is_site_sharing and (told is None or told.instances):
        sentence = "Slurm gives the node no gres/mps, so no job can ask for it there."
        yield drift("mps-not-registered", sentence, _COMPARE)
    for name in names:
        if told is not None:
            yield from _shared(node, name, told)
            if told.under_mps and not found:
                yield from _more_shared(node, name, told)


def _gpus(node: Node, told: Presence | None) -> Iterator[Drift]:
    has = count_of(node.gres, "gpu")
    if not has:
        if told is None or told.found != 0:
            yield drift("gpu-count", "Slurm gives the node no gres/gpu, so no job can ask for it there.", _COMPARE)
        return
    if told is None or told.found is None:
        return
    under = min(len(told.under_mps), told.found)
    if has > told.found:
        sentence = f"Slurm gives the node {_gpu_word(has)}, and nvidia-smi shows {told.found} there."
        mend = f"Bring the GPUs back (`mpsfleet node audit` says what it sees). If they are gone for good: {_FILES}, "
        yield drift("gpu-count", sentence, mend + _RESTART)
    elif has < under:
        sentence = f"Slurm gives the node {_gpu_word(has)}, and {under} are under MPS there."
        yield drift("gpu-count", sentence, f"{_FILES}, {_RESTART}")


def _gpu_word(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _types(node: Node, told: Presence, models: frozenset[str]) -> Iterator[Drift]:
    """Compare types where they are models: by lower case and part of the name, as Slurm's AutoDetect does."""
    if told.found is None or not told.gpus:
        return
    for kind in dict.fromkeys(each.type for each in node.gres if each.name == "gpu" and each.type):
        word = kind.lower()
        is_model = word in _MODELS or (bool(_DIGIT.search(word)) and any(word in each for each in models))
        wanted = count_of((each for each in node.gres if each.type == kind), "gpu")
        there = sum(word in each.model for each in told.gpus)
        if is_model and there < wanted:
            seen = ", ".join(sorted({each.model for each in told.gpus}))
            sentence = (
                f"Slurm gives the node {_gpu_word(wanted)} of type {show(kind, 60)}, and {there} of that model are "
                f"there ({show(seen)})."
            )
            yield drift("gpu-type", sentence, f"{_FILES}, {_RESTART}")


def _shared(node: Node, name: str, told: Presence) -> Iterator[Drift]:
    if not told.instances:
        if name == "mps":  # gres/shard is used without MPS too
            sentence = "Slurm sends jobs for gres/mps to the node, and no control daemon is set up there."
            mend = "Deploy MPS there (`ansible-playbook mpsfleet.mps.deploy_mps --limit HOST`), or take mps out of its "
            yield drift("mps-not-running", sentence, f"{mend}Gres in slurm.conf and gres.conf.", None, "warn")
        return
    silent = [each for each in told.instances if each.serves is False]
    takes_jobs = not node.state.is_drain and node.state.base is not Base.DOWN and node.state.responding
    for each in silent:
        yield _not_running(name, each.name, takes_jobs=takes_jobs)
    if silent and in_use(node, name):
        yield from _unserved(node, name, told, is_none_serving=len(silent) == len(told.instances))


def _not_running(name: str, instance: str, *, takes_jobs: bool) -> Drift:
    gpu = int(instance) if instance.isdigit() else None
    whose = "its control daemon does not serve" if gpu is None else f"the control daemon of GPU {gpu} does not serve"
    if not takes_jobs:
        sentence = f"Slurm has gres/{name} on the node, and {whose}; no job is sent there as the node is now."
        return drift("mps-not-running", sentence, _reset(gpu), gpu, INFO)
    sentence = f"Slurm sends jobs for gres/{name} to the node, and {whose}, so they run without MPS or fail."
    return drift("mps-not-running", sentence, _reset(gpu), gpu)


def _reset(gpu: int | None) -> str:
    return _RESET.format("" if gpu is None else f" --gpu {gpu}")


def _unserved(node: Node, name: str, told: Presence, *, is_none_serving: bool) -> Iterator[Drift]:
    """Give the GPUs that jobs have shares of without a daemon.

    Slurm counts devices in its own order, the node by minor number; which is which is not told. So it is certain where
    no daemon serves, where a job is recorded on the GPU and Slurm has given none as a whole, and where jobs have shares
    of more GPUs than daemons serve.
    """
    jobs = "See them with `squeue --nodelist=NODE`; let them end, or requeue them (`scontrol requeue JOBID`). Then: "
    if is_none_serving:
        sentence = f"Jobs have gres/{name} of the node now, and its control daemon does not serve: they run beside MPS."
        yield drift("allocated-without-daemon", sentence, jobs + _reset(None))
        return
    on = [each for each in told.under_mps if each.jobs and told.serves(each.instance) is False and _index(each) >= 0]
    if on and node.gres_used_parsed is not None and not count_of(node.gres_used_parsed, "gpu"):
        for each in on:
            gpu = _index(each)
            sentence = f"Jobs have gres/{name} of GPU {gpu} now, and its control daemon does not serve."
            yield drift("allocated-without-daemon", sentence, jobs + _reset(gpu), gpu)
        return
    served = sum(told.serves(each.instance) is not False for each in told.under_mps)
    devices = devices_in_use(node, name)
    if told.under_mps and devices is not None and devices > served:
        sentence = f"Jobs have gres/{name} of {_gpu_word(devices)} now, and control daemons serve {served}."
        yield drift("allocated-without-daemon", sentence, jobs + _reset(None))


def _index(gpu: Gpu) -> int:
    return int(gpu.instance) if gpu.instance.isdigit() else -1


def _more_shared(node: Node, name: str, told: Presence) -> Iterator[Drift]:
    """Compare the GPUs that have shares, where Slurm lists them, with those under MPS; fewer is a site's choice."""
    shares = [share for each in _used(node, name) for share in each.shares or ()]
    devices, under = sum(each.total > 0 for each in shares), len(told.under_mps)
    if devices > under:
        sentence = f"Slurm gives shares (gres/{name}) of {_gpu_word(devices)} of the node, and {under} are under MPS."
        mend = f"Take the File of the others out of the {name} lines of its gres.conf and lower its Gres in slurm.conf"
        yield drift("mps-count", sentence, f"{mend} (`mpsfleet slurm lint --gpus-json`), {_RESTART}")


def in_use(node: Node, name: str) -> bool:
    """Tell whether Slurm has given shares of that name to jobs on the node; False too where it does not say."""
    return any(each.count for each in _used(node, name)) or bool(tres.count_of(node.allocated or (), name))


def devices_in_use(node: Node, name: str) -> int | None:
    """Give of how many GPUs Slurm has given shares to jobs; None where it does not say."""
    found = [_devices(each) for each in _used(node, name)]
    known = [each for each in found if each is not None]
    return sum(known) if found and len(known) == len(found) else None


def _devices(used: Gres) -> int | None:
    if used.shares is not None:
        return sum(bool(each.used) for each in used.shares)
    return None if used.indices is None else len(used.indices)  # up to 22.05


def _used(node: Node, name: str) -> list[Gres]:
    return [each for each in node.gres_used_parsed or () if each.name == name]
