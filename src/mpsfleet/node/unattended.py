"""`mpsfleet node reset --unattended`: what the health check has found is put right where no job can be harmed.

A daemon that does not run is started: that ends nothing, so it needs no drain, only that no job is on the node. Of the
others those that are ill are reset by the rules of any reset: drained by us, and free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.codes import MENDED_BY_RESET
from mpsfleet.errors import Refused
from mpsfleet.node import files, free, reset
from mpsfleet.node.host import files as disk
from mpsfleet.node.host import locks
from mpsfleet.node.instances import NODE
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Change, Outcome
from mpsfleet.node.probe import probe

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Facts, Finding


def put_right(host: Host, desired: Desired, *, dry_run: bool) -> Outcome:
    """Start the daemons that do not run, or reset those that are ill. Refused, NotInEffect as a reset."""
    reset.require_ready(host, desired)
    with locks.held(host, "node", reset.LOCK_WAIT_S):
        if disk.exists(host.path(files.QUIESCED)):
            raise Refused("this node is quiesced for work on the driver")
        known = reset.chosen(host, desired, ())
        facts = probe(host, desired)
        report = judge(facts, desired)
        absent = _absent(host, facts, known)
        if absent:
            return _started(host, desired, facts, absent, dry_run=dry_run)
    ill = tuple(each for each in report.findings if each.severity == "critical" and each.code in MENDED_BY_RESET)
    if not ill:
        return Outcome("reset", facts.node, dry_run, skipped="no daemon of this node needs a reset", report=report)
    return reset.reset(host, desired, reset.Options(dry_run=dry_run, names=meant(known, ill)))


def _absent(host: Host, facts: Facts, known: tuple[Instance, ...]) -> tuple[Instance, ...]:
    """Return the instances of which nothing would have to be ended: no daemon has their directory, no unit runs."""
    found = []
    for each in known:
        scope = reset.scope_of(host, facts, (each,), reset.Options(names=(each.name,)))
        if not scope.targets and not scope.running():
            found.append(each)
    return tuple(found)


def _started(host: Host, desired: Desired, facts: Facts, absent: tuple[Instance, ...], *, dry_run: bool) -> Outcome:
    reset.require_sense(facts, desired, absent)
    why = free.why_not_idle(host, desired)
    if why is not None:
        raise Refused(why)
    if dry_run:
        starts = tuple(Change(each.unit, "start", "then verified as root and as a user") for each in absent)
        return Outcome("reset", facts.node, dry_run=True, changes=starts)
    changes = reset.start(host, desired, absent)
    after = judge(probe(host, desired), desired)
    reset.verify_as_user(host, desired, absent)
    return Outcome("reset", facts.node, dry_run=False, changes=changes, report=after)


def meant(known: tuple[Instance, ...], ill: tuple[Finding, ...]) -> tuple[str, ...]:
    """Return the names of the instances that the findings are about; () for the whole node, where they do not tell."""
    if any(each.name == NODE for each in known):
        return ()
    about = {each.subject for each in ill}
    names = tuple(each.name for each in known if about & _subjects(each))
    named = {subject for each in known for subject in _subjects(each)}
    return names if about <= named else ()


def _subjects(instance: Instance) -> set[str]:
    return {instance.subject, f"pipe directory {instance.pipe_directory}", f"log directory {instance.log_directory}"}
