"""What of MPS is on the node, for Slurm's side: which daemons jobs can use, which GPUs there are, with how many jobs.

A few hundred bytes of every report. Only what is certain is said either way: a daemon that is busy, late or on its way
up is neither serving nor gone.
"""

from __future__ import annotations

from mpsfleet.node.instances import NODE, needs_record
from mpsfleet.node.judge.host import starting
from mpsfleet.node.model import Answers, Mps, Unreadable, UserView
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts, Observed
    from mpsfleet.node.servers_facts import Servers

MOST = 64  # rows of each kind
_MODEL_LIMIT = 48  # characters
_GONE = ("absent", "refused", "not-a-socket")  # of a socket: no client gets further
_STILL = ("T", "t", "D", "Z")  # states of a process that answers nobody


def presence(facts: Facts, desired: Desired) -> Mps | None:
    """Return what is there; None where it is not known which daemons there should be."""
    cards = facts.cards
    if needs_record(desired) and (cards is None or isinstance(cards, Unreadable)):
        return None
    told = tuple((each.instance.name, serves(facts, each)) for each in facts.instances)
    if not facts.deployed:  # nobody asked for a daemon here; one that is there all the same counts
        told = tuple(each for each in told if each[1])
    names = frozenset(name for name, _ in told)
    jobs = _jobs(facts.servers)
    return Mps(told[:MOST], _gpus(facts, names, jobs or ())[:MOST], _found(facts), None if jobs is None else len(jobs))


def serves(facts: Facts, at: Observed) -> bool | None:
    """Tell whether jobs can use an instance's control daemon; None where that is not certain either way."""
    if isinstance(facts.daemons, Unreadable) or starting(facts, at) is not None:
        return None
    ours = {each.process.pid for each in facts.daemons if each.directory == at.pipe.path}
    if at.control.outcome == "listening" and at.control.pid not in ours:
        is_roots = at.control.is_control_program and at.control.uid == facts.owner_uid  # without its control_lock
        return None if at.control.pid == 0 or is_roots else False
    if not ours or at.control.outcome in _GONE or (isinstance(at.user, UserView) and not at.user.reached):
        return False
    if isinstance(at.said, Answers):
        return True
    return False if at.said.outcome == "timeout" and at.said.daemon_state in _STILL else None


def _jobs(read: Servers | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the GPUs of each recorded job, () of one whose GPUs are not known."""
    if read is None or isinstance(read.records, Unreadable):
        return None
    return tuple(getattr(each, "gpus", ()) for each in read.records)


def _gpus(
    facts: Facts, names: frozenset[str], jobs: tuple[tuple[str, ...], ...]
) -> tuple[tuple[int, str, str, int], ...]:
    """Return the recorded GPUs, or where there is no record those that nvidia-smi shows."""
    rows = []
    for uuid, minor, model, instance in _cards(facts):
        count = sum(uuid in gpus for gpus in jobs)
        rows.append((minor, _model(model), instance if instance in names else "", count))
    return tuple(rows)


def _cards(facts: Facts) -> tuple[tuple[str, int, str, str], ...]:
    recorded: tuple[Card, ...] = () if isinstance(facts.cards, Unreadable) or not facts.cards else facts.cards
    if recorded:
        return tuple((each.uuid, each.minor, each.name, each.instance) for each in recorded)
    shown = facts.gpus.gpus if facts.gpus.outcome == "ok" else ()
    return tuple((each.uuid, -1, each.name, NODE) for each in shown)


def _model(name: str) -> str:
    """Return a model's name as Slurm's AutoDetect compares it with a Type: lower case, blanks as underscores."""
    return show(name.strip().lower().replace(" ", "_"), _MODEL_LIMIT)


def _found(facts: Facts) -> int | None:
    if facts.gpus.outcome == "missing":
        return None if facts.nvidia else 0
    if facts.gpus.outcome not in ("ok", "none-found"):
        return None
    is_split = any(each.mig.lower() == "enabled" for each in facts.gpus.gpus)
    return None if is_split else len(facts.gpus.gpus)
