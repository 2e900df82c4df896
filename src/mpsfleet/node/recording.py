"""What a deploy goes by and records of the GPUs: nvidia-smi's answer beside the record of the deploy before. Pure.

A GPU that is gone or in trouble stays as it was recorded, so that an audit goes on to miss it; only a person can let it
go. With one gone nothing else is recorded either: nvidia-smi has then numbered the rest anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node import cards, instances

if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Gpus


_FIRST_MULTI_USER = 580


class Found(NamedTuple):
    """The GPUs that a deploy goes by."""

    known: tuple[Card, ...] | None
    record: str | None  # what it writes of them; None leaves the record as it is
    problem: str | None = None  # what forbids the deploy
    messages: tuple[str, ...] = ()
    before: tuple[Card, ...] = ()  # as the last deploy recorded them
    restored: tuple[Card, ...] = ()  # those whose compute mode of before is to be put back


def find(desired: Desired, gpus: Gpus, minors: dict[str, int], before: tuple[Card, ...]) -> Found:
    """Join what nvidia-smi shows now with the record of the last deploy."""
    shown = cards.join(gpus.gpus, minors)
    if gpus.outcome != "ok" or len(shown) != len(gpus.gpus):
        return _unread(desired, gpus, before)
    old = {each.uuid: each for each in before}
    troubled = {each.uuid for each in gpus.gpus if "[" in each.name + each.bus_id}  # "[GPU is lost]" for every field
    if troubled - set(old):
        return _unread(desired, gpus, before)
    there = {each.uuid for each in shown}
    gone = tuple(each for each in before if each.uuid not in there)
    if gone or troubled:
        known = instances.assign(desired, before)
        return Found(known, cards.text(known), None, tuple(_missing(each) for each in gone), before)
    now = instances.assign(desired, shown)
    modes = {each.uuid: each.compute_mode for each in gpus.gpus}
    merged = tuple(each._replace(compute_mode=_before(desired, each, old, modes[each.uuid])) for each in now)
    restored = tuple(
        each._replace(compute_mode=old[each.uuid].compute_mode)
        for each in merged
        if each.uuid in old and old[each.uuid].compute_mode and not each.compute_mode
    )
    problem = _mig(desired, now) or _multi_user(instances.of(desired, merged), merged, gpus.driver)
    return Found(merged, cards.text(merged), problem, (), before, restored)


def _unread(desired: Desired, gpus: Gpus, before: tuple[Card, ...]) -> Found:
    known = instances.assign(desired, before) or None
    if problem := _multi_user(instances.of(desired, known), known or (), gpus.driver):
        return Found(None, None, problem)
    if known is None and instances.needs_record(desired):
        why = gpus.detail or f"nvidia-smi: {gpus.outcome}"
        if gpus.outcome == "ok":
            why = "nvidia-smi reports a GPU in trouble"
        problem = f"which daemons this node should run depends on its GPUs, and they cannot be read: {why}"
        return Found(None, None, problem)
    return Found(known, cards.text(known) if known else None, before=before)


def _missing(card: Card) -> str:
    return (
        f"GPU {card.index} ({card.uuid}) of the last deploy is not there, so the record of GPUs stays as it is; if the "
        f"GPU was taken out, remove {cards.RECORD} and deploy again"
    )


def _before(desired: Desired, card: Card, old: dict[str, Card], mode: str) -> str:
    """Return the compute mode to put back one day, where it is ours to set; "" where it is not."""
    if not (desired.compute_mode and card.instance):
        return ""
    remembered = old[card.uuid].compute_mode if card.uuid in old else ""
    return remembered or (mode if mode.lower() != desired.compute_mode else "")


def _multi_user(asked: tuple[Instance, ...], found: tuple[Card, ...], driver: str) -> str | None:
    """Return what forbids a server for all users: the driver, or a GPU on which only root could compute then."""
    names = {each.name for each in asked if each.multi_user}
    major = driver.partition(".")[0]
    if names and major.isdigit() and int(major) < _FIRST_MULTI_USER:
        return (
            f"multi_user needs driver {_FIRST_MULTI_USER} or later, and this node has {driver}; take it out of "
            "node.toml (mps_multi_user), or upgrade the driver"
        )
    old = ", ".join(str(each.index) for each in found if each.instance in names and cards.is_before_volta(each.name))
    if old:
        return f"multi_user needs GPUs of compute capability 7.0 or later; leave GPU {old} out of it (mps_shares)"
    return None


def _mig(desired: Desired, now: tuple[Card, ...]) -> str | None:
    named = tuple(each for each in now if each.is_mig and cards.is_selected(each, desired.mps_gpus))
    if not named:
        return None
    which = ", ".join(str(each.index) for each in named)
    return (
        f"GPU {which} is in MIG mode, which mpsfleet does not serve; leave it out of [gpus] mps (mps_gpus), or turn "
        "MIG off with `nvidia-smi -i GPU -mig 0` while nothing uses it"
    )
