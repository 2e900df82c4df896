"""Faults of the pipe directory: deleted, opened, closed, given away, or not what its name says."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from clusterlab.access import init_process, must_in_node, run_in_node
from clusterlab.daemons import Target, live_daemon
from clusterlab.errors import LabError
from clusterlab.mending import Undo, note
from clusterlab.processes import find_inside, namespace_pids

LISTENER = Path(__file__).resolve().parent.parent / "node" / "listener.py"
BAIT = "/var/tmp/lab-bait"  # noqa: S108 - a folder inside a node
USER = "alice"


def delete(target: Target) -> str:
    """Delete the directory with its files while the daemon lives on."""
    daemon = live_daemon(target)
    must_in_node(target.lab, target.node, ("rm", "-rf", "--", target.pipe_directory), "deleting the pipe directory")
    return f"{target.pipe_directory} is deleted, the daemon lives on (pid {namespace_pids(daemon.pid)[-1]})"


def swap_control(target: Target) -> str:
    """Let a user's listening socket take the place of `control`, in a directory somebody opened to all."""
    control = f"{target.pipe_directory}/control"
    open_to_all(target)
    answer = must_in_node(
        target.lab,
        target.node,
        ("python3", "-IS", "-", control),
        f"listening as {USER}",
        user=USER,
        stdin=LISTENER.read_text(encoding="utf-8"),
    )
    pid = int(answer)
    listener = find_inside(init_process(target.lab, target.node).pid, pid)
    if listener is None:
        raise LabError(f"{USER}'s listener on {target.node} ended at once")
    note(target.lab, target.node, Undo("end", f"{USER}'s listener, pid {pid}", listener))
    return f"{control} is {USER}'s socket, served by her pid {pid}"


def open_to_all(target: Target) -> str:
    """Do what a careless script does to make it work for everybody."""
    return _set_mode(target, "0777", target.pipe_directory)


def close_to_users(target: Target) -> str:
    """Do what a careless umask does."""
    return _set_mode(target, "0700", target.pipe_directory)


def give_away(target: Target) -> str:
    """Give the directory to a user, as a recursive chown does."""
    must_in_node(target.lab, target.node, ("chown", USER, "--", target.pipe_directory), "changing the owner")
    return f"{target.pipe_directory} belongs to {USER}"


def close_parent(target: Target) -> str:
    """Close the directory above; `mend` opens it again."""
    parent = str(PurePosixPath(target.pipe_directory).parent)
    mode = must_in_node(target.lab, target.node, ("stat", "--format=%a", "--", parent), "reading a mode").strip()
    note(target.lab, target.node, Undo("mode", f"0{mode} {parent}"))
    return _set_mode(target, "0700", parent)


def plant_link(target: Target) -> str:
    """Put a link to a folder with somebody's files in the directory's place; a cleaner that follows it deletes them."""
    directory = target.pipe_directory
    for argv in (
        ("mkdir", "-p", BAIT),
        ("cp", "/etc/hostname", f"{BAIT}/precious"),
        ("cp", "/etc/hostname", f"{BAIT}/control"),
        ("rm", "-rf", "--", directory),
        ("ln", "-s", "-T", "--", BAIT, directory),
    ):
        must_in_node(target.lab, target.node, argv, "planting a link")
    return f"{directory} is a link to {BAIT}, which holds files of others"


def _set_mode(target: Target, mode: str, path: str) -> str:
    if run_in_node(target.lab, target.node, ("test", "-d", path)).returncode != 0:
        raise LabError(f"{target.node} has no directory {path}: deploy MPS first, or name another --pipe-directory")
    must_in_node(target.lab, target.node, ("chmod", mode, "--", path), "changing a mode")
    return f"{path} has mode {mode}"
