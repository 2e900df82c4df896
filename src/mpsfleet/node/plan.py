"""Plan: what is, beside what should be, becomes actions: ordered, least force first, each saying what it does. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.node import files
from mpsfleet.node.judge.directories import MODE
from mpsfleet.node.judge.gpus import is_mode
from mpsfleet.node.judge.limits import is_as_wanted, size
from mpsfleet.node.model import Answers, Change, Directory, Unreadable

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.files import Owned
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Facts, Observed


class Kind(enum.Enum):
    """The closed set of what an acting verb can do to a node's files and units."""

    PROGRAM = "write the program"
    LINK = "point the link at the program"
    WRITE = "write a file"
    ADD_USER = "add the system user"
    RELOAD = "have the service manager read its units again"
    PREPARE = "prepare the directories"
    ENABLE = "enable a unit"
    START = "start a unit"
    PERCENTAGE = "set the default thread percentage"
    MEMORY = "set the default memory limits"
    COMPUTE_MODE = "set a compute mode"
    STOP = "stop a daemon"
    DISABLE = "disable a unit"
    REMOVE = "remove a file"
    CLEAR = "remove a pipe directory"
    UNINSTALL = "remove the program"


class Action(NamedTuple):
    """One step, with what a person reads about it."""

    kind: Kind
    change: Change
    path: str = ""  # the file or directory it is about
    content: bytes = b""
    mode: int = 0
    instance: Instance | None = None
    unit: str = ""  # the unit it is about
    gpu: str = ""  # the GPU (UUID) it is about
    word: str = ""  # the value to set


class UnitState(NamedTuple):
    """What the service manager says about one of our units."""

    unit: str
    load: str  # "loaded" | "not-found" | ...
    active: str  # "active" | "inactive" | "failed" | "activating" | ...
    enabled: str  # "enabled" | "disabled" | ""
    main_pid: int
    stale: bool  # its file changed since it was read

    @property
    def runs(self) -> bool:
        """Whether it has a daemon, or is getting one or losing it."""
        return self.active not in ("inactive", "failed", "")


class Installed(NamedTuple):
    """What is on the node of what mpsfleet owns."""

    contents: tuple[tuple[str, bytes | None], ...]  # by path; None where the file is not there
    program: bool  # this very program is installed
    link: str | None  # where /usr/sbin/mpsfleet points
    user: bool  # the system user exists
    units: tuple[UnitState, ...]  # every unit of ours that the node has or should have
    booted: bool = True  # systemd runs; not so in an image

    def content(self, path: str) -> bytes | None:
        """Return the content of one file."""
        return dict(self.contents).get(path)

    def unit(self, name: str) -> UnitState:
        """Return the state of a unit."""
        return next((each for each in self.units if each.unit == name), UnitState(name, "", "inactive", "", 0, False))


class Wanted(NamedTuple):
    """What the node should have."""

    desired: Desired
    files: tuple[Owned, ...]
    program: str  # path of this program
    instances: tuple[Instance, ...]


def apply(wanted: Wanted, installed: Installed, facts: Facts, *, is_free: bool) -> tuple[Action, ...]:
    """Return what deploys the node. A daemon is stopped only where `is_free` says that no job can be on the node."""
    actions: list[Action] = []
    program = wanted.program
    if not installed.program:
        actions.append(Action(Kind.PROGRAM, Change(program, "create", "this program"), program))
    if installed.link != program:
        detail = f"link to {program}"
        change = Change(files.PROGRAM_LINK, "create" if installed.link is None else "replace", detail)
        actions.append(Action(Kind.LINK, change._replace(before=installed.link, after=program), files.PROGRAM_LINK))
    unit_changed = False
    for each in wanted.files:
        now = installed.content(each.path)
        if now == each.content:
            continue
        actions.append(_write(each, now))
        unit_changed = unit_changed or each.path in files.UNIT_PATHS
    if not installed.user:
        actions.append(Action(Kind.ADD_USER, Change("user mpsfleet", "create", "system user without a shell")))
    if installed.booted and (unit_changed or any(each.stale for each in installed.units)):
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    if not installed.booted:
        return (*actions, *_enable(wanted, installed))
    moves = disruptions(wanted, installed, facts)
    is_free = is_free or not stops(moves)
    if is_free:
        actions += moves
    actions += [Action(Kind.PREPARE, each) for each in preparations(facts)]
    actions += _enable(wanted, installed)
    if is_free:  # no second daemon beside one that has to go first
        actions += _start(wanted, installed, facts, restarted={each.unit for each in moves})
    actions += [each for at in facts.instances for each in (*_percentage(at), *_memory(at))]
    actions += _compute_modes(wanted, facts)
    return tuple(actions)


