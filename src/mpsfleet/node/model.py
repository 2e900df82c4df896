"""The values that pass between the rooms of a node: what was read (facts) and what it means (findings).

NamedTuples throughout: these classes are loaded on the healthy path, where start-up time counts.
"""

from __future__ import annotations

from mpsfleet.codes import BY_NAME, SEVERITIES
from mpsfleet.show import show
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from mpsfleet.node.cards import Card
    from mpsfleet.node.host_facts import HostState, InstanceState
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.kernel_facts import KernelLog
    from mpsfleet.node.servers_facts import Servers

SCHEMA = 1


class Unreadable(NamedTuple):
    """Something could not be asked or read; never the same as an empty answer."""

    reason: str  # a clause for a sentence, e.g. "nvidia-smi did not answer within 4 s"


class Parent(NamedTuple):
    """One directory above a pipe or log directory, as found by walking from `/` without following links."""

    path: str
    uid: int
    gid: int
    mode: int  # permission bits
    kind: str  # "directory" | "link" | "file"


class Name(NamedTuple):
    """One name in a directory, looked at without following it."""

    name: str
    kind: str  # "file" | "directory" | "link" | "socket" | "fifo" | "other"
    uid: int
    mode: int
    inode: int
    device: int
    links: int
    size: int  # bytes


class Directory(NamedTuple):
    """A pipe or log directory as it is."""

    path: str
    kind: str  # "directory" | "missing" | "link" | "file" | "unreadable"
    uid: int = -1
    gid: int = -1
    mode: int = 0
    parents: tuple[Parent, ...] = ()
    names: tuple[Name, ...] = ()
    reason: str = ""  # for kind "unreadable" and a missing or linked parent

    def name(self, wanted: str) -> Name | None:
        """Return the entry called `wanted`, or None."""
        return next((each for each in self.names if each.name == wanted), None)


class Process(NamedTuple):
    """A process at one moment. Its identity for acting is a pidfd, not this value."""

    pid: int
    ppid: int
    uid: int  # real uid
    comm: str
    state: str  # one letter of /proc/PID/stat
    start: int  # clock ticks since boot


class Daemon(NamedTuple):
    """A control daemon of root's, recognised by its uid and by the control_lock it holds open."""

    process: Process
    directory: str  # the pipe directory its control_lock was opened in
    lock: tuple[int, int]  # device, inode of the control_lock it holds
    deleted: bool  # that file is no longer linked anywhere


class Peer(NamedTuple):
    """Who listens on a socket of the pipe directory (SO_PEERCRED of a connection that sends nothing)."""

    outcome: str  # "listening" | "absent" | "refused" | "busy" | "not-a-socket" | "failed" | "not-asked"
    pid: int = 0
    uid: int = -1
    comm: str = ""
    reason: str = ""
    is_control_program: bool = False  # of a stranger, by the program's name


class ServerAnswer(NamedTuple):
    """What the control daemon said of one of its servers."""

    pid: int
    status: str | None  # one word; None where it knows no such question (535) or no such server
    clients: tuple[int, ...] | None  # pids; None where it was not asked or did not tell: of one that is starting
    is_ready: bool | None = None  # by `ps`; None where that does not tell (470)


class Answers(NamedTuple):
    """What the control daemon said to root; of its ready servers' clients in an invocation of their own."""

    percentage: float | None
    servers: tuple[int, ...]
    memory_limits_mib: tuple[int | None, ...]  # of its GPUs in its own order, 0 for none; None where it knows no limits
    raw: str
    of_servers: tuple[ServerAnswer, ...] = ()  # of those asked about
    client_priority: int | None = None  # None where it was not asked, or where it knows no priorities


class Silence(NamedTuple):
    """The control daemon gave no usable answer."""

    outcome: str  # "timeout" | "busy" | "no-daemon" | "garbled" | "mute" | "not-asked" | "no-binary"
    reason: str
    daemon_state: str = ""  # letter of /proc/PID/stat when silent
    held: bool = False  # it waits for the next bytes of a connection that is open
    seconds: float = 0.0


class UserView(NamedTuple):
    """What an ordinary user meets on the way to the daemon."""

    reached: bool
    step: str  # the path at which it ended
    error: str  # errno name, "" when reached


class Gpu(NamedTuple):
    """One row of nvidia-smi. A field is its text, or a token as NVIDIA prints it ("[N/A]", "[GPU is lost]")."""

    number: str  # nvidia-smi's index
    uuid: str
    bus_id: str
    name: str
    driver: str
    compute_mode: str
    memory_total: str
    mig: str  # "Enabled", "Disabled", "[N/A]"; "" where the driver does not know the question, as below
    ecc: str = ""  # uncorrectable memory errors since the driver was loaded
    recovery: str = ""  # what the driver asks for: "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"


class Gpus(NamedTuple):
    """nvidia-smi's answer."""

    gpus: tuple[Gpu, ...]
    outcome: str  # "ok" | "none-found" | "mismatch" | "no-driver" | "timeout" | "missing" | "failed"
    detail: str = ""
    rc: int | None = None
    state: str = ""  # letter of /proc/PID/stat when it did not answer
    inforoms: tuple[str, ...] = ()  # bus ids of the GPUs whose infoROM it says is corrupted
    driver: str = ""  # the version of the loaded kernel module, "" where none is loaded


