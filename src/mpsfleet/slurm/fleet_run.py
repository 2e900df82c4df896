"""One run of the controller over its fleet: Slurm is read, the reports are judged, and what a site allows is done.

A run that acts holds the ledger's lock from before it reads Slurm until the ledger is written, so of two runs at once
the second sees what the first did. A run that only tells takes no lock, reads the ledger where it can, and writes none.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Callable, NamedTuple, Protocol

from mpsfleet.slurm import ledger, ledger_file, policy, trigger, verdict
from mpsfleet.slurm.commands import Controller, Unreadable
from mpsfleet.slurm.drains import Action, our_reason
from mpsfleet.slurm.ledger import Ledger
from mpsfleet.slurm.ledger_file import LedgerAbsent, LedgerUnusable, Loaded
from mpsfleet.slurm.notices import worst
from mpsfleet.slurm.policy import Policy
from mpsfleet.slurm.steps import Door, NotAsked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpsfleet.slurm.ledger_file import Store
    from mpsfleet.slurm.nodes import NodeTable
    from mpsfleet.slurm.reports import HostReport
    from mpsfleet.slurm.steps import Outcome
    from mpsfleet.slurm.verdict import FleetVerdict

_NOTE_WAIT_S = 5.0
_DONE = {Action.DRAIN: ledger.DRAINED, Action.UNDRAIN: ledger.UNDRAINED}


class FleetDoor(Door, Protocol):
    """What a run needs of `commands.Scontrol`."""

    def controller(self) -> Controller | Unreadable:
        """Ask slurmctld who it is."""

    def show_nodes(self) -> NodeTable | Unreadable:
        """Read all nodes."""


class Orders(NamedTuple):
    """What a run is to do: under which policy, as whom, on which cluster (None: any), and what it may change."""

    who: str | None
    policy: Policy = Policy()
    cluster: str | None = None
    drains: bool = False
    undrains: bool = False
    dry_run: bool = False
    ledger: str | None = None  # the directory; None: the usual places
    root: str = ""
    now: Callable[[], float] = time.time

    @property
    def actions(self) -> tuple[Action, ...]:
        """What may be done."""
        allowed = ((Action.DRAIN, self.drains), (Action.UNDRAIN, self.undrains))
        return tuple(action for action, is_allowed in allowed if is_allowed)

    @property
    def acts(self) -> bool:
        """Something may be changed."""
        return bool(self.actions) and not self.dry_run


class Reports(Protocol):
    """Where the hosts' reports come from: given beforehand, or read from what Slurm says of its nodes."""

    def __call__(self, table: NodeTable) -> tuple[HostReport, ...]:
        """Give the reports."""


def run(reports: Reports, door: FleetDoor, orders: Orders) -> tuple[FleetVerdict, bool]:
    """Judge the fleet, act as far as is allowed, and tell whether anything was changed (or would be, in a dry run)."""
    controller = door.controller()
    if isinstance(controller, Unreadable):
        return _judged(reports, door, orders, controller), False
    try:
        with _ledger(controller, orders) as (store, loaded):
            fleet, changed = _with_ledger(reports, door, orders, controller, (store, loaded))
            return _troubled(fleet, loaded.trouble, is_told=orders.acts), changed
    except LedgerUnusable as error:
        fleet = _judged(reports, door, orders, controller)
        fleet, _ = policy.weigh(fleet, Ledger(controller.cluster), _at_once(orders), orders.who, orders.now())
        for action in trigger.ACTIONS:
            fleet = trigger.only_told(fleet, action, "the ledger cannot be used")
        return _troubled(fleet, str(error), is_told=True), False


def _judged(reports: Reports, door: FleetDoor, orders: Orders, controller: Controller | Unreadable) -> FleetVerdict:
    table = controller if isinstance(controller, Unreadable) else door.show_nodes()
    cluster = controller if isinstance(controller, Unreadable) else controller.cluster
    view = verdict.view_of(cluster, table, orders.cluster)
    return verdict.judge(reports(view.table), view, orders.who)