def _write(each: Owned, now: bytes | None) -> Action:
    before = None if now is None else now.decode("utf-8", "replace")
    detail = f"mode {each.mode:04o}"
    change = Change(each.path, "create" if now is None else "replace", detail, before, each.content.decode())
    return Action(Kind.WRITE, change, each.path, each.content, each.mode)


def disruptions(wanted: Wanted, installed: Installed, facts: Facts) -> tuple[Action, ...]:
    """Return what ends daemons that are no longer wanted, or that serve other directories or GPUs than they should."""
    units = {each.unit: each for each in wanted.instances}
    actions: list[Action] = []
    for state in installed.units:
        instance = units.get(state.unit)
        if instance is None:
            actions += _retire(state)
        elif state.runs and (why := _moved(state, instance, facts)) is not None:
            actions.append(Action(Kind.STOP, Change(state.unit, "stop", why), unit=state.unit))
    other = next(each for each in files.UNIT_PATHS if each != files.unit_path(wanted.desired))
    now = installed.content(other)
    if now is not None:
        actions.append(_remove(other, now.decode("utf-8", "replace")))
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    return tuple(actions)


def _retire(state: UnitState) -> list[Action]:
    actions = []
    if state.runs:
        detail = "the configuration has no such daemon any more"
        actions.append(Action(Kind.STOP, Change(state.unit, "stop", detail), unit=state.unit))
    if state.enabled == "enabled":
        actions.append(Action(Kind.DISABLE, Change(state.unit, "disable", "it is enabled"), unit=state.unit))
    return actions


def _moved(state: UnitState, instance: Instance, facts: Facts) -> str | None:
    """Return why a unit's daemon is not the one that the configuration asks for; None where it is."""
    if isinstance(facts.daemons, Unreadable):
        return None
    now = next((each for each in facts.daemons if each.process.pid == state.main_pid), None)
    if now is not None and now.directory != instance.pipe_directory and not now.deleted:
        return f"it serves {now.directory}, not {instance.pipe_directory}"
    at = next((each for each in facts.instances if each.instance.unit == state.unit), None)
    known = None if at is None or isinstance(at.gpus, Unreadable) else at.gpus
    if known is not None and known != instance.gpus:
        return "it was started for other GPUs"
    return None


def preparations(facts: Facts) -> tuple[Change, ...]:
    """Return what preparing comes to for each directory that is not root's own with the mode it should have."""
    found = [
        _preparation(each)
        for at in facts.instances
        for each in (at.pipe, at.log)
        if (each.kind, each.uid, each.mode) != ("directory", facts.owner_uid, MODE)
    ]
    guard = facts.default
    if guard is not None and facts.instances and (guard.kind, guard.uid) != ("directory", facts.owner_uid):
        found.append(_preparation(guard))
    return tuple(found)


def _preparation(directory: Directory) -> Change:
    if directory.kind == "directory":
        now = f"{directory.mode:04o}, user {directory.uid}"
        return Change(directory.path, "prepare", f"{now} → 0755 root:root", f"{now}\n", "0755, user 0\n")
    return Change(directory.path, "prepare", f"{directory.kind} → directory 0755 root:root", None, "0755, user 0\n")


def _enable(wanted: Wanted, installed: Installed) -> list[Action]:
    actions = []
    for each in wanted.instances:
        state = installed.unit(each.unit)
        if state.enabled != "enabled":
            change = Change(each.unit, "enable", f"it is {state.enabled or 'not installed'}")
            actions.append(Action(Kind.ENABLE, change, unit=each.unit))
    return actions


def _start(wanted: Wanted, installed: Installed, facts: Facts, restarted: set[str]) -> list[Action]:
    actions = []
    served = {at.instance.unit for at in facts.instances if facts.serving(at) is not None}
    for each in wanted.instances:
        state = installed.unit(each.unit)
        if each.unit in restarted or (
            state.active not in ("active", "activating", "reloading") and each.unit not in served
        ):
            detail = "with what is configured now" if each.unit in restarted else f"it is {state.active}"
            actions.append(Action(Kind.START, Change(each.unit, "start", detail), instance=each, unit=each.unit))
    return actions


def _percentage(at: Observed) -> list[Action]:
    """Set the value back on a daemon that runs; it counts for servers and clients that start from now on."""
    said = at.said
    if not isinstance(said, Answers) or said.percentage is None or is_as_wanted(said.percentage, at.instance):
        return []
    wanted = at.instance.active_thread_percentage
    change = Change(
        f"default thread percentage{_of(at)}",
        "set",
        f"{said.percentage:g} → {wanted:g}",
        f"{said.percentage:g}\n",
        f"{wanted:g}\n",
    )
    return [Action(Kind.PERCENTAGE, change, instance=at.instance)]