def serving(pipe: Directory, daemons: tuple[Daemon, ...] | Unreadable) -> Daemon | None:
    """Return the daemon among `daemons` that holds the control_lock lying in the directory `pipe` now."""
    lock = pipe.name("control_lock")
    if lock is None or isinstance(daemons, Unreadable):
        return None
    return next((each for each in daemons if each.lock == (lock.device, lock.inode)), None)


class Observed(NamedTuple):
    """What was read of one instance: its directories, its sockets, its daemon's answers."""

    instance: Instance
    pipe: Directory
    log: Directory
    control: Peer
    privileged: Peer
    said: Answers | Silence
    started_with: float | Unreadable | None  # thread percentage in the daemon's environment; None where it has none
    user: UserView | Unreadable
    gpus: tuple[str, ...] | Unreadable | None = None  # UUIDs the daemon was started with; None where not looked at
    state: InstanceState | None = None  # its unit, its process, its file systems; None where not looked at


class Facts(NamedTuple):
    """Everything that was read of a node, at one moment."""

    node: str
    daemons: tuple[Daemon, ...] | Unreadable
    instances: tuple[Observed, ...]
    gpus: Gpus
    cards: tuple[Card, ...] | Unreadable | None  # the record of GPUs that the deploy left; None where there is none
    default: Directory | None  # NVIDIA's own pipe directory, where it is no instance's
    deployed: bool  # files of ours are installed
    quiesced: bool  # stopped on purpose, for work on the driver
    nvidia: bool  # the driver is loaded, or a device of NVIDIA's is on the bus
    owner_uid: int  # root's, or who plays root on a simulated node
    servers: Servers | None = None  # MPS servers, their clients, and jobs beside them; None where not looked at
    kernel: KernelLog | Unreadable | None = None  # fatal events of the driver; None where there is no kernel log
    host: HostState | None = None  # units, files of ours; None where not looked at

    def serving(self, at: Observed) -> Daemon | None:
        """Return the daemon of an instance: root's, and holder of the control_lock that lies in its directory now."""
        return serving(at.pipe, self.daemons)

    def directories(self) -> tuple[str, ...]:
        """Return the pipe directories that control daemons should serve."""
        return tuple(each.instance.pipe_directory for each in self.instances)


class Finding(NamedTuple):
    """One thing that is wrong, with one sentence an operator can act on."""

    code: str
    severity: str
    subject: str
    message: str
    origin: str
    evidence: tuple[tuple[str, str], ...]
    remedy: str


if TYPE_CHECKING:
    Evidence = Union[str, int, float]


def finding(
    code: str,
    subject: str,
    message: str,
    *,
    origin: str | None = None,
    remedy: str | None = None,
    **evidence: Evidence,
) -> Finding:
    """Make a finding of a known `code`; severity, origin and remedy come from the table unless given."""
    row = BY_NAME[code]
    return Finding(
        code=code,
        severity=row.severity,
        subject=show(subject, 80),
        message=show(message, 400),
        origin=origin or row.origin,
        evidence=tuple((key, show(value)) for key, value in evidence.items() if value != ""),
        remedy=remedy or row.remedy,
    )


class Mps(NamedTuple):
    """What of MPS is on the node, in short: Slurm's side compares with it what it registers there."""

    instances: tuple[tuple[str, bool | None], ...]  # each control daemon that should be; whether jobs can use it
    gpus: tuple[tuple[int, str, str, int], ...]  # minor number (-1: not told), model, instance ("": none), jobs
    found: int | None  # whole GPUs that nvidia-smi shows; None where it was not told, or a GPU is split by MIG
    jobs: int | None  # records of jobs with GPUs; None where they were not read


class Report(NamedTuple):
    """The judgement of one node."""

    node: str
    verdict: str
    findings: tuple[Finding, ...]
    mps: Mps | None = None  # None where there was nothing to judge against


def report(node: str, findings: tuple[Finding, ...]) -> Report:
    """Return the report of `findings`, most severe first; the verdict is the highest severity."""
    ordered = tuple(sorted(findings, key=lambda each: -SEVERITIES.index(each.severity)))
    return Report(node, ordered[0].severity if ordered else "ok", ordered)


class Change(NamedTuple):
    """One thing that an acting verb changed, or would change."""

    what: str
    action: str  # "create" | "replace" | "remove" | "prepare" | "enable" | "start" | "stop" | "set" | ...
    detail: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        return f"{self.action} {self.what}: {self.detail}"


class Outcome(NamedTuple):
    """What an acting verb did, and the judgement after it."""

    verb: str
    node: str
    dry_run: bool
    changes: tuple[Change, ...] = ()
    refused: str | None = None  # what was not done, since it could harm a job; the rest is in `changes`
    failed: str | None = None
    messages: tuple[str, ...] = ()
    report: Report | None = None
    skipped: str | None = None  # why there is nothing to do on this node
    waiting: tuple[str, ...] = ()  # units that must be stopped and were not; with them `refused` is about nothing else
