"""Slurm's numbering of a node's GPUs: which /dev/nvidiaN stands behind an index in SLURM_JOB_GPUS.

The index is the place in slurmd's own list, and no minor number (measured on 22.05 and 24.11: with gres.conf naming
/dev/nvidia3 and then /dev/nvidia1, jobs see the indices 0 and 1). Without AutoDetect the list has the types in
slurm.conf's order and within a type the lines of gres.conf in theirs; with it, PCI order (gres_gpu.c). `slurmd -G`
prints it in 10 to 20 ms, which AutoDetect's own look at the GPUs makes longer, so the answer is kept for a while.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Optional

from mpsfleet.node.host import children, files, locks
from mpsfleet.node.model import Unreadable
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_SLURMD = ("/usr/sbin/slurmd", "/usr/local/sbin/slurmd", "/opt/slurm/sbin/slurmd", "/usr/local/slurm/sbin/slurmd")
_CONFIGURATIONS = (  # a slurm.conf must be named: without one slurmd would fetch it from slurmctld
    "/etc/slurm",
    "/etc/slurm-llnl",
    "/run/slurm/conf",  # configless
    "/var/spool/slurmd/conf-cache",
    "/usr/local/etc",
    "/opt/slurm/etc",
    "/usr/local/slurm/etc",
)
_KEPT = f"{locks.STATE}/slurm-gpus.json"
_KEPT_S = 600.0  # a file that gres.conf includes may have changed
_ASK_S = 3.0
_CAP = 65536
_DEVICE = "/dev/nvidia"
_MOST = 256  # GPUs of a node; more is a typo
_WORD = "Gres Name=gpu "


def minors(host: Host, node_name: str = "") -> tuple[int, ...] | Unreadable:
    """Return the minor number at each of Slurm's indices. Asks the local slurmd's program, never slurmctld."""
    folder = next((each for each in _CONFIGURATIONS if os.path.exists(host.path(f"{each}/slurm.conf"))), None)
    slurmd = next((each for each in _SLURMD if os.access(host.path(each), os.X_OK)), None)
    if folder is None or slurmd is None:
        return Unreadable("slurmd or its slurm.conf is not found, so Slurm's numbering of the GPUs is not known")
    key = [node_name, *(_identity(host.path(f"{folder}/{name}")) for name in ("slurm.conf", "gres.conf"))]
    kept = _kept(host, key)
    if kept is not None:
        return kept
    environment = (*children.ENVIRONMENT, ("SLURM_CONF", host.path(f"{folder}/slurm.conf")))
    named = ("-N", node_name) if node_name else ()
    command = children.Command((host.path(slurmd), *named, "-G"), _ASK_S, environment=environment)
    answer = children.run((command,))[0]
    if answer.rc != 0:
        how = f"no answer within {_ASK_S:g} s" if answer.rc is None else f"exit status {answer.rc}"
        return Unreadable(f"`slurmd -G` does not tell Slurm's numbering of the GPUs ({how})")
    found = understand(answer.out + answer.err)
    if not isinstance(found, Unreadable):
        content = json.dumps({"key": key, "at": time.time(), "minors": found}).encode()
        files.publish(os.path.join(locks.state_directory(host), os.path.basename(_KEPT)), content, 0o600)
    return found


def understand(said: str) -> tuple[int, ...] | Unreadable:
    """Read what `slurmd -G` prints: a line for each gres, in slurmd's order, whose File may hold several devices."""
    found: list[int] = []
    for line in said.splitlines():
        if _WORD not in line:
            continue
        words = line.partition(_WORD)[2].split()
        device = next((each[len("File=") :] for each in words if each.startswith("File=")), "")
        numbers = _numbers(device[len(_DEVICE) :]) if device.startswith(_DEVICE) else None
        if numbers is None:
            return Unreadable(
                f"Slurm has a GPU with the device file {show(device or 'none', 60)}, which is no whole GPU"
            )
        found += numbers
    if not found or len(set(found)) != len(found):
        return Unreadable("`slurmd -G` lists no GPU, or one twice")
    return tuple(found)


def _numbers(text: str) -> list[int] | None:
    """Return the numbers of "3" or "[0-1,3]"; None for anything else."""
    bracketed = text.startswith("[") and text.endswith("]")
    found: list[int] = []
    for part in text[1:-1].split(",") if bracketed else [text]:
        first, dash, last = part.partition("-")
        ends = (first, last) if dash and bracketed else (part, part)
        if not all(each.isascii() and each.isdigit() and int(each) < _MOST for each in ends):
            return None
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


def _identity(path: str) -> Optional[list[int]]:  # noqa: UP045  # the value is compared with JSON's
    try:
        now = os.stat(path)  # Slurm's own files, which may be links; nothing of them is opened here
    except OSError:
        return None
    return [now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns]


def _kept(host: Host, key: list[Any]) -> tuple[int, ...] | None:
    try:
        kept = json.loads(files.read(host.path(_KEPT), _CAP))
        if kept["key"] == key and 0 <= time.time() - kept["at"] < _KEPT_S:
            return tuple(int(each) for each in kept["minors"])
    except (OSError, ValueError, KeyError, TypeError):  # nothing is lost: slurmd is asked then
        return None
    return None
