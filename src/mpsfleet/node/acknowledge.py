"""`mpsfleet node acknowledge`: a person has seen the kernel log's fatal errors, and audits tell of later ones alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, Refused
from mpsfleet.node.host import files, locks
from mpsfleet.node.judge import judge
from mpsfleet.node.judge.kernel import describe
from mpsfleet.node.kernel_facts import ACKNOWLEDGED
from mpsfleet.node.model import Change, Outcome, Unreadable
from mpsfleet.node.probe import kernel_log, probe, short_name
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.kernel_facts import Event

_VERB = "acknowledge"
_LOCK_WAIT_S = 10.0


def acknowledge(host: Host, desired: Desired, *, dry_run: bool) -> Outcome:
    """Note the last record of the kernel log as seen, for this boot, and return the judgement after it."""
    node = desired.node_name or short_name(host)
    log = kernel_log.read(host)
    if isinstance(log, Unreadable):
        raise MpsfleetError(f"there is nothing to acknowledge that can be read: {log.reason}")
    if log is None:
        return Outcome(_VERB, node, dry_run, skipped="this node has no kernel log (/dev/kmsg)")
    if not log.boot:
        message = "which boot this is cannot be read (/proc/sys/kernel/random/boot_id), so nothing was acknowledged"
        raise Refused(message)
    changes = tuple(_change(each) for each in log.events)
    if dry_run:
        return Outcome(_VERB, node, dry_run, changes)
    if changes:
        with locks.held(host, "node", _LOCK_WAIT_S):
            files.publish(host.path(ACKNOWLEDGED), f"{log.boot} {log.last}\n".encode(), 0o600)
    messages = () if changes else ("the kernel log holds no fatal error that is not acknowledged",)
    return Outcome(_VERB, node, dry_run, changes, messages=messages, report=judge(probe(host, desired), desired))


def _change(event: Event) -> Change:
    where = f"the GPU at {event.bus}" if event.bus else "all GPUs"
    return Change(f"{describe(event)} of {where}", _VERB, show(event.text))
