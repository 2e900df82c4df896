"""Faults of the pipe directory: deleted, opened, closed, given away, or not what its name says."""

from __future__ import annotations

import os
import shutil
import subprocess

from mpsfleet.errors import MpsfleetError
from mpsfleet.sim import interpreter, mending, processes
from mpsfleet.sim.target import Target, live_daemon

BAIT = "/var/tmp/sim-bait"  # noqa: S108  # a folder inside a node
USER_UID = 2001
_LISTENER = """\
import os, socket, sys
sys.path.insert(0, sys.argv[3])
from mpsfleet.sim import processes
from mpsfleet.sim.place import Place
root, place = sys.argv[1:3]
os.umask(0)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(place + ".new")
listener.listen(8)
os.rename(place + ".new", place)
sys.stdout.write("ready\\n")
sys.stdout.flush()
processes.sleep_while_up(Place(root).fleet, 1e9)
"""


def delete(target: Target) -> str:
    """Delete the directory with its files while the daemon lives on."""
    daemon = live_daemon(target)
    shutil.rmtree(target.pipe_path)
    _noted(target)
    return f"{target.pipe_directory} is deleted, the daemon lives on (pid {daemon.pid})"


def swap_control(target: Target) -> str:
    """Let a user's listening socket take the place of `control`, in a directory somebody opened to all."""
    live_daemon(target)
    open_to_all(target)
    control = f"{target.pipe_path}/control"
    place = target.place
    python = (interpreter.path(place.fleet), interpreter.OPTIONS)
    child = subprocess.Popen(
        (*python, "-c", _LISTENER, place.root, control, interpreter.package_parent()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    processes.register(place, "listener", child.pid)
    listener = next((each for each in processes.registered(place) if each.pid == child.pid), None)
    if listener is None or child.stdout is None or child.stdout.readline() != b"ready\n":
        raise MpsfleetError(f"the user's listener on {place.name} ended at once")
    child.stdout.close()
    child.returncode = 0  # it lives on
    mending.note_process(place, target.fault, listener, f"the user's listener, pid {child.pid}")
    return f"{target.pipe_directory}/control is a user's socket, served by pid {child.pid}"


def open_to_all(target: Target) -> str:
    """Do what a careless script does to make it work for everybody."""
    return _set_mode(target, 0o777, target.pipe_directory)


def close_to_users(target: Target) -> str:
    """Do what a careless umask does."""
    return _set_mode(target, 0o700, target.pipe_directory)


def give_away(target: Target) -> str:
    """Give the directory to a user, as a recursive chown does; only root can."""
    if os.geteuid() != 0:
        raise MpsfleetError("owner-polluted gives a directory to another user, which takes root or the lab")
    os.chown(target.pipe_path, USER_UID, -1)
    _noted(target)
    return f"{target.pipe_directory} belongs to alice"


def close_parent(target: Target) -> str:
    """Close the directory above; `mend` opens it again."""
    parent = os.path.dirname(target.pipe_directory)
    mode = os.stat(target.place.path(parent)).st_mode & 0o7777
    mending.note(target.place, mending.Undo(target.fault, "mode", f"{mode:04o} {parent}"))
    return _set_mode(target, 0o700, parent)


def plant_link(target: Target) -> str:
    """Put a link to a folder with somebody's files in the directory's place; a cleaner that follows it deletes them."""
    bait = target.place.path(BAIT)
    os.makedirs(bait, exist_ok=True)
    for name in ("precious", "control"):
        with open(f"{bait}/{name}", "w", encoding="utf-8") as stream:
            stream.write("somebody's\n")
    if os.path.isdir(target.pipe_path) and not os.path.islink(target.pipe_path):
        shutil.rmtree(target.pipe_path)
    elif os.path.lexists(target.pipe_path):
        os.unlink(target.pipe_path)
    os.makedirs(os.path.dirname(target.pipe_path), exist_ok=True)
    os.symlink(bait, target.pipe_path)
    _noted(target)
    return f"{target.pipe_directory} is a link to {BAIT}, which holds files of others"


def _set_mode(target: Target, mode: int, path: str) -> str:
    if not os.path.isdir(target.place.path(path)):
        raise MpsfleetError(f"{target.place.name} has no directory {path}: deploy MPS first")
    os.chmod(target.place.path(path), mode)
    _noted(target)
    return f"{path} has mode {mode:04o}"


def _noted(target: Target) -> None:
    mending.note(target.place, mending.Undo(target.fault, "none"))
