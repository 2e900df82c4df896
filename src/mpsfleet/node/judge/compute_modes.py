"""Judge the compute modes: as configured, none that shuts every program out, none left behind by a daemon."""

from __future__ import annotations

from mpsfleet.node.gpu_facts import VALUE, outcome
from mpsfleet.node.instances import NODE
from mpsfleet.node.judge.gpus import is_mode, subject_of
from mpsfleet.node.model import Finding, Unreadable, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts, Gpu

_EXCLUSIVE = "exclusive_process"
_PROHIBITED = "prohibited"


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the compute modes of the GPUs that nvidia-smi shows."""
    if facts.gpus.outcome != "ok" or isinstance(facts.cards, Unreadable):
        return ()
    cards = {each.uuid: each for each in facts.cards or ()}
    rows = (each for each in facts.gpus.gpus if outcome(each.compute_mode) == VALUE)
    found = (_row(facts, desired, each, cards.get(each.uuid)) for each in rows)
    return tuple(each for each in found if each is not None)


def _row(facts: Facts, desired: Desired, gpu: Gpu, card: Card | None) -> Finding | None:
    instance = NODE if facts.cards is None else card.instance if card is not None else ""
    subject, named = subject_of(gpu), f"GPU {show(gpu.number, 8)}"
    if not instance:
        return _left_behind(gpu, card, subject, named)
    if is_mode(gpu, _PROHIBITED):
        message = f"{named} has compute mode Prohibited, so no CUDA program can use it, through MPS or beside it"
        return finding("compute-mode-prohibited", subject, message)
    if card is not None and desired.compute_mode and not is_mode(gpu, desired.compute_mode):
        message = f"{named} has compute mode {show(gpu.compute_mode, 30)}, not the configured one"
        return finding("compute-mode-differs", subject, message, configured=desired.compute_mode)
    if is_mode(gpu, _EXCLUSIVE) and not _may_be_served(facts, instance) and desired.compute_mode != _EXCLUSIVE:
        message = f"{named} has compute mode Exclusive_Process and no control daemon: one program at a time uses it"
        return finding("compute-mode-exclusive", subject, message)
    return None


def _may_be_served(facts: Facts, instance: str) -> bool:
    """Tell whether a daemon of that name runs, be it without its files; where it is not known, one may."""
    if isinstance(facts.daemons, Unreadable):
        return True
    paths = {at.pipe.path for at in facts.instances if at.instance.name == instance}
    return any(each.directory in paths for each in facts.daemons)


def _left_behind(gpu: Gpu, card: Card | None, subject: str, named: str) -> Finding | None:
    """Find a GPU that is under MPS no more and still has the mode that a deploy gave it."""
    before = card.compute_mode if card is not None else ""
    if not before or not is_mode(gpu, _EXCLUSIVE) or is_mode(gpu, before.lower()):
        return None
    was = show(before, 30)
    message = f"{named} is under MPS no more and was left with compute mode Exclusive_Process; before, it had {was}"
    return finding("compute-mode-exclusive", subject, message)