def _memory(at: Observed) -> list[Action]:
    """Set the limits where the daemon has others; one that should be none again waits for a restart."""
    said = at.said
    if not isinstance(said, Answers):
        return []
    pairs = tuple(zip(said.memory_limits_mib, at.instance.memory_limits_mib))
    if not any(wanted and now is not None and now != wanted for now, wanted in pairs):
        return []
    now_, wanted_ = (", ".join(size(each or 0) for each in column) for column in zip(*pairs))
    change = Change(f"memory limits{_of(at)}", "set", f"{now_} → {wanted_}", f"{now_}\n", f"{wanted_}\n")
    return [Action(Kind.MEMORY, change, instance=at.instance)]


def _of(at: Observed) -> str:
    return "" if at.instance.subject == "daemon node" else f" of {at.instance.unit}"


def _compute_modes(wanted: Wanted, facts: Facts) -> list[Action]:
    mode = wanted.desired.compute_mode
    ours = {uuid for each in wanted.instances for uuid in each.gpus}
    return [
        Action(
            Kind.COMPUTE_MODE,
            Change(f"compute mode of GPU {each.number}", "set", f"{each.compute_mode} → {mode}", after=f"{mode}\n"),
            gpu=each.uuid,
            word=mode,
        )
        for each in facts.gpus.gpus
        if mode and each.uuid in ours and not is_mode(each, mode)
    ]


def foreign_daemons(installed: Installed, facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each daemon of our directories that was not started by its unit."""
    found = []
    for at in facts.instances:
        serving = facts.serving(at)
        if serving is not None and serving.process.pid != installed.unit(at.instance.unit).main_pid:
            found.append(
                f"control daemon {serving.process.pid} serves {at.pipe.path} and was not started by "
                f"{at.instance.unit}; it is left alone until a reset (playbook reset_mps) replaces it"
            )
    return tuple(found)


def stops(moves: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return those that end a daemon."""
    return tuple(each for each in moves if each.kind is Kind.STOP)


def waiting(moves: tuple[Action, ...], why: str) -> tuple[str, ...]:
    """Return a sentence for each daemon that has to go and cannot while the node is in use, and why it is."""
    return tuple(
        f"{each.unit} runs on as it is ({each.change.detail}): {why}; when the node is free, deploy again or reset it"
        for each in stops(moves)
    )


def remove(installed: Installed, facts: Facts) -> tuple[Action, ...]:
    """Return what takes mpsfleet off the node again. Logs stay."""
    actions = []
    running = set()
    for unit in installed.units:
        if unit.runs:
            running.add(unit.unit)
            actions.append(Action(Kind.STOP, Change(unit.unit, "stop", f"it is {unit.active}"), unit=unit.unit))
        if unit.enabled == "enabled":
            actions.append(Action(Kind.DISABLE, Change(unit.unit, "disable", "it is enabled"), unit=unit.unit))
    actions += _restored_modes(facts)
    for path in reversed(files.every_path()):
        now = installed.content(path)
        if now is not None:
            actions.append(_remove(path, now.decode("utf-8", "replace")))
    if installed.booted and any(installed.content(each) is not None for each in files.UNIT_PATHS):
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    actions += _cleared(facts, running)
    if installed.link is not None:
        actions.append(_remove(files.PROGRAM_LINK, None))
        change = Change(files.PROGRAM_DIRECTORY, "remove", "every version of the program")
        actions.append(Action(Kind.UNINSTALL, change, files.PROGRAM_DIRECTORY))
    return tuple(actions)


def _cleared(facts: Facts, running: set[str]) -> list[Action]:
    detail = "removed with the daemon's left-over files"
    paths = [
        at.pipe.path
        for at in facts.instances
        if at.pipe.kind == "directory" and (at.instance.unit in running or facts.serving(at) is None)
    ]
    guard = facts.default
    if guard is not None and (guard.kind, guard.uid) == ("directory", facts.owner_uid):
        paths.append(guard.path)
    return [Action(Kind.CLEAR, Change(each, "remove", detail), each) for each in paths]


def _restored_modes(facts: Facts) -> list[Action]:
    """Put back the compute modes that the deploy found."""
    cards = () if facts.cards is None or isinstance(facts.cards, Unreadable) else facts.cards
    now = {each.uuid: each.compute_mode for each in facts.gpus.gpus}
    return [
        Action(
            Kind.COMPUTE_MODE,
            Change(f"compute mode of GPU {each.index}", "set", f"{now[each.uuid]} → {each.compute_mode}"),
            gpu=each.uuid,
            word=each.compute_mode.lower(),
        )
        for each in cards
        if each.compute_mode and now.get(each.uuid, each.compute_mode).lower() != each.compute_mode.lower()
    ]


def _remove(path: str, before: str | None) -> Action:
    return Action(Kind.REMOVE, Change(path, "remove", "it is mpsfleet's", before, None), path)
