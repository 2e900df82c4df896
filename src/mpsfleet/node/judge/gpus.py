"""Judge the GPUs by nvidia-smi's answer: lost, in need of a reset, missing, or not to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.cards import unmatched
from mpsfleet.node.instances import needs_record
from mpsfleet.node.model import Finding, Gpu, Gpus, Unreadable, finding
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts

_LOST = "gpu is lost"
_RESET = "gpu requires reset"
_ERRORS = ("unknown error", "err!")
_MIG_ON = "enabled"
_SUBJECT = "GPUs"


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the node's GPUs."""
    gpus = facts.gpus
    if gpus.outcome == "ok":
        rows = tuple(found for each in gpus.gpus if (found := _row(each)) is not None)
        return (*rows, *_count(len(gpus.gpus), desired), *_record(facts, desired))
    if gpus.outcome == "none-found":
        if desired.gpus_expected == 0:
            return ()
        wanted = f", and {desired.gpus_expected} are expected" if desired.gpus_expected > 0 else ""
        return (finding("gpu-missing", _SUBJECT, f"nvidia-smi found no GPU{wanted}", found=0),)
    return (_unanswered(gpus),)


def _row(gpu: Gpu) -> Finding | None:
    text = " ".join(gpu).lower()
    subject = f"gpu{gpu.number}" if gpu.number.isdigit() else gpu.uuid
    named = f"GPU {show(gpu.number, 8)}"
    if _LOST in text:
        message = f"{named} is lost: the driver no longer reaches it, and restarting MPS does not help"
        return finding("gpu-lost", subject, message, uuid=gpu.uuid)
    if _RESET in text:
        return finding("gpu-requires-reset", subject, f"{named} requires a reset", uuid=gpu.uuid)
    if any(each in text for each in _ERRORS):
        return finding("gpu-error", subject, f"nvidia-smi reports an error for {named}", uuid=gpu.uuid)
    return None


def _count(found: int, desired: Desired) -> tuple[Finding, ...]:
    if desired.gpus_expected < 0 or found >= desired.gpus_expected:
        return ()
    message = f"nvidia-smi shows {found} of {desired.gpus_expected} GPUs"
    return (finding("gpu-missing", _SUBJECT, message, found=found, expected=desired.gpus_expected),)


def _record(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Compare the GPUs with those that the deploy recorded, by which the daemons are started."""
    cards = facts.cards
    if isinstance(cards, Unreadable):
        return (finding("gpus-unrecorded", _SUBJECT, cards.reason),)
    if cards is None:
        if not needs_record(desired):
            return ()
        message = "which daemons this node should run depends on its GPUs, and no deploy has recorded them"
        return (finding("gpus-unrecorded", _SUBJECT, message),)
    rows = {each.uuid: each for each in facts.gpus.gpus}
    found = []
    for each in cards:
        row = rows.get(each.uuid)
        if row is None:
            message = f"GPU {each.index} is not the one that was there at the deploy (or is gone)"
            found.append(finding("gpu-changed", f"gpu{each.index}", message, uuid=each.uuid))
        elif each.instance and row.mig.lower() == _MIG_ON:
            message = f"GPU {each.index} is in MIG mode, which is not served: its jobs cannot reach MPS"
            found.append(finding("gpu-mig", f"gpu{each.index}", message, uuid=each.uuid))
        elif each.instance and desired.compute_mode and not is_mode(row, desired.compute_mode):
            message = f"GPU {each.index} has compute mode {show(row.compute_mode, 30)}, not the configured one"
            found.append(finding("compute-mode-differs", f"gpu{each.index}", message, configured=desired.compute_mode))
    for selector in unmatched(cards, desired.mps_gpus):
        message = f"[gpus] mps names {show(str(selector), 60)}, and this node has no such GPU"
        found.append(finding("gpu-unmatched", _SUBJECT, message))
    return tuple(found)


def is_mode(gpu: Gpu, wanted: str) -> bool:
    """Tell whether a GPU's compute mode, as nvidia-smi prints it ("Exclusive_Process"), is the configured one."""
    return gpu.compute_mode.lower() == wanted


def _unanswered(gpus: Gpus) -> Finding:
    if gpus.outcome == "mismatch":
        library = f" (libraries {show(gpus.detail, 40)})" if gpus.detail else ""
        message = (
            f"the NVIDIA libraries{library} do not match the loaded kernel driver: packages were upgraded under it"
        )
        return finding("driver-mismatch", _SUBJECT, message, library=gpus.detail)
    if gpus.outcome == "no-driver":
        return finding("driver-not-loaded", _SUBJECT, "nvidia-smi cannot communicate with the NVIDIA driver")
    if gpus.outcome == "timeout" and gpus.state == "D":
        message = f"nvidia-smi hangs in the driver (uninterruptible sleep) and {gpus.detail}"
        return finding("nvidia-smi-wedged", _SUBJECT, message, state=gpus.state)
    if gpus.outcome == "timeout":
        return finding("nvidia-smi-slow", _SUBJECT, f"nvidia-smi {gpus.detail}", state=gpus.state)
    if gpus.outcome == "missing":
        return finding("nvidia-smi-missing", _SUBJECT, "nvidia-smi is not installed, so the GPUs could not be checked")
    return finding("nvidia-smi-failed", _SUBJECT, f"nvidia-smi failed: {gpus.detail}", rc=str(gpus.rc))