def _with_ledger(
    reports: Reports, door: FleetDoor, orders: Orders, controller: Controller, opened: tuple[Store | None, Loaded]
) -> tuple[FleetVerdict, bool]:
    store, loaded = opened
    fleet = _judged(reports, door, orders, controller)
    now = orders.now()
    rules = orders.policy if orders.acts else _at_once(orders)
    fleet, kept = policy.weigh(fleet, loaded.ledger, rules, orders.who, now)
    if orders.dry_run:
        changed = trigger.wanted_count(fleet, orders.actions) > 0
        fleet = _only_told(fleet, orders, "dry run")
        return fleet, changed
    fleet = _only_told(trigger.carry_out(fleet, door, orders.who, orders.actions), orders, "")
    if store is not None and fleet.slurm.error is None:
        for host in fleet.hosts:
            if host.decision.done and host.node is not None:
                event = (now, host.audit.words, "verdict")
                kept = ledger.noted(kept, host.node, _DONE[host.decision.action], host.decision.reason, event)
        try:
            if kept != loaded.ledger or loaded.trouble:
                ledger_file.save(store, kept, replaces_unread=bool(loaded.trouble))
        except LedgerUnusable as error:  # what was done is done; Slurm's reasons make up for the ledger
            fleet = _troubled(fleet, str(error), is_told=True)
    return fleet, trigger.done_count(fleet) > 0


def _at_once(orders: Orders) -> Policy:
    """Give the policy of a run that writes no counts: what is seen now is told, without waiting for a second time."""
    return orders.policy._replace(after=1, well=1)


def _only_told(fleet: FleetVerdict, orders: Orders, words: str) -> FleetVerdict:
    for action in trigger.ACTIONS:
        if action not in orders.actions:
            fleet = trigger.only_told(fleet, action, f"trigger_{action.value} is off")
        elif words:
            fleet = trigger.only_told(fleet, action, words)
    return fleet


@contextlib.contextmanager
def _ledger(controller: Controller, orders: Orders) -> Iterator[tuple[Store | None, Loaded]]:
    """Open the ledger: locked where the run acts, else as far as it can be read. Raises LedgerUnusable."""
    directories = ledger_file.places(orders.ledger, controller.state_directory, orders.root)
    is_other = orders.cluster is not None and orders.cluster != controller.cluster  # then nothing is done at all
    if orders.acts and not is_other:
        with ledger_file.opened(directories, makes=True) as store, ledger_file.locked(store):
            yield store, ledger_file.load(store, controller.cluster)
        return
    loaded = Loaded(Ledger(controller.cluster))
    with contextlib.suppress(LedgerUnusable), ledger_file.opened(directories, makes=False) as store:
        loaded = ledger_file.load(store, controller.cluster)
    yield None, loaded


def _troubled(fleet: FleetVerdict, trouble: str, *, is_told: bool) -> FleetVerdict:
    if not trouble or not is_told:
        return fleet
    return fleet._replace(troubles=(*fleet.troubles, trouble), verdict=worst([fleet.verdict, "unknown"]))


def note(outcome: Outcome, door: FleetDoor, asked: str | None, now: float, root: str = "") -> str:
    """Write one step that a person or a playbook took into the ledger; give why that could not be, "" where it was.

    On a machine that is not the controller nothing is written: the controller's next run finds the step in Slurm.
    """
    node = outcome.after if outcome.action is Action.DRAIN else outcome.before
    reason = None if node is None else our_reason(node)
    controller = door.controller()
    if isinstance(controller, Unreadable):
        return controller.reason
    if asked is None and not ledger_file.is_controller(controller.state_directory, root):
        return ""
    directories = ledger_file.places(asked, controller.state_directory, root)
    try:
        with ledger_file.opened(directories, makes=True) as store, ledger_file.locked(store, _NOTE_WAIT_S):
            loaded = ledger_file.load(store, controller.cluster)
            kept = ledger.noted(loaded.ledger, outcome.node, _DONE[outcome.action], reason, (now, "", "command"))
            ledger_file.save(store, kept, replaces_unread=bool(loaded.trouble))
    except LedgerUnusable as error:
        return str(error)
    return loaded.trouble


def read_ledger(door: FleetDoor, asked: str | None, root: str = "") -> Ledger:
    """Read the ledger of slurmctld's cluster. Raises NotAsked and LedgerUnusable."""
    controller = door.controller()
    if isinstance(controller, Unreadable):
        raise NotAsked(controller.reason)
    directories = ledger_file.places(asked, controller.state_directory, root)
    try:
        with ledger_file.opened(directories, makes=False) as store:
            loaded = ledger_file.load(store, controller.cluster)
    except LedgerAbsent:
        return Ledger(controller.cluster)
    if loaded.trouble:
        raise LedgerUnusable(loaded.trouble)
    return loaded.ledger
