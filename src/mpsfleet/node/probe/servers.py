"""MPS servers as /proc has them, joined with what their daemons said.

A server is a process with MPS's kernel name that is no control program, and either a child of a control daemon of
root's or, without one, still the holder of a control_lock of root's. Anybody can take the name; neither of these. What
only matters where servers or jobs with shares are is in `clients`, which an idle node's audit does not load.
"""

from __future__ import annotations

import os
import time

from mpsfleet.node import sampled
from mpsfleet.node.host import files, locks
from mpsfleet.node.model import Answers, Unreadable
from mpsfleet.node.probe import procfs
from mpsfleet.node.servers_facts import Past, Server, Servers
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command
    from mpsfleet.node.model import Daemon, Facts, Process, ServerAnswer

_RECORDS = f"{locks.STATE}/jobs"
_STARTED_S = 5.0  # one that ends early does so within a second; where neither status nor clients tell, age does


class Beside(NamedTuple):
    """What was answered to `commands`, and how to ask the daemons once more."""

    answers: tuple[Answer, ...]
    again: Callable[[], tuple[Answers, ...]]


class Found(NamedTuple):
    """What was there before anybody was asked."""

    servers: tuple[Server, ...]
    has_records: bool  # of jobs with GPUs

    def children_of(self, daemon: Daemon | None) -> tuple[int, ...]:
        """Return the pids of a daemon's servers."""
        return tuple(each.process.pid for each in self.servers if daemon and each.daemon == daemon.process.pid)


def find(host: Host, named: tuple[Process, ...] | Unreadable, daemons: tuple[Daemon, ...] | Unreadable) -> Found:
    """Find the servers among the processes with MPS's name; whose they are, their parents tell."""
    servers: tuple[Server, ...] = ()
    if not isinstance(named, Unreadable) and not isinstance(daemons, Unreadable):
        parents = {each.process.pid for each in daemons}
        others = (each for each in named if each.pid not in parents and each.state not in procfs.DONE)
        servers = tuple(found for each in others if (found := _server(host, each, parents)) is not None)
    try:
        has_records = any(not each.startswith(".") for each in files.names(host.path(_RECORDS)))
    except OSError:  # whoever reads them says so
        has_records = True
    return Found(servers, has_records)


def _server(host: Host, process: Process, parents: set[int]) -> Server | None:
    if procfs.is_control_program(host, process.pid):
        return None
    is_child = process.ppid in parents
    if not is_child and not procfs.is_server(host, process):
        return None
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    age_s = max(0.0, since_boot_s - process.start / os.sysconf("SC_CLK_TCK"))
    return Server(process, process.ppid if is_child else 0, age_s)


def commands(host: Host, desired: Desired, found: Found) -> tuple[Command, ...]:
    """Return what to ask beside the daemons: nothing on a node without servers and jobs."""
    if not found.servers and not found.has_records:
        return ()
    from mpsfleet.node.probe import clients

    return clients.commands(host, desired, servers=bool(found.servers))


def read(host: Host, desired: Desired, found: Found, facts: Facts, beside: Beside) -> Servers:
    """Join what was found, said and noted earlier."""
    said = {
        serving.process.pid: at.said
        for at in facts.instances
        if (serving := facts.serving(at)) is not None and isinstance(at.said, Answers)
    }
    told = {each.pid: each for answer in said.values() for each in answer.of_servers}
    servers = tuple(_joined(each, told.get(each.process.pid)) for each in found.servers)
    joined = Servers(servers, tuple(_dead(host, found, said)))
    if found.servers or found.has_records:
        from mpsfleet.node.probe import clients

        joined = clients.look(host, desired, joined, told, beside)
    return joined._replace(past=_past(host, facts, said, joined))


def _joined(server: Server, told: ServerAnswer | None) -> Server:
    if told is None:
        return server
    is_ready = told.is_ready if told.status is None else told.status != "INITIALIZING"
    return server._replace(status=told.status, is_ready=is_ready)


def _dead(host: Host, found: Found, said: dict[int, Answers]) -> list[tuple[int, int]]:
    """Return the listed servers that are no more: gone or defunct, looked at after the daemon named them."""
    dead = []
    for daemon, answers in said.items():
        for pid in answers.servers:
            if pid in {each.process.pid for each in found.servers}:
                continue
            if not procfs.lives(host, pid):
                dead.append((daemon, pid))
    return dead


def _past(host: Host, facts: Facts, said: dict[int, Answers], read: Servers) -> tuple[Past, ...]:
    """Note what a later audit needs, and return what earlier ones noted."""
    if isinstance(facts.daemons, Unreadable):
        return ()
    now = time.time()
    samples = tuple(_sample(host, each, read) for each in facts.daemons if each.process.pid in said)
    unasked = frozenset(each.process.pid for each in facts.daemons if each.process.pid not in said)
    noted = sampled.sampled(host, samples, unasked, now)
    return tuple(
        Past(each.pid, tuple(now - when for when in each.strikes), tuple(pid for pid, _, _ in each.faults))
        for each in noted
    )


def _sample(host: Host, daemon: Daemon, read: Servers) -> sampled.Sample:
    servers = read.of(daemon.process.pid)
    return sampled.Sample(
        daemon.process.pid,
        daemon.process.start,
        procfs.ended_children(host, daemon.process.pid),
        any(_serves(each) for each in servers),
        tuple((each.process.pid, each.process.start) for each in servers if each.status == "FAULT"),
        tuple((each.process.pid, each.process.start) for each in servers),
    )


def _serves(server: Server) -> bool:
    return bool(server.clients) or server.status in ("ACTIVE", "FAULT") or server.age_s >= _STARTED_S
