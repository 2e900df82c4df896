"""Whether the device files of gres.conf are the GPUs that the node has, by its own record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.slurm.lint.findings import Finding
from mpsfleet.slurm.lint.gres_conf import SHARED
from mpsfleet.slurm.lint.told import minor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.lint.gres_conf import Record
    from mpsfleet.slurm.lint.told import Gpu, Told


def judge(told: Told, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Give what is wrong for one node with these GPUs."""
    by_minor = {each.minor: each for each in gpus if each.minor >= 0}
    if len(by_minor) < len(gpus):  # the driver told no minor numbers: nothing can be said about files
        return
    for finding in (*_files(told, by_minor), *_unnamed(told, by_minor), *_daemons(told, by_minor)):
        yield finding._replace(nodes=told.names)


def _files(told: Told, by_minor: dict[int, Gpu]) -> Iterator[Finding]:
    for record in told.of("gpu"):
        for file in record.files:
            minor = minor_of(file)
            if minor is None:
                continue
            if minor not in by_minor:
                there = ", ".join(f"/dev/nvidia{each}" for each in sorted(by_minor)) or "none"
                yield Finding("gpu-not-on-node", record.place, f"the node has no {file}; it has {there}")
            else:
                yield from _model(record, file, by_minor[minor], by_minor)


def _model(record: Record, file: str, gpu: Gpu, by_minor: dict[int, Gpu]) -> Iterator[Finding]:
    """Compare a Type with the GPU's name, where it is part of another GPU's name: a type may be any word."""
    word = (record.type or "").lower()
    models = [each.name for each in by_minor.values() if word and word in each.name.lower()]
    if models and gpu.name not in models:
        yield Finding("gpu-other-model", record.place, f"{file} is {gpu.name}, and the line says Type={record.type}")


def _unnamed(told: Told, by_minor: dict[int, Gpu]) -> Iterator[Finding]:
    named = {minor_of(file) for each in told.of("gpu") for file in each.files}
    missing = sorted(set(by_minor) - named)
    if told.gpu_files and missing:
        files = ", ".join(f"/dev/nvidia{each}" for each in missing)
        yield Finding(
            "gpu-not-in-gres-conf", told.of("gpu")[0].place, f"the node has {files}, and no gpu line names it"
        )


def _daemons(told: Told, by_minor: dict[int, Gpu]) -> Iterator[Finding]:
    for name in SHARED:
        for file, count in told.per_file(name).items():
            minor = minor_of(file)
            gpu = None if minor is None else by_minor.get(minor)
            if count and gpu is not None and not gpu.is_under_mps:
                place = told.of(name)[0].place if told.of(name) else told.place
                yield Finding("shared-without-daemon", place, f"{file} has {name}, and no MPS daemon serves it")
