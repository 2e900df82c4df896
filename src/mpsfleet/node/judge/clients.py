"""Judge who uses the GPUs: clients that wait or belong to no job, too many clients, jobs beside MPS."""

from __future__ import annotations

from mpsfleet.node.cards import is_before_volta
from mpsfleet.node.judge.words import numbers, plural
from mpsfleet.node.model import Finding, Unreadable, finding
from mpsfleet.node.servers_facts import asked_for_mps, bypassing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts, Observed
    from mpsfleet.node.servers_facts import Server, Servers

_MOST, _MOST_BEFORE_VOLTA = 48, 16  # clients of a server on a GPU: compute capability 7.0 and later, and before
_SPARE = 2  # clients that are still taken when it is told, at least; else a tenth


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about clients, and about jobs that should be some."""
    read = facts.servers
    if read is None:
        return ()
    found: list[Finding] = []
    for at in facts.instances:
        serving = facts.serving(at)
        for each in read.of(serving.process.pid) if serving is not None else ():
            found += (*_waiting(at, each, read), *_near_limit(facts, at, each), *_strays(at, each, read))
    return (*found, *_bypassing(facts, read), *_unasked(facts, desired, read))


def _waiting(at: Observed, server: Server, read: Servers) -> tuple[Finding, ...]:
    waiting = tuple(each for each in read.waiting if each.daemon == server.daemon)
    if not waiting:
        return ()
    users = sorted({each.uid for each in waiting})
    clients = f"{len(waiting)} client{plural(len(waiting))} of user{plural(len(users))} {numbers(users)}"
    message = (
        f"{clients} wait{'s' if len(waiting) == 1 else ''} behind the MPS server of user {server.process.uid} "
        f"under {at.pipe.path}{'' if at.instance.multi_user else ': a daemon serves one user at a time'}"
    )
    return (
        finding(
            "client-waiting",
            at.instance.subject,
            message,
            waiting=numbers(each.pid for each in waiting),
            jobs=numbers(dict.fromkeys(job for each in waiting if (job := read.job_of(each.pid)))),
            server=server.process.pid,
        ),
    )


def _near_limit(facts: Facts, at: Observed, server: Server) -> tuple[Finding, ...]:
    count = len(server.clients or ())
    most = most_clients(facts, at)
    if count < most - max(_SPARE, most // 10):
        return ()
    message = (
        f"the MPS server of user {server.process.uid} under {at.pipe.path} has {count} clients of {most} it takes; "
        "further ones fail (error 808)"
    )
    return (finding("client-limit-near", at.instance.subject, message, clients=count, most=most),)


def most_clients(facts: Facts, at: Observed) -> int:
    """Return how many clients a server of this daemon takes: the fewest that one of its GPUs allows."""
    ours = [each for each in facts.gpus.gpus if not at.instance.gpus or each.uuid in at.instance.gpus]
    return _MOST_BEFORE_VOLTA if any(is_before_volta(each.name) for each in ours) else _MOST


def _strays(at: Observed, server: Server, read: Servers) -> tuple[Finding, ...]:
    """Find the clients that no step daemon of Slurm's knows, where they could be asked."""
    if read.steps is None or isinstance(read.steps, Unreadable):
        return ()
    strays = tuple(each for each in server.clients or () if not read.job_of(each.pid))
    if not strays:
        return ()
    users = sorted({each.uid for each in strays})
    message = (
        f"{len(strays)} MPS client{plural(len(strays))} of user{plural(len(users))} {numbers(users)} under "
        f"{at.pipe.path} belong{'s' if len(strays) == 1 else ''} to no job that runs here"
    )
    pids = numbers(each.pid for each in strays)
    return (finding("client-without-job", at.instance.subject, message, clients=pids, server=server.process.pid),)


def _bypassing(facts: Facts, read: Servers) -> tuple[Finding, ...]:
    indices = {each.uuid: each.number for each in facts.gpus.gpus}
    pids: dict[tuple[str, str], list[str]] = {}
    for each in bypassing(read):
        pids.setdefault((each.job, each.gpu), []).append(each.pid)
    return tuple(
        finding(
            "job-bypasses-mps",
            f"job {job}",
            f"job {job} asked for a share of a GPU by MPS and computes on GPU {indices.get(gpu, gpu)} beside it, "
            "without its share's limits",
            pids=numbers(of_job),
            uuid=gpu,
        )
        for (job, gpu), of_job in pids.items()
    )


def _unasked(facts: Facts, desired: Desired, read: Servers) -> tuple[Finding, ...]:
    """Say what could not be asked, where somebody is there whom it would tell of."""
    shares = isinstance(read.records, Unreadable) or any(asked_for_mps(each) for each in read.records)
    has_clients = any(each.clients for each in read.servers)
    if not shares and not has_clients:
        return ()
    found = []
    if isinstance(read.records, Unreadable):
        found.append(f"which jobs share GPUs is not known: {read.records.reason}")
    if isinstance(read.steps, Unreadable) and desired.slurm_enabled:
        found.append(f"which job an MPS client belongs to is not known: {read.steps.reason}")
    if isinstance(read.uses, Unreadable) and facts.gpus.outcome == "ok":
        found.append(f"which processes compute is not known: nvidia-smi cannot be asked ({read.uses.reason})")
    return tuple(finding("probe-failed", "clients", each) for each in found)
