"""What was read of the host around the control daemons: units, files of ours, processes, file systems. Values."""

from __future__ import annotations

from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.model import Process, Unreadable

STARTING = ("start-pre", "start", "start-post")  # substates of a service on its way up (systemd.service(5))
PRIVATE = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108  # what a job or a service may have of its own
TIMER = "mpsfleet-audit.timer"
MULTI_USER = "MPSFLEET_MULTI_USER"  # in the environment of a daemon that we start with that option


class Unit(NamedTuple):
    """A unit, as systemd has it, and as its files say it will be."""

    name: str
    load: str = "loaded"  # LoadState
    active: str = "active"  # ActiveState
    sub: str = "running"  # SubState
    result: str = "success"  # Result
    main_pid: int = 0
    restarts: int = 0  # NRestarts
    is_skipped: bool = False  # a condition did not hold at its last start
    is_fresh: bool = False  # it left the inactive state a moment before it was asked about
    is_enabled: bool = True  # a link of the boot's targets leads to it

    @property
    def is_starting(self) -> bool:
        """Whether it is on its way up."""
        return self.active == "activating" and self.sub in STARTING

    @property
    def gave_up(self) -> bool:
        """Whether systemd has stopped restarting it: the result stays that of the last try (252 and others)."""
        return self.active == "failed" and (self.result == "start-limit-hit" or self.restarts > 0)


class Drift(NamedTuple):
    """A file of ours that is not as the configuration asks for."""

    path: str
    how: str  # "missing" | "content" | "mode" | "owner" | "masked" | "no file" | "unreadable"
    detail: str = ""


class Volume(NamedTuple):
    """The file system of a directory."""

    free: int  # bytes for root
    free_names: int  # -1 where the file system does not count them
    kind: str = ""  # its type, where it was looked at
    is_read_only: bool = False


class Own(NamedTuple):
    """What one Apart child read of a control daemon: its program, and what it was started with."""

    pid: int
    program: str = ""  # target of /proc/PID/exe
    environment: tuple[tuple[str, str], ...] = ()  # the variables looked for, those that are there
    reason: str = ""  # why it could not be read

    def variable(self, name: str) -> str:
        """Return a variable of its environment, "" where it has none."""
        return dict(self.environment).get(name, "")


class Holder(NamedTuple):
    """Who keeps a connection to a silent daemon open, or a lock."""

    pid: int = 0  # 0: cannot be told
    uid: int = -1
    comm: str = ""
    reason: str = ""  # why it cannot be told


class Cause(NamedTuple):
    """Why a daemon is silent, as far as the kernel tells."""

    threads: int = 0  # of the daemon; 0: not known
    waiting: int = -1  # bytes in the log fifo that nobody has read; -1: not known
    is_draining: bool = False  # their number fell between two looks
    holder: Holder | None = None  # of the connection it waits for


class InstanceState(NamedTuple):
    """What surrounds one control daemon."""

    unit: Unit | None = None
    own: Own | Unreadable | None = None
    group: str = ""  # control group of a serving daemon that its unit did not start
    is_mute: bool = False  # its log thread has ended, so it was not spoken to
    cause: Cause | None = None  # of a silent one
    pipe: Volume | None = None
    log: Volume | None = None
    hidden: str = ""  # "daemon" | "slurmd" | "jobs": whose private /tmp hides the pipe directory
    locked_by: Holder | None = None  # who holds the control_lock that no daemon holds


class HostState(NamedTuple):
    """What surrounds all of them. `None` is not looked at: nothing is deployed, or systemd does not run."""

    units: tuple[Unit, ...] | Unreadable | None = None
    drifts: tuple[Drift, ...] | Unreadable | None = None
    zombies: tuple[Process, ...] = ()
