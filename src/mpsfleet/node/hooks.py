"""`mpsfleet node hook prolog|epilog|task-prolog`: Slurm tells which job is on which GPU, and a task learns its daemon.

`mpsfleet node hook health-check`, by which slurmd has its node audited, has a module of its own (health_check.py).
A failure of ours fails no job: it is one sentence on stderr and in the journal, and exit status 0, since a Prolog or an
Epilog that fails drains its node. No hook of a job asks slurmctld, waits for a lock or sleeps; each ends within its
limit. The words are read without argparse and little is imported, for every job pays for it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from mpsfleet.errors import OK, MpsfleetError, UsageError
from mpsfleet.node import hook_environment, jobs
from mpsfleet.node.files import KILL_SWITCH
from mpsfleet.node.host import Host, files, journal
from mpsfleet.node.model import Unreadable
from mpsfleet.show import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpsfleet.node.cards import Card
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.hook_environment import Told

LIMIT_S = 10.0  # below any PrologEpilogTimeout that lets a node work
HEALTH_LIMIT_S = 50.0  # slurmd kills a health check after 60 s
_HEALTH_CHECK = "health-check"
_SENTENCE = 400


def main(words: list[str], root: str = "") -> int:
    """Run one hook for what the environment names. Returns 0 whatever becomes of it. UsageError."""
    known = (*_HOOKS, _HEALTH_CHECK)
    if len(words) != 1 or words[0] not in known:
        raise UsageError(f"`mpsfleet node hook` takes one of {', '.join(known)}; Slurm calls it with its variables")
    host = Host.at(root)
    limit_s = HEALTH_LIMIT_S if words[0] == _HEALTH_CHECK else LIMIT_S
    journal.end_after(limit_s, f"hook {words[0]}: given up after {limit_s:g} s", OK)
    try:
        if not files.exists(host.path(KILL_SWITCH)):
            os.chdir("/")
            os.umask(0o077)
            if words[0] == _HEALTH_CHECK:
                from mpsfleet.node import audit, health_check  # all of an audit

                audit.settle_process()
                health_check.run(host, os.environ, HEALTH_LIMIT_S)
            else:
                _HOOKS[words[0]](host, hook_environment.understand(os.environ))
    except Exception as error:  # noqa: BLE001  our failure is no job's
        what = str(error) if isinstance(error, MpsfleetError) else f"{type(error).__name__}: {error}"
        journal.say(f"hook {words[0]}: {show(what, _SENTENCE)}")
    return OK


def prolog(host: Host, told: Told) -> None:
    """Record a job with GPUs, and publish what its tasks are told. Once at the job's start on this node, as root."""
    if not told.gres:
        return
    job = _job_of_roots(host, told)
    record = jobs.Job(job, told.uid, told.gres, (), told.indices, int(time.time()))
    jobs.write(host, record)  # first of all: whatever fails below, somebody is known to be here
    desired, cards, chosen = _topology(host, told)
    if chosen:
        jobs.write(host, record._replace(gpus=tuple(each.uuid for each in chosen)))
    jobs.export(host, job, exports(desired, cards, chosen), told.leader)
    if not chosen:
        raise MpsfleetError(f"it is not known which GPUs job {job} has, so it counts for each of them")


def epilog(host: Host, told: Told) -> None:
    """Forget the job. At its end on this node, as root; the job's number is enough."""
    jobs.forget(host, _job_of_roots(host, told))


def task_prolog(host: Host, told: Told) -> None:
    """Print the variables of a job with shares of a GPU. At each task's start, as the user.

    A job with whole GPUs is told nothing: on a GPU under MPS it may choose by itself.
    """
    if told.job < 0 or told.gres not in ("mps", "shard"):
        return
    found = jobs.exports(host, told.job)
    if isinstance(found, Unreadable):
        raise MpsfleetError(found.reason)
    sys.stdout.write("".join(f"export {name}={value}\n" for name, value in found))
    sys.stdout.flush()


_HOOKS: dict[str, Callable[[Host, Told], None]] = {"prolog": prolog, "epilog": epilog, "task-prolog": task_prolog}


def _job_of_roots(host: Host, told: Told) -> int:
    if os.geteuid() != host.owner_uid:
        raise MpsfleetError("it must run as root, as slurmd runs it")
    if told.job < 0:
        raise MpsfleetError("SLURM_JOB_ID is not the number of a job, so nothing is recorded or forgotten")
    return told.job


def _topology(host: Host, told: Told) -> tuple[Desired | None, tuple[Card, ...], tuple[Card, ...]]:
    """Return the desired state, the node's GPUs and those of the job; what cannot be had is None or ()."""
    from mpsfleet.node import config, slurm_order

    desired, mistakes = config.load(host)
    if mistakes:
        _tell(str(mistakes[0]))
    cards = _cards(host, None if mistakes else desired)
    if len(cards) == 1:
        order: tuple[int, ...] | Unreadable = (cards[0].minor,)  # whatever Slurm's order is
    else:
        order = slurm_order.minors(host, desired.node_name)
    if isinstance(order, Unreadable):
        _tell(order.reason)
        order = ()
    if told.has_minors and order != tuple(range(len(order))):  # else both readings of an index are one
        _tell("this Slurm sets no SLURM_JOB_GPUS, and gres.conf has the GPUs in another order than their minor numbers")
        order = ()
    return None if mistakes else desired, cards, choose(cards, order, told.indices)


def _cards(host: Host, desired: Desired | None) -> tuple[Card, ...]:
    """Return the GPUs as recorded. Without a record the driver names them, and a node-wide daemon serves all."""
    from mpsfleet.node import instances, topology
    from mpsfleet.node.cards import Card

    recorded = topology.recorded(host)
    if recorded is not None and not isinstance(recorded, Unreadable):
        return recorded
    if isinstance(recorded, Unreadable):
        _tell(recorded.reason)
    everywhere = desired is not None and recorded is None and not instances.needs_record(desired)
    instance = instances.NODE if everywhere else ""
    return tuple(Card(-1, uuid, minor, "", "", instance=instance) for uuid, minor in topology.minors(host).items())


def _tell(sentence: str) -> None:
    journal.say(f"hook prolog: {show(sentence, _SENTENCE)}")


def choose(cards: tuple[Card, ...], order: tuple[int, ...], indices: tuple[int, ...]) -> tuple[Card, ...]:
    """Return the GPUs at Slurm's indices, joined by minor number; () unless each of them is found exactly once."""
    if any(each >= len(order) for each in indices):
        return ()
    wanted = [order[each] for each in indices]
    found = [[each for each in cards if each.minor == minor] for minor in wanted]
    return tuple(each[0] for each in found) if all(len(each) == 1 for each in found) else ()


def exports(desired: Desired | None, cards: tuple[Card, ...], chosen: tuple[Card, ...]) -> tuple[tuple[str, str], ...]:
    """Return the variables for a task on the chosen GPUs: all of one daemon, or nothing.

    A program speaks to one daemon, so shares of GPUs of several daemons cannot be told. Where the GPUs are not known
    but one daemon serves the whole node, its directory is told and the choice of GPUs left as Slurm made it.
    """
    from mpsfleet.node import instances

    names = {each.instance for each in chosen or cards}
    if desired is None or len(names) != 1 or "" in names:
        return ()
    directory = ("CUDA_MPS_PIPE_DIRECTORY", instances.pipe_directory(desired, names.pop()))
    uuids = ",".join(each.uuid for each in chosen)
    return (directory, ("CUDA_VISIBLE_DEVICES", uuids)) if uuids else (directory,)
