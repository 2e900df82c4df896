"""Judge the GPUs by nvidia-smi's answer: lost, in need of a reset, missing, or not to be asked."""

from __future__ import annotations

from mpsfleet.node import gpu_facts
from mpsfleet.node.cards import unmatched
from mpsfleet.node.instances import needs_record
from mpsfleet.node.model import Finding, Gpu, Gpus, Unreadable, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts

_MIG_ON = "enabled"
_SUBJECT = "GPUs"
_RECOVERIES = ("reset", "reboot", "drain")  # words of the driver's recovery actions


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the node's GPUs."""
    gpus = facts.gpus
    rows = tuple(found for each in gpus.gpus for found in (*_row(each), *_inforom(each, gpus)))
    if gpus.outcome == "ok":
        return (*rows, *_count(len(gpus.gpus), desired), *_record(facts, desired))
    if gpus.outcome == "none-found":
        if desired.gpus_expected == 0:
            return ()
        wanted = f", and {desired.gpus_expected} are expected" if desired.gpus_expected > 0 else ""
        return (finding("gpu-missing", _SUBJECT, f"nvidia-smi found no GPU{wanted}", found=0),)
    return (*rows, _unanswered(gpus))


def subject_of(gpu: Gpu) -> str:
    """Return what a finding about the GPU is about."""
    return f"gpu{gpu.number}" if gpu.number.isdigit() else gpu.uuid


def trouble(gpu: Gpu) -> tuple[str, str]:
    """Return the code of what keeps jobs from the GPU and a clause that says it; two empty texts for none."""
    cells = {gpu_facts.outcome(each) for each in gpu}
    if gpu_facts.LOST in cells:
        return "gpu-lost", "is lost"
    if gpu_facts.RESET in cells:
        return "gpu-requires-reset", "requires a reset"
    if gpu_facts.ERROR in cells:
        return "gpu-error", "has an error"
    action = gpu.recovery.lower()
    if any(each in action for each in _RECOVERIES):
        return "gpu-requires-reset", f"needs recovery: the driver asks for {show(gpu.recovery, 30)}"
    errors = gpu_facts.count(gpu.ecc)
    if errors and action != "none":
        return "gpu-ecc", f"has had {errors} uncorrectable memory errors since the driver was loaded"
    return "", ""


def _row(gpu: Gpu) -> tuple[Finding, ...]:
    subject, named = subject_of(gpu), f"GPU {show(gpu.number, 8)}"
    code, clause = trouble(gpu)
    if code == "gpu-lost":
        clause += ": the driver no longer reaches it, and restarting MPS does not help"
    if code:
        message = f"nvidia-smi reports an error for {named}" if code == "gpu-error" else f"{named} {clause}"
        return (finding(code, subject, message, uuid=gpu.uuid),)
    return (*_contained(gpu, subject, named), *_unasked(gpu, subject, named))


def _contained(gpu: Gpu, subject: str, named: str) -> tuple[Finding, ...]:
    errors = gpu_facts.count(gpu.ecc)
    if not errors:
        return ()
    message = f"{named} has had {errors} uncorrectable memory errors, and the driver asks for no action"
    return (finding("gpu-ecc-contained", subject, message, uuid=gpu.uuid),)


def _unasked(gpu: Gpu, subject: str, named: str) -> tuple[Finding, ...]:
    """Find what could not be asked, or is not understood. A GPU split by MIG withholds what its devices have."""
    outcomes = {name: gpu_facts.outcome(value) for name, value in zip(gpu._fields, gpu)}
    denied = [name for name, each in outcomes.items() if each == gpu_facts.DENIED]
    if denied and not is_mig(gpu):
        message = f"nvidia-smi was not permitted to read {', '.join(denied)} of {named}"
        return (finding("gpu-unasked", subject, message, uuid=gpu.uuid),)
    strange = [name for name, each in outcomes.items() if each == gpu_facts.UNKNOWN]
    if gpu.recovery.lower() != "none" and outcomes["recovery"] == gpu_facts.VALUE:
        strange.append("recovery")
    if not strange:
        return ()
    said = show(getattr(gpu, strange[0]), 40)
    message = f"nvidia-smi says {said} for {strange[0]} of {named}, which is not understood"
    return (finding("gpu-unasked", subject, message, uuid=gpu.uuid),)


def _inforom(gpu: Gpu, gpus: Gpus) -> tuple[Finding, ...]:
    if not gpus.inforoms or gpu_facts.bus_of(gpu.bus_id) not in gpus.inforoms:
        return ()
    message = f"the infoROM of GPU {show(gpu.number, 8)} is corrupted, says nvidia-smi; jobs run"
    return (finding("gpu-inforom", subject_of(gpu), message, bus=gpu.bus_id),)


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
        elif each.instance and is_mig(row):
            message = f"GPU {each.index} is in MIG mode, which is not served: its jobs cannot reach MPS"
            found.append(finding("gpu-mig", f"gpu{each.index}", message, uuid=each.uuid))
    for selector in unmatched(cards, desired.mps_gpus):
        message = f"[gpus] mps names {show(str(selector), 60)}, and this node has no such GPU"
        found.append(finding("gpu-unmatched", _SUBJECT, message))
    return tuple(found)


def is_mig(gpu: Gpu) -> bool:
    """Tell whether a GPU is split into MIG devices."""
    return gpu.mig.lower() == _MIG_ON


def is_mode(gpu: Gpu, wanted: str) -> bool:
    """Tell whether a GPU's compute mode, as nvidia-smi prints it ("Exclusive_Process"), is the configured one."""
    return gpu.compute_mode.lower() == wanted


def _unanswered(gpus: Gpus) -> Finding:
    if gpus.outcome == "mismatch":
        library = f" (libraries {show(gpus.detail, 40)})" if gpus.detail else ""
        loaded = f" {show(gpus.driver, 40)}" if gpus.driver else ""
        message = (
            f"the NVIDIA libraries{library} do not match the loaded kernel driver{loaded}: "
            "packages were upgraded under it"
        )
        return finding("driver-mismatch", _SUBJECT, message, library=gpus.detail, driver=gpus.driver)
    if gpus.outcome == "no-driver":
        module = f"its kernel module {show(gpus.driver, 40)} is loaded" if gpus.driver else "no kernel module is loaded"
        message = f"nvidia-smi cannot communicate with the NVIDIA driver ({module})"
        return finding("driver-not-loaded", _SUBJECT, message, driver=gpus.driver)
    if gpus.outcome == "timeout" and gpus.state == "D":
        message = f"nvidia-smi hangs in the driver (uninterruptible sleep) and {gpus.detail}"
        return finding("nvidia-smi-wedged", _SUBJECT, message, state=gpus.state)
    if gpus.outcome == "timeout":
        return finding("nvidia-smi-slow", _SUBJECT, f"nvidia-smi {gpus.detail}", state=gpus.state)
    if gpus.outcome == "missing":
        return finding("nvidia-smi-missing", _SUBJECT, "nvidia-smi is not installed, so the GPUs could not be checked")
    return finding("nvidia-smi-failed", _SUBJECT, f"nvidia-smi failed: {gpus.detail}", rc=str(gpus.rc))
