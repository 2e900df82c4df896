"""Deploy and remove: `node apply` and `node remove`, from the table of files, the record of GPUs and the plan.

What would end a daemon that may have jobs is done only where the node is free; else it is said, and all the rest done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import Refused
from mpsfleet.node import (
    act,
    config,
    extras,
    files,
    free,
    instances,
    plan,
    prepare,
    recording,
    table,
    topology,
    units,
)
from mpsfleet.node.actions import Wanted
from mpsfleet.node.desired import CONFIG, DEFAULT_DIRECTORY
from mpsfleet.node.host import files as disk
from mpsfleet.node.host import locks
from mpsfleet.node.judge import judge, lacks_gpus
from mpsfleet.node.model import Outcome, Unreadable
from mpsfleet.node.probe import gpu, probe, short_name

if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance

_LOCK_WAIT_S = 10.0
_PACKAGE = (
    "install its package (Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-VERSION; RHEL and SLES: "
    "nvidia-driver-cuda) and deploy again"
)


def apply(host: Host, desired: Desired, text: str | None, *, dry_run: bool) -> Outcome:
    """Bring the node into its desired state and return what was done with the judgement after it."""
    if text is None:
        text = disk.read(host.path(CONFIG)).decode()
    with locks.held(host, "node", _LOCK_WAIT_S):
        if not units.is_booted(host):
            return _into_image(host, desired, text, dry_run=dry_run)
        gpus = gpu.ask(host, desired.nvidia_smi_timeout_s)
        found = recording.find(desired, gpus, topology.minors(host), _recorded(host))
        facts = probe(host, desired, found.known)
        if lacks_gpus(facts, desired):
            message = "this node has no NVIDIA GPU, so nothing is deployed on it"
            return Outcome("apply", facts.node, dry_run=dry_run, skipped=message)
        _require_package(host, desired)
        if found.problem is not None:
            raise Refused(found.problem)
        wanted_now = instances.of(desired, found.known)
        wanted = Wanted(
            desired,
            table.wanted(desired, text, found.record),
            act.program_path(),
            wanted_now,
            extras.units(desired),
            found.restored,
            _abandoned(host, wanted_now, found.before),
        )
        installed = act.installed(host, wanted.instances, wanted.program)
        moves = plan.disruptions(wanted, installed, facts)
        why = free.why_not(host, desired, any_drain=False) if plan.stops(moves) else None
        units_waiting = tuple(each.unit for each in plan.stops(moves)) if why is not None else ()
        actions = plan.apply(wanted, installed, facts, is_free=why is None)
        waiting = plan.waiting(moves, why) if why is not None else None
        caught = instances.caught(desired, found.known)
        messages = (*found.messages, *plan.foreign_daemons(installed, facts), *caught)
        if dry_run:
            changes = tuple(each.change for each in actions)
            return Outcome("apply", facts.node, True, changes, waiting, messages=messages, waiting=units_waiting)
        changes = act.run(host, desired, actions)
        after = judge(probe(host, desired) if actions else facts, desired)
        return Outcome("apply", facts.node, False, changes, waiting, None, messages, after, waiting=units_waiting)


def _into_image(host: Host, desired: Desired, text: str, *, dry_run: bool) -> Outcome:
    """Put the files into a tree whose systemd does not run, and enable what its next boot starts.

    Whatever GPUs are seen are the builder's, so none are recorded; a unit does that at the first boot.
    """
    _require_package(host, desired)
    wanted = Wanted(
        desired,
        table.wanted(desired, text, None),
        act.program_path(),
        instances.of(desired, None),
        extras.units(desired),
    )
    actions = plan.image(wanted, act.installed(host, wanted.instances, wanted.program))
    changes = tuple(each.change for each in actions) if dry_run else act.run(host, desired, actions)
    message = "systemd does not run here, as in an image: what is enabled starts at the next boot"
    return Outcome("apply", short_name(host), dry_run, changes, messages=(message,))


def _require_package(host: Host, desired: Desired) -> None:
    if not disk.executable(host.path(desired.control_binary)):
        raise Refused(f"NVIDIA's control program {desired.control_binary} is not installed; {_PACKAGE}")


def _recorded(host: Host) -> tuple[Card, ...]:
    """Return the GPUs as the last deploy recorded them; a record that cannot be used counts as none."""
    old = topology.recorded(host)
    return () if old is None or isinstance(old, Unreadable) else old


def _abandoned(host: Host, wanted: tuple[Instance, ...], before: tuple[Card, ...]) -> tuple[str, ...]:
    """Return the pipe directories that the node has by its present configuration and will have no more."""
    there = disk.names(host.path(prepare.OWN_PARENT))
    old = {f"{prepare.OWN_PARENT}/{name}" for name in there if name == instances.NODE or name.isdigit()}
    desired, mistakes = config.load(host)
    if not mistakes:
        had = {each.pipe_directory for each in instances.of(desired, before or None)}
        old |= {each for each in had if disk.exists(host.path(each))}
    return tuple(sorted(old - {each.pipe_directory for each in wanted} - {DEFAULT_DIRECTORY}))


def remove(host: Host, desired: Desired, *, dry_run: bool, any_drain: bool) -> Outcome:
    """Take away all that apply put on the node. Refused while a daemon runs and the node is not free."""
    program = disk.link_target(host.path(files.PROGRAM_LINK)) or files.PROGRAM_LINK
    with locks.held(host, "node", _LOCK_WAIT_S):
        facts = probe(host, desired)
        known = tuple(at.instance for at in facts.instances)
        installed = act.installed(host, known, program)
        actions = plan.remove(installed, facts)
        if plan.stops(actions):
            why = free.why_not(host, desired, any_drain=any_drain)
            if why is not None:
                raise Refused(why)
        if dry_run:
            return Outcome("remove", facts.node, dry_run=True, changes=tuple(each.change for each in actions))
        return Outcome("remove", facts.node, dry_run=False, changes=act.run(host, desired, actions))


def is_bare(host: Host) -> bool:
    """Tell a node that was never deployed to, or is removed already."""
    paths = (CONFIG, files.PROGRAM_LINK, *files.UNIT_PATHS)
    return not any(disk.exists(host.path(each)) for each in paths)


def nothing(verb: str, host: Host, *, dry_run: bool) -> Outcome:
    """Return the outcome of a verb that found nothing to do."""
    return Outcome(verb, short_name(host), dry_run)
