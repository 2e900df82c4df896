"""A simulated fleet comes and goes: its directory, its nodes and their tools, and the end of all its processes."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from mpsfleet.errors import MpsfleetError, Refused
from mpsfleet.sim import interpreter, inventory, processes
from mpsfleet.sim.gpu.board import Board, boards, said
from mpsfleet.sim.place import CONTROLLER, MARK, Place, read_json, write_json
from mpsfleet.sim.slurm import cluster

if TYPE_CHECKING:
    from mpsfleet.sim.remembered import Memory

VERSIONS = ("470", "535", "550")
PREFIX = "mpsf."
LONGEST = 40  # bytes of the directory: a socket's path holds 107, and the longest in it takes some 60
_SWEEPS = 5
_TAG = ".mpsfleet-sim"  # made first, removed last: by it an unfinished fleet is known for one
_DIRECTORIES = (
    "etc/mpsfleet", "etc/slurm", "etc/systemd/system", "etc/sysusers.d", "etc/tmpfiles.d", "proc", "run/systemd/system",
    "sim/pids",
    "tmp", "usr/bin", "usr/lib", "usr/sbin", "var/log", "var/spool/slurmctld", "var/tmp",
)  # fmt: skip
_OPEN = ("tmp", "var/tmp")
_USERS = """\
root:x:0:0:root:/root:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
alice:x:2001:2001::/home/alice:/bin/bash
bob:x:2002:2002::/home/bob:/bin/bash
"""
_SLURM_TOOLS = ("squeue", "sbatch", "srun", "scancel")


class Wanted(NamedTuple):
    """What a fleet is to be."""

    boards: tuple[Board, ...]  # of n1, n2 and so on
    version: str = "535"
    folder: str | None = None  # None: a fresh one in the directory for temporary files


class Fleet(NamedTuple):
    """A fleet that is up."""

    folder: str
    nodes: tuple[str, ...]
    boards: tuple[Board, ...]
    version: str

    def place(self, name: str) -> Place:
        """Return a node or the controller. MpsfleetError where there is none of that name."""
        if name not in (*self.nodes, CONTROLLER):
            raise MpsfleetError(f"this fleet has no node {name}: it has {', '.join((*self.nodes, CONTROLLER))}")
        return Place(f"{self.folder}/{name}")


def running(memory: Memory) -> Fleet:
    """Return the fleet that is up. MpsfleetError where there is none."""
    folder = memory.fleet()
    known = _mark(folder) if folder else {}
    if not folder or known.get("state") != "up":
        raise MpsfleetError("no simulated fleet is up; `mpsfleet sim up 4` starts one")
    names = tuple(known["nodes"])
    return Fleet(folder, names, boards(known["gpus"], len(names)), known["version"])


def _mark(folder: str) -> dict[str, Any]:
    try:
        known = read_json(f"{folder}/{MARK}", {})
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def up(memory: Memory, wanted: Wanted) -> Fleet:
    """Make a fleet. Refused where one is up; what an aborted run left behind is taken away first."""
    interpreter.package_parent()
    with memory.alone():
        before = memory.fleet()
        if before is not None:
            if _mark(before).get("state") == "up":
                raise Refused(f"a simulated fleet is up in {before} already; `mpsfleet sim down` takes it away")
            _remove(before)
        folder = _new_folder(wanted)
        memory.remember(folder)  # before it exists: whatever ends this run, the next one finds it
        try:
            return _make(folder, wanted)
        except BaseException:
            _remove(folder)
            memory.forget()
            raise


def _new_folder(wanted: Wanted) -> str:
    if wanted.folder is None:
        folder = os.path.join(os.path.realpath(tempfile.gettempdir()), PREFIX + secrets.token_hex(3))
        if len(folder) > LONGEST:
            folder = f"/tmp/{os.path.basename(folder)}"  # noqa: S108  # a fresh name, made 0700 below
    else:
        parent, name = os.path.split(os.path.abspath(wanted.folder))
        folder = os.path.join(os.path.realpath(parent), name)
    if len(os.fsencode(folder)) > LONGEST:
        raise MpsfleetError(f"{folder} is too long: sockets lie in it, so it may have {LONGEST} bytes at most")
    if os.path.lexists(folder):
        raise Refused(f"{folder} is there already; name a directory that is not")
    return folder


def _make(folder: str, wanted: Wanted) -> Fleet:
    # Root's fleet is passed by the ordinary users as whom the product looks; nobody can list it.
    os.mkdir(folder, 0o700)
    write_json(f"{folder}/{_TAG}", {})
    names = tuple(f"n{number}" for number in range(1, len(wanted.boards) + 1))
    known = {"state": "starting", "nodes": names, "gpus": said(wanted.boards), "version": wanted.version}
    write_json(f"{folder}/{MARK}", known)
    interpreter.install(folder)
    made = Fleet(folder, names, wanted.boards, wanted.version)
    for name, board in zip((CONTROLLER, *names), (Board(()), *wanted.boards)):
        _make_node(Place(f"{folder}/{name}"), board, wanted.version)
    cluster.create(Place(f"{folder}/{CONTROLLER}"), dict(zip(names, wanted.boards)))
    inventory.write(made)
    if os.geteuid() == 0:
        os.chmod(folder, 0o711)  # noqa: S103  # see above
    write_json(f"{folder}/{MARK}", {**known, "state": "up", "since": time.time()})
    return made


def _make_node(place: Place, board: Board, version: str) -> None:
    for each in _DIRECTORIES:
        os.makedirs(f"{place.root}/{each}", 0o755, exist_ok=True)
    for each in _OPEN:
        os.chmod(f"{place.root}/{each}", 0o1777)  # noqa: S103  # as /tmp is
    _write(place, "/etc/passwd", _USERS)
    _write(place, "/etc/hostname", f"{place.name}\n")
    _tool(place, "scontrol", "mpsfleet.sim.slurm.scontrol")
    _tool(place, "sinfo", "mpsfleet.sim.slurm.sinfo")
    for name in _SLURM_TOOLS:
        _tool(place, name, "mpsfleet.sim.slurm.batch", name)
    if place.name != CONTROLLER:
        _tool(place, "systemctl", "mpsfleet.sim.systemd.systemctl")
        _tool(place, "systemd-sysusers", "mpsfleet.sim.systemd.sysusers")
    if board.kinds:
        _install_mps(place, board, version)


def _tool(place: Place, name: str, module: str, *words: str) -> None:
    interpreter.write_program(place.fleet, place.path(f"/usr/bin/{name}"), module, place.root, *words)


def _install_mps(place: Place, board: Board, version: str) -> None:
    from mpsfleet.sim import gpu, mps

    mps.install_tools(place.root, version)
    gpu.install_tools(place.root, version, board)


def _write(place: Place, path: str, text: str) -> None:
    with open(place.path(path), "w", encoding="utf-8") as stream:
        stream.write(text)


def down(memory: Memory) -> str | None:
    """End every process of the fleet and remove its directory; return that, None where there was no fleet."""
    with memory.alone():
        folder = memory.fleet()
        if folder is not None:
            _remove(folder)
            memory.forget()
        return folder


def _remove(folder: str) -> None:
    """Take a fleet away, however much of it there is. Refused where the directory is not one."""
    try:
        now = os.lstat(folder)
    except FileNotFoundError:
        end_processes(folder)
        return
    is_fleet = os.path.exists(f"{folder}/{_TAG}") or not os.listdir(folder)
    is_ours = stat.S_ISDIR(now.st_mode) and now.st_uid == os.geteuid() and is_fleet
    if not is_ours:
        raise Refused(f"{folder} is not the directory of a simulated fleet of yours, so it is left as it is")
    if os.path.exists(f"{folder}/{MARK}"):
        os.unlink(f"{folder}/{MARK}")  # from now on nothing of it starts or stays
    end_processes(folder)
    for name in os.listdir(folder):
        if name != _TAG:
            _remove_tree(f"{folder}/{name}")
    end_processes(folder)  # one that was being started meanwhile
    for name in (_TAG, *os.listdir(folder)):
        _remove_tree(f"{folder}/{name}")
    os.rmdir(folder)


def _remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=_open_and_remove)
    elif os.path.lexists(path):
        os.unlink(path)


def _open_and_remove(_remove_it: object, path: str, _error: object) -> None:
    """Remove what a fault has closed: a directory without permissions has to be opened first."""
    if not os.path.lexists(path):
        return
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


def end_processes(folder: str) -> None:
    """End every process that runs the fleet's interpreter, until none is left."""
    for _ in range(_SWEEPS):
        found = processes.of_fleet(folder)
        if not found:
            return
        processes.end(found, folder)
