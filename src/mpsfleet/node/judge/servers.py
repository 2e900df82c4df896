"""Judge the MPS servers: in FAULT, orphaned, not ready, dead, ending again and again.

A user's program can put its own server into each of these states, so none of them drains a node.
"""

from __future__ import annotations

from mpsfleet.node.judge.words import numbers, plural
from mpsfleet.node.model import Finding, Unreadable, finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts, Observed
    from mpsfleet.node.servers_facts import Past, Server, Servers

_READY_S = 60.0  # many GPUs without nvidia-persistenced take tens of seconds
_STRIKES = 3
_RECENT_S = 1800.0  # a loop that nobody starts any more is over


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:  # noqa: ARG001  # one signature for all judges
    """Return the findings about the servers of the node's control daemons, and about those without one."""
    read = facts.servers
    if read is None:
        return ()
    found: list[Finding] = []
    for at in facts.instances:
        serving = facts.serving(at)
        if serving is None:
            continue
        pid = serving.process.pid
        for each in read.of(pid):
            found += (*_fault(at, each, read), *_unready(at, each))
        found += _dead(at, tuple(server for daemon, server in read.dead if daemon == pid))
        for past in read.past:
            if past.daemon == pid:
                found += (*_recovered(at, past, read), *_crashes(at, past))
    return (*found, *(_orphan(each, facts, read) for each in read.servers if not each.daemon))


def _who(at: Observed, server: Server) -> str:
    return f"the MPS server of user {server.process.uid} under {at.pipe.path}"


def _fault(at: Observed, server: Server, read: Servers) -> tuple[Finding, ...]:
    if server.status != "FAULT":
        return ()
    clients = server.clients or ()
    jobs = tuple(dict.fromkeys(job for each in clients if (job := read.job_of(each.pid))))
    who = f"{_who(at, server)} is in FAULT and takes no new client"
    if server.clients is None:
        message = f"{who} until all its clients have ended"
    elif clients:
        of_jobs = f" (job{plural(len(jobs))} {numbers(jobs)})" if jobs else ""
        it_has = "its client has" if len(clients) == 1 else f"its {len(clients)} clients have"
        message = f"{who} until {it_has} ended{of_jobs}"
    else:
        message = f"{who}, although it has none left: it does not recover by itself"
    remedy = None if clients or server.clients is None else "Reset the daemon: `mpsfleet node reset` on the free node."
    return (
        finding(
            "server-fault",
            at.instance.subject,
            message,
            remedy=remedy,
            server=server.process.pid,
            clients=numbers(each.pid for each in clients),
            jobs=numbers(jobs),
        ),
    )


def _recovered(at: Observed, past: Past, read: Servers) -> tuple[Finding, ...]:
    found = []
    for each in read.of(past.daemon):
        if each.process.pid in past.faults and each.status == "ACTIVE":
            message = f"{_who(at, each)} was in FAULT within the last hour, and serves again: its clients then failed"
            found.append(finding("server-recovered", at.instance.subject, message, server=each.process.pid))
    return tuple(found)


def _unready(at: Observed, server: Server) -> tuple[Finding, ...]:
    state = server.process.state
    if state in ("T", "t"):
        message = f"{_who(at, server)} is stopped (SIGSTOP), so its clients wait"
    elif state == "D" and server.is_ready is False:
        message = f"{_who(at, server)} is in uninterruptible sleep and not ready, so its clients wait"
    elif server.is_ready is False and server.age_s >= _READY_S:
        message = f"{_who(at, server)} is not ready a minute after its start, so its clients wait"
    else:
        return ()
    status = server.status or ""
    return (
        finding(
            "server-not-ready", at.instance.subject, message, server=server.process.pid, state=state, status=status
        ),
    )


def _dead(at: Observed, pids: tuple[int, ...]) -> tuple[Finding, ...]:
    if not pids:
        return ()
    what = "an MPS server that has" if len(pids) == 1 else f"{len(pids)} MPS servers that have"
    message = f"the control daemon of {at.pipe.path} lists {what} ended"
    return (finding("server-dead", at.instance.subject, message, server=numbers(pids)),)


def _crashes(at: Observed, past: Past) -> tuple[Finding, ...]:
    if len(past.strikes_s) < _STRIKES or past.strikes_s[-1] > _RECENT_S:
        return ()
    message = (
        f"the MPS servers of {at.pipe.path} end soon after their start: {len(past.strikes_s)} audits in a row found "
        "that one had ended and none was ready, so jobs that use MPS fail"
    )
    return (finding("server-crash-loop", at.instance.subject, message, last_s=round(past.strikes_s[-1])),)


def _orphan(server: Server, facts: Facts, read: Servers) -> Finding:
    held = ""
    if isinstance(read.uses, Unreadable):
        held = "; whether it holds memory of a GPU is not known"
    elif read.uses is not None:
        uuids = {each.gpu for each in read.uses if each.pid == str(server.process.pid)}
        gpus = [each.number for each in facts.gpus.gpus if each.uuid in uuids]
        held = f" and holds memory of GPU {numbers(gpus)}" if gpus else ""
    message = f"an MPS server of user {server.process.uid} lives on without its control daemon{held}"
    uid = server.process.uid
    return finding("server-orphaned", f"server of user {uid}", message, server=server.process.pid, uid=uid)
