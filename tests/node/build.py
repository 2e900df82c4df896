"""Facts of a sound node, to be broken one piece at a time by the tests of the judges. Invented, shaped as measured."""

from __future__ import annotations

from typing import Any

from mpsfleet.node.desired import Desired
from mpsfleet.node.instances import of
from mpsfleet.node.model import (
    Answers,
    Daemon,
    Directory,
    Facts,
    Gpu,
    Gpus,
    Name,
    Observed,
    Parent,
    Peer,
    Process,
    UserView,
)

PIPE = "/run/nvidia-mps/node"
LOG = "/var/log/nvidia-mps"
DESIRED = Desired(gpus_expected=2)
PID = 4571


def parents(*paths: str, mode: int = 0o755, uid: int = 0) -> tuple[Parent, ...]:
    return tuple(Parent(path, uid, 0, mode, "directory") for path in paths)


def names(inode: int = 77) -> tuple[Name, ...]:
    kinds = (("control", "socket", 0o666), ("control_lock", "file", 0o600), ("control_privileged", "socket", 0o755))
    return tuple(Name(name, kind, 0, mode, inode + number, 1, 1, 0) for number, (name, kind, mode) in enumerate(kinds))


def process(pid: int = PID, uid: int = 0, state: str = "S") -> Process:
    return Process(pid, 1, uid, "nvidia-cuda-mps", state, 100)


def daemon(pid: int = PID, directory: str = PIPE, inode: int = 78, *, deleted: bool = False) -> Daemon:
    return Daemon(process(pid), directory, (1, inode), deleted)


def gpu(number: int, *fields: str) -> Gpu:
    uuid = f"GPU-{number:08d}-0000-0000-0000-000000000000"
    rest = fields or ("00000000:3B:00.0", "NVIDIA A100", "535.261.03", "Default", "40960 MiB")
    return Gpu(*(str(number), uuid, *rest, "Disabled"))


def changed(**changes: Any) -> Facts:
    """Return the facts of a sound node with some of them changed, be they the node's or its one daemon's."""
    of_node = {name: changes.pop(name) for name in Facts._fields if name in changes}
    return SOUND._replace(instances=(OBSERVED._replace(**changes),))._replace(**of_node)


(INSTANCE,) = of(DESIRED, None)
OBSERVED = Observed(
    instance=INSTANCE,
    pipe=Directory(PIPE, "directory", 0, 0, 0o755, parents("/", "/run", "/run/nvidia-mps"), names()),
    log=Directory(LOG, "directory", 0, 0, 0o755, parents("/", "/var", "/var/log")),
    control=Peer("listening", PID, 0, "nvidia-cuda-mps"),
    privileged=Peer("listening", PID, 0, "nvidia-cuda-mps"),
    said=Answers(100.0, (), (), "100.0\n"),
    started_with=None,
    user=UserView(reached=True, step=f"{PIPE}/log", error=""),
)
SOUND = Facts(
    node="n1",
    daemons=(daemon(),),
    instances=(OBSERVED,),
    gpus=Gpus((gpu(0), gpu(1)), "ok", rc=0),
    cards=None,
    default=None,
    deployed=True,
    quiesced=False,
    nvidia=True,
    owner_uid=0,
)
