"""The control daemons a node should have: one for the node, or one for each GPU under MPS. Pure.

An instance is named as systemd names it: `nvidia-mps.service` is "node", `nvidia-mps@2.service` is "2", which is
nvidia-smi's index of its GPU when the node was deployed. The GPU itself is told to the daemon by its UUID.
"""

from __future__ import annotations

from mpsfleet.node.cards import Card, is_selected
from mpsfleet.node.desired import DEFAULT_DIRECTORY, PIPE_DIRECTORY
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

NODE = "node"
NODE_UNIT = "nvidia-mps.service"
_OWN_PARENT = "/run/nvidia-mps"


class Instance(NamedTuple):
    """One control daemon as it should be."""

    name: str  # "node", or the GPU's index
    unit: str
    gpus: tuple[str, ...]  # UUIDs, in the daemon's own order; () for all GPUs of the node
    pipe_directory: str
    log_directory: str
    active_thread_percentage: float
    memory_limits_mib: tuple[int, ...] = ()  # per GPU of `gpus`, in MiB; 0 for none; () where none is asked for
    client_priority: int = 0
    multi_user: bool = False

    @property
    def subject(self) -> str:
        """What a finding about its daemon is about."""
        return "daemon node" if self.name == NODE else f"daemon gpu{self.name}"


def unit_of(name: str) -> str:
    """Return the unit of the instance of that name."""
    return NODE_UNIT if name == NODE else f"nvidia-mps@{name}.service"


def pipe_directory(desired: Desired, name: str) -> str:
    """Return the pipe directory of an instance; `name` may be systemd's %i."""
    if desired.daemons == NODE:
        return desired.pipe_directory
    if desired.pipe_directory == PIPE_DIRECTORY:
        return f"{_OWN_PARENT}/{name}"
    return f"{desired.pipe_directory}_{name}"


def log_directory(desired: Desired, name: str) -> str:
    """Return the log directory of an instance; `name` may be systemd's %i."""
    return desired.log_directory if desired.daemons == NODE else f"{desired.log_directory}/{name}"


def needs_record(desired: Desired) -> bool:
    """Tell whether the instances depend on which GPUs the node has."""
    return desired.daemons != NODE or bool(desired.mps_gpus) or bool(desired.memory_limit_mib) or bool(desired.shares)


def assign(desired: Desired, cards: tuple[Card, ...]) -> tuple[Card, ...]:
    """Return the GPUs with the name of the instance that should serve each. A GPU split by MIG is left as it is."""
    return tuple(each._replace(instance=_name(desired, each)) for each in cards)


def _name(desired: Desired, card: Card) -> str:
    if card.is_mig or (desired.mps_gpus and not is_selected(card, desired.mps_gpus)):
        return ""
    return NODE if desired.daemons == NODE else str(card.index)


def of(desired: Desired, cards: tuple[Card, ...] | None) -> tuple[Instance, ...]:
    """Return the instances for GPUs that `assign` has named (or a record holds); None where there is no record yet."""
    if not cards:
        return () if needs_record(desired) else (_node_wide(desired),)
    names = tuple(dict.fromkeys(each.instance for each in cards if each.instance))
    if not needs_record(desired) and all(each.instance for each in cards):
        return (_node_wide(desired),)
    return tuple(_of_cards(desired, name, tuple(each for each in cards if each.instance == name)) for name in names)


def _node_wide(desired: Desired) -> Instance:
    return Instance(
        NODE,
        NODE_UNIT,
        (),
        desired.pipe_directory,
        desired.log_directory,
        desired.active_thread_percentage,
        client_priority=desired.client_priority,
        multi_user=desired.multi_user,
    )


def _of_cards(desired: Desired, name: str, cards: tuple[Card, ...]) -> Instance:
    limits = tuple(_share(desired, each).memory_limit_mib for each in cards)
    first = _share(desired, cards[0])
    return Instance(
        name,
        unit_of(name),
        tuple(each.uuid for each in cards),
        pipe_directory(desired, name),
        log_directory(desired, name),
        first.active_thread_percentage,
        limits if any(limits) else (),
        first.client_priority,
        first.multi_user,
    )


class _Terms(NamedTuple):
    active_thread_percentage: float
    memory_limit_mib: int
    client_priority: int
    multi_user: bool


def _share(desired: Desired, card: Card) -> _Terms:
    """Return the settings for one GPU: the node's own, over which each matching share lays what it names."""
    terms = _Terms(
        desired.active_thread_percentage, desired.memory_limit_mib, desired.client_priority, desired.multi_user
    )
    for each in desired.shares:
        if is_selected(card, each.gpus):
            terms = _Terms(
                terms.active_thread_percentage
                if each.active_thread_percentage is None
                else each.active_thread_percentage,
                terms.memory_limit_mib if each.memory_limit_mib is None else each.memory_limit_mib,
                terms.client_priority if each.client_priority is None else each.client_priority,
                terms.multi_user if each.multi_user is None else each.multi_user,
            )
    return terms


def caught(desired: Desired, cards: tuple[Card, ...] | None) -> tuple[str, ...]:
    """Say which GPUs are left as they are while a daemon serves the directory in which every CUDA program looks."""
    others = ", ".join(str(each.index) for each in cards or () if not each.instance)
    if not others or all(each.pipe_directory != DEFAULT_DIRECTORY for each in of(desired, cards)):
        return ()
    message = (
        f"MPS serves {DEFAULT_DIRECTORY}, where every CUDA program looks, so programs on GPU {others}, left as it is, "
        "meet it too; choose another pipe directory (mps_ipc_dir)"
    )
    return (message,)


def by_name(instances: tuple[Instance, ...], name: str) -> Instance | None:
    """Return the instance called `name`."""
    return next((each for each in instances if each.name == name), None)
