"""MPS servers and their clients as they were seen, and what follows from that alone. Values and pure functions."""

from __future__ import annotations

from mpsfleet.node.model import Unreadable
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.jobs import Record
    from mpsfleet.node.model import Process
    from mpsfleet.node.steps import Listed


_DIGITS = 10  # of a pid, at most


class Client(NamedTuple):
    """A process that a control daemon named as a client of one of its servers, and that still lives."""

    pid: int
    uid: int
    start: int = 0  # clock ticks since boot


class Server(NamedTuple):
    """A living process that is an MPS server of root's control daemons, or was one."""

    process: Process
    daemon: int  # pid of the control daemon of root's that is its parent; 0 where it has none any more
    age_s: float
    status: str | None = None  # "INITIALIZING", "ACTIVE", "FAULT"; None: not asked, or the driver cannot tell (535)
    is_ready: bool | None = None  # None: not known
    clients: tuple[Client, ...] | None = None  # None: not told


class Use(NamedTuple):
    """A process that computes on a GPU, by nvidia-smi."""

    gpu: str  # UUID
    pid: str  # as nvidia-smi prints it, which may be a token

    @property
    def is_known(self) -> bool:
        """Whether `pid` is a process's number."""
        return self.pid.isascii() and self.pid.isdigit() and len(self.pid) <= _DIGITS


class Waiting(NamedTuple):
    """A process whose connection a control daemon keeps without giving it to a server."""

    daemon: int
    pid: int
    uid: int


class Past(NamedTuple):
    """What earlier audits left about one control daemon."""

    daemon: int
    strikes_s: tuple[float, ...] = ()  # how long ago its servers were seen to have ended early, oldest first
    faults: tuple[int, ...] = ()  # pids of living servers that were in FAULT within the last hour


class Servers(NamedTuple):
    """All that was read about servers and clients of a node."""

    servers: tuple[Server, ...] = ()
    dead: tuple[tuple[int, int], ...] = ()  # (daemon, server) for each listed server that has ended
    waiting: tuple[Waiting, ...] = ()
    records: tuple[Record, ...] | Unreadable = ()  # of jobs with GPUs
    steps: tuple[Listed, ...] | Unreadable | None = None  # Slurm's; None: there was no reason to ask
    uses: tuple[Use, ...] | Unreadable | None = None  # None: there was no reason to ask
    past: tuple[Past, ...] = ()

    def of(self, daemon: int) -> tuple[Server, ...]:
        """Return the servers of one control daemon."""
        return tuple(each for each in self.servers if each.daemon == daemon)

    def job_of(self, pid: int | str) -> str:
        """Return the number of the job a process belongs to, "" where Slurm's step daemons know none."""
        steps = () if self.steps is None or isinstance(self.steps, Unreadable) else self.steps
        return next((each.job for each in steps if each.pid == str(pid)), "")


class Bypass(NamedTuple):
    """A process of a job that asked for MPS, and computes beside it."""

    job: str  # its number
    pid: str
    gpu: str


def bypassing(read: Servers) -> tuple[Bypass, ...]:
    """Return the processes that compute beside MPS though their jobs asked for it.

    None where it is not known of every server which clients it has, be it an orphan: what is not asked accuses nobody.
    """
    records, uses = read.records, read.uses
    if isinstance(records, Unreadable) or uses is None or isinstance(uses, Unreadable):
        return ()
    if any(each.clients is None for each in read.servers):
        return ()
    through = {str(client.pid) for each in read.servers for client in each.clients or ()}
    through |= {str(each.process.pid) for each in read.servers} | {str(each.pid) for each in read.waiting}
    wanted = {each.name: each for each in records if asked_for_mps(each)}
    found = []
    for use in uses:
        job = wanted.get(read.job_of(use.pid))
        if job is not None and use.is_known and use.pid not in through and job.may_use(frozenset((use.gpu,))):
            found.append(Bypass(job.name, use.pid, use.gpu))
    return tuple(found)


def asked_for_mps(record: Record) -> bool:
    """Tell whether a job was given shares of a GPU; a record that cannot be read tells nothing."""
    return getattr(record, "gres", "") in ("mps", "shard")
