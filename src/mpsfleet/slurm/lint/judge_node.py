"""Whether the files agree on what a node has: GPUs and shares, counts, types and device files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.slurm.lint.findings import Finding
from mpsfleet.slurm.lint.gres_conf import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.lint.gres_conf import GresConf
    from mpsfleet.slurm.lint.told import Told

_PERCENT = 100


def judge(told: Told) -> Iterator[Finding]:
    """Give what is wrong for the nodes."""
    for finding in (*_gpus(told), *(each for name in SHARED for each in _shared(told, name)), *_both(told)):
        yield finding._replace(nodes=told.names)


def together(gres: GresConf, told: tuple[Told, ...]) -> Iterator[Finding]:
    """Give what is wrong where all these nodes read the one file: lines for everybody, and nodes that differ."""
    everybodys = [each for each in gres.records if each.nodes is None and each.files]
    names = sorted({each.name for each in everybodys})
    kinds = {tuple(each.claimed(name) for name in names) for each in told}
    if len(kinds) > 1:
        message = f"the lines for {', '.join(names)} name no node, and slurm.conf has {len(kinds)} kinds of node"
        yield Finding("gres-conf-for-all", everybodys[0].place, message)


def _gpus(told: Told) -> Iterator[Finding]:
    lines, claimed = told.of("gpu"), told.claimed("gpu")
    yield from _repeated_devices(told, "gpu")
    bare = [each for each in lines if not each.files]
    if len({each.type for each in bare}) < len(bare):
        yield Finding("gpu-repeated", bare[-1].place, "Name=gpu without File stands more than once")
    if told.is_detected or not (lines or claimed):
        return
    if claimed and not told.gpu_files:
        yield Finding("gpu-without-file", told.place, f"gres.conf names no device file for the {claimed} GPU(s)")
    have = sum(each.total for each in lines)
    if lines and have != claimed:
        code = "gpu-count-low" if have < claimed else "gpu-count-high"
        yield Finding(code, told.place, f"slurm.conf has {claimed} GPU(s), gres.conf has {have}")
    yield from _types(told)


def _types(told: Told) -> Iterator[Finding]:
    lines = told.of("gpu")
    has = {each.type for each in lines}
    wanted = {each.type for each in told.line.claimed if each.name == "gpu" and each.type}
    if lines and None not in has and wanted - has:
        missing = ", ".join(sorted(filter(None, wanted - has)))
        there = ", ".join(sorted(filter(None, has)))
        yield Finding("gpu-type", told.place, f"slurm.conf has GPUs of type {missing}, gres.conf of type {there}")


def _shared(told: Told, name: str) -> Iterator[Finding]:
    lines, claimed = told.of(name), told.claimed(name)
    have = sum(each.total for each in lines)
    if not claimed:
        if have:
            message = f"gres.conf has {name}:{have}, and Gres in slurm.conf has no {name}"
            yield Finding("shared-not-in-slurm-conf", lines[0].place, message)
        return
    if not told.claimed("gpu"):
        yield Finding("shared-without-gpu", told.place, f"Gres has {name} and no gpu")
        return
    if not told.gpu_files and not told.is_detected:
        yield Finding("shared-without-gpu", told.place, f"Gres has {name}, and gres.conf names no device file of a GPU")
        return
    yield from _repeated_devices(told, name)
    yield from _files(told, name)
    if lines and have != claimed:
        code = "shared-count-low" if have < claimed else "shared-count-high"
        yield Finding(code, told.place, f"slurm.conf has {name}:{claimed}, gres.conf has {name}:{have}")
    types = {each.type for each in told.line.claimed if each.name == name} | {each.type for each in lines}
    if lines and len(types) > 1:
        message = f"{name} has a type in one file and none, or another, in the other"
        yield Finding("shared-type", lines[0].place, message)
    if told.gpu_files:
        yield from _spread(told, name)


def _files(told: Told, name: str) -> Iterator[Finding]:
    lines = told.of(name)
    bare = [each for each in lines if not each.files]
    if bare and len(lines) > 1:
        what = "with and without File" if len(bare) < len(lines) else "more than once without File"
        yield Finding("shared-files-mixed", bare[-1].place, f"Name={name} stands {what}")
    for each in lines:
        for file in (file for file in each.devices if not told.is_detected and file not in told.gpu_files):
            message = f"Name={name} has File={file}, and no line with Name=gpu has it"
            yield Finding("shared-file-without-gpu", each.place, message)


def _spread(told: Told, name: str) -> Iterator[Finding]:
    place = told.of(name)[0].place if told.of(name) else told.place
    if not any(each.files for each in told.of(name)):
        total, gpus = told.claimed(name), len(told.gpu_files)
        if total % gpus:
            yield Finding("count-uneven", place, f"{name}:{total} cannot be spread evenly over {gpus} GPUs")
            return
    shares = told.per_file(name)
    if any(each.total % len(each.devices) for each in told.of(name) if each.files):
        yield Finding("count-uneven", place, f"a Count of {name} cannot be spread evenly over its files")
    if name != "mps":
        return
    for count in sorted({each for each in shares.values() if each % _PERCENT}):
        yield Finding("mps-percent", place, f"a GPU has {count} mps, no multiple of 100")
    serving = sum(count > 0 for count in shares.values())
    if serving > 1:
        message = f"{serving} GPUs of a node have mps, and Slurm serves one of them at a time"
        yield Finding("mps-several-gpus", place, message)


def _both(told: Told) -> Iterator[Finding]:
    mps, shard = told.per_file("mps"), told.per_file("shard")
    both = [file for file in mps if mps[file] and shard.get(file)]
    if both:
        yield Finding(
            "mps-and-shard", told.place, f"{len(both)} GPU(s) have both mps and shard, the first is {both[0]}"
        )


def _repeated_devices(told: Told, name: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for each in told.of(name):
        for file in each.devices:
            if file in seen:
                yield Finding("device-repeated", each.place, f"{file} stands more than once with Name={name}")
            seen.add(file)
