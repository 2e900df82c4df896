"""The table of what mpsfleet owns on a node: deploy writes it, an audit judges by it, remove takes it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node.desired import CONFIG

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

UNIT = "nvidia-mps.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
TMPFILES_PATH = "/etc/tmpfiles.d/mpsfleet.conf"
SYSUSERS_PATH = "/etc/sysusers.d/mpsfleet.conf"
PROGRAM_DIRECTORY = "/usr/lib/mpsfleet"
PROGRAM_LINK = "/usr/sbin/mpsfleet"
KILL_SWITCH = "/etc/mpsfleet/off"
MADE_BY = "# Written by mpsfleet (`mpsfleet node apply`); changes here are put back at the next deploy.\n"

_UNIT = """\
{made_by}[Unit]
Description=NVIDIA MPS control daemon for the GPUs of this node
Documentation=man:nvidia-cuda-mps-control(1)
After=nvidia-persistenced.service nvidia-fabricmanager.service
Before=slurmd.service
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
# "+": outside the sandbox below, which protects the daemon's parents from the daemon
ExecStartPre=+{program} node prepare
ExecStart={program} node run-daemon
ExecStartPost=-+{program} node settle
Restart=on-failure
RestartSec=2
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


class Owned(NamedTuple):
    """One file of ours: its whole content and its mode."""

    path: str
    content: bytes
    mode: int


def table(desired: Desired, config_text: str) -> tuple[Owned, ...]:
    """Return the files of a node with a node-wide resident daemon, in the order in which they are written."""
    return (
        Owned(SYSUSERS_PATH, _sysusers().encode(), 0o644),
        Owned(CONFIG, config_text.encode(), 0o644),
        Owned(TMPFILES_PATH, _tmpfiles(desired).encode(), 0o644),
        Owned(UNIT_PATH, unit(desired).encode(), 0o644),
    )


def unit(desired: Desired) -> str:
    """Return the text of nvidia-mps.service."""
    return _UNIT.format(
        made_by=MADE_BY,
        program=PROGRAM_LINK,
        pipe=desired.pipe_directory,
        log=desired.log_directory,
    )


def _tmpfiles(desired: Desired) -> str:
    """Keep tmp cleaning away. `x` lines alone: a `d` line would adopt a directory that a user planted."""
    names = ["/tmp/nvidia-mps*", desired.pipe_directory, desired.log_directory]  # noqa: S108  # NVIDIA's default names
    return MADE_BY + "".join(f"x {name}\n" for name in dict.fromkeys(names))


def _sysusers() -> str:
    return MADE_BY + 'u mpsfleet - "looks at MPS as an ordinary user" / /usr/sbin/nologin\n'


def program_path(version: str, digest: str) -> str:
    """Return where the program of this source is installed."""
    return f"{PROGRAM_DIRECTORY}/{version}-{digest[:12]}/mpsfleet"
