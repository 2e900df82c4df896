"""The recipe of a base tree, as data: its digest is the cached tree's name, so a changed recipe builds a new one."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "slurmd",
    "slurmctld",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "iproute2",
    "procps",
    "psmisc",
    "kmod",
)

USERS = (("alice", 2001), ("bob", 2002))

# Each node enables its own Slurm daemon; the rest would only slow a boot of many nodes on few cores.
DISABLED_UNITS = (
    "slurmd.service",
    "slurmctld.service",
    "sshd-keygen.service",
    "e2scrub_reap.service",
    "systemd-pstore.service",
    "getty@tty1.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "man-db.timer",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-timesyncd.service",
)
MASKED_UNITS = ("console-getty.service", "getty.target", "systemd-logind.service", "systemd-firstboot.service")

NETWORK_UNIT = """\
[Unit]
Description=Address of the lab's network
DefaultDependencies=no
After=systemd-sysctl.service
Before=network.target network-online.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=/etc/lab/network
ExecStart=/sbin/ip address replace ${ADDRESS}/24 dev host0
ExecStart=/sbin/ip link set host0 up

[Install]
WantedBy=multi-user.target
"""

SSHD = """\
# Ansible and clush open many connections at once.
MaxStartups 500:30:1000
MaxSessions 200
UseDNS no
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
"""


class File(NamedTuple):
    """A file of the base tree."""

    path: str
    text: str


FILES = (
    File("etc/systemd/system/lab-network.service", NETWORK_UNIT),
    File("etc/ssh/sshd_config.d/lab.conf", SSHD),
    File("etc/systemd/journald.conf.d/lab.conf", "[Journal]\nStorage=volatile\nRateLimitBurst=0\n"),
    File(
        "etc/tmpfiles.d/lab.conf",
        "d /run/slurmctld 0755 slurm slurm -\nd /run/slurmd 0755 root root -\nd /run/munge 0755 munge munge -\n",
    ),
)

FOLDERS = (
    ("var/spool/slurmctld", "slurm", 0o755),
    ("var/spool/slurmd", "root", 0o755),
    ("var/log/slurm", "slurm", 0o755),
    ("root/.ssh", "root", 0o700),
    ("etc/slurm", "root", 0o755),
    ("etc/lab", "root", 0o755),
)

ENABLED_UNITS = ("lab-network.service",)

REMOVED = (
    "etc/machine-id",
    "etc/hostname",
    "etc/ssh/ssh_host_*",
    "etc/munge/munge.key",
    "var/cache/apt/archives/*",
    "var/lib/apt/lists/*",
)

# Raise it when base_tree.py itself does something else with the same data.
VERSION = 2


def digest(suite: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of all that goes into the suite's tree."""
    content = (VERSION, suite, PACKAGES, USERS, DISABLED_UNITS, MASKED_UNITS, FILES, FOLDERS, ENABLED_UNITS, REMOVED)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]
