"""The table of what mpsfleet owns on a node: deploy writes it, an audit judges by it, remove takes it away."""

from __future__ import annotations

from mpsfleet.node import instances
from mpsfleet.node.cards import RECORD
from mpsfleet.node.desired import CONFIG, DEFAULT_DIRECTORY
from mpsfleet.node.instances import NODE, NODE_UNIT
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

UNIT_FOLDER = "/etc/systemd/system"
TEMPLATE = "nvidia-mps@.service"
UNIT_PATHS = (f"{UNIT_FOLDER}/{NODE_UNIT}", f"{UNIT_FOLDER}/{TEMPLATE}")
WANTS = f"{UNIT_FOLDER}/multi-user.target.wants"  # where `systemctl enable` puts its links
TIMER_WANTS = f"{UNIT_FOLDER}/timers.target.wants"
TMPFILES_PATH = "/etc/tmpfiles.d/mpsfleet.conf"
SYSUSERS_PATH = "/etc/sysusers.d/mpsfleet.conf"
PROGRAM_DIRECTORY = "/usr/lib/mpsfleet"
PROGRAM_LINK = "/usr/sbin/mpsfleet"
LOGROTATE_PATH = "/etc/logrotate.d/mpsfleet"
QUIESCED = "/etc/mpsfleet/quiesced"
HEAL = "mpsfleet-heal.service"  # which the health check starts
KILL_SWITCH = "/etc/mpsfleet/off"
MADE_BY = "# Written by mpsfleet (`mpsfleet node apply`); changes here are put back at the next deploy.\n"

_UNIT = """\
{made_by}[Unit]
Description=NVIDIA MPS control daemon for {what}
Documentation=man:nvidia-cuda-mps-control(1)
After=nvidia-persistenced.service nvidia-fabricmanager.service
Before=slurmd.service
StartLimitIntervalSec=120
StartLimitBurst=5
# written by `mpsfleet node quiesce`, for work on the driver
ConditionPathExists=!{quiesced}

[Service]
Type=exec
# "+": outside the sandbox below, which protects the daemon's parents from the daemon
ExecStartPre=+{program} node prepare {name}
ExecStart={program} node run-daemon {name}
ExecStartPost=-+{program} node settle {name}
Restart=on-failure
RestartSec=5
# With the default, the death of the control daemon would kill the server and every job's client with it.
KillMode=process
TimeoutStartSec=45
TimeoutStopSec=10
LimitNOFILE=65536
ProtectSystem=strict
ReadWritePaths=-{pipe} -{log}

[Install]
WantedBy=multi-user.target
"""


_LOGROTATE = """\
{made_by}{logs} {{
    # the daemon keeps its log open, so the file stays and is emptied
    copytruncate
    weekly
    maxsize 64M
    rotate 8
    compress
    missingok
    notifempty
}}
"""


class Owned(NamedTuple):
    """One file of ours: its whole content and its mode."""

    path: str
    content: bytes
    mode: int


def table(desired: Desired, config_text: str, record: str | None) -> tuple[Owned, ...]:
    """Return the files of a node, in the order in which they are written.

    `record` is the content of the record of GPUs; None leaves that file as it is.
    """
    files = [
        Owned(SYSUSERS_PATH, _sysusers().encode(), 0o644),
        Owned(CONFIG, config_text.encode(), 0o644),
        Owned(TMPFILES_PATH, _tmpfiles(desired).encode(), 0o644),
        Owned(LOGROTATE_PATH, _logrotate(desired).encode(), 0o644),
        Owned(unit_path(desired), unit(desired).encode(), 0o644),
    ]
    if record is not None:
        files.insert(2, Owned(RECORD, record.encode(), 0o644))
    return tuple(files)


def every_path() -> tuple[str, ...]:
    """Return the paths of all files that any configuration puts on a node."""
    return (SYSUSERS_PATH, CONFIG, RECORD, TMPFILES_PATH, LOGROTATE_PATH, *UNIT_PATHS)


def unit_path(desired: Desired) -> str:
    """Return the path of the unit file that the configuration asks for."""
    return UNIT_PATHS[0 if desired.daemons == NODE else 1]


def unit(desired: Desired) -> str:
    """Return the text of nvidia-mps.service, or of the template nvidia-mps@.service."""
    name = NODE if desired.daemons == NODE else "%i"
    return _UNIT.format(
        made_by=MADE_BY,
        what="the GPUs of this node" if name == NODE else "GPU %i",
        program=PROGRAM_LINK,
        name=name,
        quiesced=QUIESCED,
        pipe=instances.pipe_directory(desired, name),
        log=instances.log_directory(desired, name),
    )


def _tmpfiles(desired: Desired) -> str:
    """Keep tmp cleaning away. `x` lines alone: a `d` line would adopt a directory that a user planted."""
    names = [f"{DEFAULT_DIRECTORY}*", instances.pipe_directory(desired, "*"), desired.log_directory]
    return MADE_BY + "".join(f"x {name}\n" for name in dict.fromkeys(names))


def _logrotate(desired: Desired) -> str:
    folder = instances.log_directory(desired, "*")
    return _LOGROTATE.format(made_by=MADE_BY, logs=f"{folder}/control.log {folder}/server.log")


def _sysusers() -> str:
    return MADE_BY + 'u mpsfleet - "looks at MPS as an ordinary user" / /usr/sbin/nologin\n'


def program_path(version: str, digest: str) -> str:
    """Return where the program of this source is installed."""
    return f"{PROGRAM_DIRECTORY}/{version}-{digest[:12]}/mpsfleet"
