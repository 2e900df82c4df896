"""Who uses the GPUs, through MPS and beside it: clients, job records, Slurm's step daemons, compute processes.

Loaded where a server runs or a job is recorded. What would accuse a process is asked twice: between two answers it may
have become a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node import jobs, steps
from mpsfleet.node.host import children
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import connections, procfs, uses
from mpsfleet.node.servers_facts import Client, Server, Servers, Use, Waiting, asked_for_mps, bypassing

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command
    from mpsfleet.node.model import ServerAnswer
    from mpsfleet.node.probe.servers import Beside

_MPS = "nvidia-cuda-mps"  # the control program of whoever asks the daemon something at this moment


def commands(host: Host, desired: Desired, *, servers: bool) -> tuple[Command, ...]:
    """Return two questions, compute processes and the processes of jobs; none where nobody shares a GPU."""
    records = jobs.read_all(host)
    shares = isinstance(records, Unreadable) or any(asked_for_mps(each) for each in records)
    if not servers and not shares:
        return ()
    scontrol = steps.scontrol(host) if desired.slurm_enabled else None
    listing = () if scontrol is None else (children.Command((host.path(scontrol), "listpids"), steps.LIMIT_S),)
    return (uses.question(host, desired.nvidia_smi_timeout_s), *listing)


def look(host: Host, desired: Desired, read: Servers, told: dict[int, ServerAnswer], beside: Beside) -> Servers:
    """Add clients, who waits, jobs and compute processes to what was read of the servers."""
    answers = beside.answers
    servers = tuple(_with_clients(host, each, told.get(each.process.pid)) for each in read.servers)
    read = read._replace(
        servers=servers,
        waiting=tuple(each for server in servers for each in _waiting(host, server)),
        records=jobs.read_all(host),
        uses=uses.understand(answers[0], desired.nvidia_smi_timeout_s) if answers else None,
        steps=_steps(desired, answers),
    )
    if not bypassing(read):
        return read
    later = {each.pid: each for answer in beside.again() for each in answer.of_servers}
    confirmed = tuple(_also(host, each, later.get(each.process.pid)) for each in read.servers)
    alive = _living(host, read.uses)
    return read._replace(servers=confirmed, uses=alive)


def _with_clients(host: Host, server: Server, told: ServerAnswer | None) -> Server:
    if told is None or told.clients is None:
        return server
    found = (procfs.process(host, pid) for pid in told.clients)
    living = tuple(Client(each.pid, each.uid, each.start) for each in found if each and each.state not in procfs.DONE)
    return server._replace(clients=living)


def _also(host: Host, server: Server, told: ServerAnswer | None) -> Server:
    """Count as a client whoever was one at either time; where the second answer is missing nothing is known."""
    if not server.daemon:
        return server
    second = _with_clients(host, server._replace(clients=None), told).clients
    if second is None or server.clients is None:
        return server._replace(clients=None)
    return server._replace(clients=tuple(dict.fromkeys((*server.clients, *second))))


def _living(host: Host, found: tuple[Use, ...] | Unreadable | None) -> tuple[Use, ...] | Unreadable | None:
    if found is None or isinstance(found, Unreadable):
        return found
    return tuple(each for each in found if each.is_known and procfs.lives(host, int(each.pid)))


def _waiting(host: Host, server: Server) -> tuple[Waiting, ...]:
    """Return who is connected to the server's daemon and belongs to another user than the server.

    A server that has no clients is about to make room; then nobody waits for long.
    """
    if not server.daemon or not server.clients:
        return ()
    clients = {each.pid for each in server.clients}
    found = []
    for pid, uid in connections.users(host, server.daemon):
        now = procfs.process(host, pid)
        if uid == server.process.uid or pid in clients or now is None or now.comm == _MPS or now.state in procfs.DONE:
            continue
        found.append(Waiting(server.daemon, pid, uid))
    return tuple(dict.fromkeys(found))


def _steps(desired: Desired, answers: tuple[Answer, ...]) -> tuple[steps.Listed, ...] | Unreadable | None:
    if not answers or not desired.slurm_enabled:
        return None
    if len(answers) == 1:
        return Unreadable("scontrol is not installed on this node")
    return steps.understand(answers[1])
