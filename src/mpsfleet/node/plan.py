"""Plan: what is, beside what should be, becomes actions: ordered, least force first, each saying what it does. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node import files
from mpsfleet.node.judge.directories import MODE
from mpsfleet.node.judge.limits import is_as_wanted
from mpsfleet.node.model import Answers, Change, Directory, Unreadable

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.files import Owned
    from mpsfleet.node.model import Facts


class Kind(enum.Enum):
    """The closed set of what an acting verb can do to a node's files and unit."""

    PROGRAM = "write the program"
    LINK = "point the link at the program"
    WRITE = "write a file"
    ADD_USER = "add the system user"
    RELOAD = "have the service manager read its units again"
    PREPARE = "prepare the directories"
    ENABLE = "enable the unit"
    START = "start the unit"
    PERCENTAGE = "set the default thread percentage"
    STOP = "stop the daemon"
    DISABLE = "disable the unit"
    REMOVE = "remove a file"
    CLEAR = "remove the pipe directory"
    UNINSTALL = "remove the program"


class Action(NamedTuple):
    """One step, with what a person reads about it."""

    kind: Kind
    change: Change
    path: str = ""
    content: bytes = b""
    mode: int = 0


class UnitState(NamedTuple):
    """What the service manager says about nvidia-mps.service."""

    load: str  # "loaded" | "not-found" | ...
    active: str  # "active" | "inactive" | "failed" | "activating" | ...
    enabled: str  # "enabled" | "disabled" | ""
    main_pid: int
    stale: bool  # its file changed since it was read


class Installed(NamedTuple):
    """What is on the node of what mpsfleet owns."""

    contents: tuple[tuple[str, bytes | None], ...]  # by path; None where the file is not there
    program: bool  # this very program is installed
    link: str | None  # where /usr/sbin/mpsfleet points
    user: bool  # the system user exists
    unit: UnitState

    def content(self, path: str) -> bytes | None:
        """Return the content of one file."""
        return dict(self.contents).get(path)


def apply(
    desired: Desired, wanted: tuple[Owned, ...], program: str, installed: Installed, facts: Facts
) -> tuple[Action, ...]:
    """Return what deploys the node. Nothing here restarts a daemon: what needs that is for a reset."""
    actions: list[Action] = []
    if not installed.program:
        actions.append(Action(Kind.PROGRAM, Change(program, "create", "this program"), program))
    if installed.link != program:
        detail = f"link to {program}"
        change = Change(files.PROGRAM_LINK, "create" if installed.link is None else "replace", detail)
        actions.append(Action(Kind.LINK, change._replace(before=installed.link, after=program), files.PROGRAM_LINK))
    unit_changed = False
    for each in wanted:
        now = installed.content(each.path)
        if now == each.content:
            continue
        actions.append(_write(each, now))
        unit_changed = unit_changed or each.path == files.UNIT_PATH
    if not installed.user:
        actions.append(Action(Kind.ADD_USER, Change("user mpsfleet", "create", "system user without a shell")))
    if unit_changed or installed.unit.stale:
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    actions += [Action(Kind.PREPARE, each) for each in preparations(facts)]
    actions += _unit(installed.unit, facts)
    actions += _percentage(desired, facts)
    return tuple(actions)


def _write(each: Owned, now: bytes | None) -> Action:
    before = None if now is None else now.decode("utf-8", "replace")
    detail = f"mode {each.mode:04o}"
    change = Change(each.path, "create" if now is None else "replace", detail, before, each.content.decode())
    return Action(Kind.WRITE, change, each.path, each.content, each.mode)


def preparations(facts: Facts) -> tuple[Change, ...]:
    """Return what preparing comes to for each directory that is not root's own with the mode it should have."""
    return tuple(
        _preparation(each)
        for each in (facts.pipe, facts.log)
        if (each.kind, each.uid, each.mode) != ("directory", facts.owner_uid, MODE)
    )


