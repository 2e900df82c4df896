"""Judge: facts and desired state in, findings out. No host, no clock, no writes.

A judge that fails becomes an `unknown` finding of its own; the others still run.
"""

from __future__ import annotations

from mpsfleet.node.judge import (
    clients,
    compute_modes,
    daemons,
    directories,
    gpus,
    host,
    kernel,
    limits,
    places,
    servers,
)
from mpsfleet.node.model import Finding, Report, finding, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from mpsfleet.node.desired import Desired, Mistake
    from mpsfleet.node.model import Facts

_MISSING = ("daemon-absent", "directory-missing", "mps-package-missing", "gpus-unrecorded")
if TYPE_CHECKING:
    _Judge = Callable[[Facts, Desired], tuple[Finding, ...]]
_JUDGES: tuple[tuple[str, _Judge], ...] = (
    ("daemons", daemons.judge),
    ("directories", directories.judge),
    ("places", places.judge),
    ("host", host.judge),
    ("limits", limits.judge),
    ("gpus", gpus.judge),
    ("compute modes", compute_modes.judge),
    ("kernel log", kernel.judge),
    ("servers", servers.judge),
    ("clients", clients.judge),
)


def judge(facts: Facts, desired: Desired) -> Report:
    """Return the judgement of a node. One without a GPU, on which nothing is deployed, is well."""
    if not facts.deployed and lacks_gpus(facts, desired):
        return report(facts.node, ())
    findings: list[Finding] = []
    if facts.quiesced:
        message = "MPS is stopped on this node for work on the driver (`mpsfleet node quiesce`)"
        findings.append(finding("quiesced", "node", message))
    for name, each in _JUDGES if not facts.quiesced else ():
        try:
            findings += each(facts, desired)
        except Exception as error:  # noqa: BLE001  # four turns; whatever it is, the node is not known to be well
            message = f"the judgement of {name} failed: {type(error).__name__}: {error}; this is a defect of mpsfleet"
            findings.append(finding("probe-failed", name, message))
    if not facts.deployed:
        findings = [_undeployed(each) for each in findings]
    return report(facts.node, tuple(findings))


def lacks_gpus(facts: Facts, desired: Desired) -> bool:
    """Tell a node that has no GPU of NVIDIA's and is not meant to have one."""
    return facts.gpus.outcome in ("none-found", "missing") and not facts.nvidia and desired.gpus_expected <= 0


def _undeployed(each: Finding) -> Finding:
    """Tell what is missing because nobody deployed it: no fault of the node, so nothing to drain it for."""
    if each.code not in _MISSING:
        return each
    return each._replace(origin="either", message=f"{each.message}; mpsfleet has not been deployed on this node")


def misconfigured(node: str, mistakes: tuple[Mistake, ...]) -> Report:
    """Return the judgement of a node whose configuration cannot be used: unknown, one finding a mistake."""
    return report(
        node,
        tuple(finding("configuration-invalid", f"line {each.line}", str(each)) for each in mistakes),
    )
