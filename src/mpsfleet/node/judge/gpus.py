"""Judge the GPUs by nvidia-smi's answer: lost, in need of a reset, missing, or not to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.model import Finding, Gpu, Gpus, finding
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts

_LOST = "gpu is lost"
_RESET = "gpu requires reset"
_ERRORS = ("unknown error", "err!")
_INFOROM_EXIT = 14
_SUBJECT = "GPUs"


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the node's GPUs."""
    gpus = facts.gpus
    if gpus.outcome == "ok":
        rows = tuple(found for each in gpus.gpus if (found := _row(each)) is not None)
        return (*rows, *_count(len(gpus.gpus), desired))
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