def _preparation(directory: Directory) -> Change:
    if directory.kind == "directory":
        now = f"{directory.mode:04o}, user {directory.uid}"
        return Change(directory.path, "prepare", f"{now} → 0755 root:root", f"{now}\n", "0755, user 0\n")
    return Change(directory.path, "prepare", f"{directory.kind} → directory 0755 root:root", None, "0755, user 0\n")


def _unit(unit: UnitState, facts: Facts) -> list[Action]:
    actions = []
    if unit.enabled != "enabled":
        actions.append(Action(Kind.ENABLE, Change(files.UNIT, "enable", f"it is {unit.enabled or 'not installed'}")))
    if unit.active not in ("active", "activating", "reloading") and facts.serving() is None:
        actions.append(Action(Kind.START, Change(files.UNIT, "start", f"it is {unit.active}")))
    return actions


def _percentage(desired: Desired, facts: Facts) -> list[Action]:
    """Set the value back on a daemon that runs; it counts for servers and clients that start from now on."""
    said = facts.said
    if not isinstance(said, Answers) or said.percentage is None or is_as_wanted(said.percentage, desired):
        return []
    wanted = desired.active_thread_percentage
    change = Change(
        "default thread percentage",
        "set",
        f"{said.percentage:g} → {wanted:g}",
        f"{said.percentage:g}\n",
        f"{wanted:g}\n",
    )
    return [Action(Kind.PERCENTAGE, change)]


def foreign_daemon(unit: UnitState, facts: Facts) -> str | None:
    """Return a sentence when the daemon of our directory was not started by our unit."""
    serving = facts.serving()
    if serving is None or serving.process.pid == unit.main_pid:
        return None
    return (
        f"control daemon {serving.process.pid} serves {facts.pipe.path} and was not started by {files.UNIT}; "
        "it is left alone until a reset (playbook reset_mps) replaces it"
    )


def moved_daemon(unit: UnitState, desired: Desired, facts: Facts) -> str | None:
    """Return a sentence when the unit's daemon still serves the pipe directory of before."""
    if isinstance(facts.daemons, Unreadable):
        return None
    old = [each for each in facts.daemons if each.process.pid == unit.main_pid]
    if not old or old[0].directory == desired.pipe_directory:
        return None
    return (
        f"control daemon {old[0].process.pid} still serves {old[0].directory}; a deploy restarts no daemon, "
        f"so a reset (playbook reset_mps) moves it to {desired.pipe_directory}"
    )


def remove(desired: Desired, wanted: tuple[Owned, ...], installed: Installed, facts: Facts) -> tuple[Action, ...]:
    """Return what takes mpsfleet off the node again. Logs stay."""
    actions = []
    unit = installed.unit
    runs = unit.active not in ("inactive", "failed")
    if runs:
        actions.append(Action(Kind.STOP, Change(files.UNIT, "stop", f"it is {unit.active}")))
    if unit.enabled == "enabled":
        actions.append(Action(Kind.DISABLE, Change(files.UNIT, "disable", "it is enabled")))
    for each in reversed(wanted):
        now = installed.content(each.path)
        if now is not None:
            actions.append(_remove(each.path, now.decode("utf-8", "replace")))
    if installed.content(files.UNIT_PATH) is not None:
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    if facts.pipe.kind == "directory" and (runs or facts.serving() is None):
        detail = "removed with the daemon's left-over files"
        actions.append(Action(Kind.CLEAR, Change(desired.pipe_directory, "remove", detail), desired.pipe_directory))
    if installed.link is not None:
        actions.append(_remove(files.PROGRAM_LINK, None))
        change = Change(files.PROGRAM_DIRECTORY, "remove", "every version of the program")
        actions.append(Action(Kind.UNINSTALL, change, files.PROGRAM_DIRECTORY))
    return tuple(actions)


def _remove(path: str, before: str | None) -> Action:
    return Action(Kind.REMOVE, Change(path, "remove", "it is mpsfleet's", before, None), path)
