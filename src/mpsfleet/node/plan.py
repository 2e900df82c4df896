"""Plan: what is, beside what should be, becomes actions: ordered, least force first, each saying what it does. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node import files
from mpsfleet.node.actions import Action, Kind
from mpsfleet.node.extras import UNITS as EXTRA_UNITS
from mpsfleet.node.extras import every_path as extra_paths
from mpsfleet.node.host_facts import MULTI_USER
from mpsfleet.node.judge.directories import MODE
from mpsfleet.node.judge.gpus import is_mode
from mpsfleet.node.judge.limits import is_as_wanted, size
from mpsfleet.node.model import Answers, Change, Directory, Unreadable
from mpsfleet.node.table import every_path

if TYPE_CHECKING:
    from mpsfleet.node.actions import Installed, UnitState, Wanted
    from mpsfleet.node.cards import Card
    from mpsfleet.node.files import Owned
    from mpsfleet.node.instances import Instance
    from mpsfleet.node.model import Facts, Observed


_NO_MORE = "the configuration asks for it no more"


def image(wanted: Wanted, installed: Installed) -> tuple[Action, ...]:
    """Return what deploys into a tree whose systemd does not run: files, and links for the next boot."""
    return (*_files(wanted, installed), *_enable(wanted, installed))


def apply(wanted: Wanted, installed: Installed, facts: Facts, *, is_free: bool) -> tuple[Action, ...]:
    """Return what deploys the node. A daemon is stopped only where `is_free` says that no job can be on the node."""
    actions = [*_restored_modes(wanted.restored, facts), *_files(wanted, installed)]  # before the record forgets them
    if any(each.path.startswith(f"{files.UNIT_FOLDER}/") for each in actions) or any(
        each.stale for each in installed.units
    ):
        actions.append(Action(Kind.RELOAD, Change("systemd", "reload", "units are read again")))
    moves = disruptions(wanted, installed, facts)
    is_free = is_free or not stops(moves)
    if is_free:
        actions += moves
        actions += _abandoned(wanted, installed, facts, moves)
    actions += [Action(Kind.PREPARE, each) for each in preparations(facts)]
    actions += _enable(wanted, installed)
    if is_free and not facts.quiesced:  # no second daemon beside one that has to go first
        actions += _start(wanted, installed, facts, restarted={each.unit for each in moves})
    actions += [each for at in facts.instances for each in (*_percentage(at), *_memory(at), *_priority(at))]
    actions += _compute_modes(wanted, facts)
    actions += _extras(wanted, installed)
    return tuple(actions)


def _abandoned(wanted: Wanted, installed: Installed, facts: Facts, moves: tuple[Action, ...]) -> list[Action]:
    """Clear the pipe directories that are no instance's any more, unless a daemon that stays serves them."""
    ending = {installed.unit(each.unit).main_pid for each in stops(moves)}
    daemons = () if isinstance(facts.daemons, Unreadable) else facts.daemons
    served = {each.directory for each in daemons if each.process.pid not in ending}
    detail = "no daemon has it any more"
    return [Action(Kind.CLEAR, Change(each, "remove", detail), each) for each in wanted.abandoned if each not in served]


def _files(wanted: Wanted, installed: Installed) -> list[Action]:
    actions: list[Action] = []
    program = wanted.program
    if not installed.program:
        actions.append(Action(Kind.PROGRAM, Change(program, "create", "this program"), program))
    if installed.link != program:
        detail = f"link to {program}"
        change = Change(files.PROGRAM_LINK, "create" if installed.link is None else "replace", detail)
        actions.append(Action(Kind.LINK, change._replace(before=installed.link, after=program), files.PROGRAM_LINK))
    actions += [_write(each, installed.content(each.path)) for each in wanted.files if not installed.has(each)]
    if not installed.user:
        actions.append(Action(Kind.ADD_USER, Change("user mpsfleet", "create", "system user without a shell")))
    return actions


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
        if state.unit in EXTRA_UNITS:
            continue
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
        actions.append(Action(Kind.STOP, Change(state.unit, "stop", _NO_MORE), unit=state.unit))
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
    own = None if at is None or at.state is None or isinstance(at.state.own, Unreadable) else at.state.own
    if own is not None and bool(own.variable(MULTI_USER)) != instance.multi_user:
        return "it serves one user at a time" if instance.multi_user else "it serves all users at once"
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
    for each in (*(instance.unit for instance in wanted.instances), *wanted.extra_units):
        state = installed.unit(each)
        if state.enabled != "enabled":
            change = Change(each, "enable", f"it is {state.enabled or 'not installed'}")
            actions.append(Action(Kind.ENABLE, change, unit=each))
    return actions


def _extras(wanted: Wanted, installed: Installed) -> list[Action]:
    """Start the timer that is wanted, and take away what is no longer asked for; no daemon hangs on these."""
    actions = []
    for each in EXTRA_UNITS:
        state = installed.unit(each)
        if each in wanted.extra_units:
            if each.endswith(".timer") and not state.runs:
                actions.append(Action(Kind.START, Change(each, "start", f"it is {state.active}"), unit=each))
            continue
        if state.runs:
            actions.append(Action(Kind.STOP, Change(each, "stop", _NO_MORE), unit=each))
        if state.enabled == "enabled":
            actions.append(Action(Kind.DISABLE, Change(each, "disable", _NO_MORE), unit=each))
    kept = {each.path for each in wanted.files}
    left = (each for each in extra_paths() if each not in kept)
    return actions + [
        _remove(path, now.decode("utf-8", "replace")) for path in left if (now := installed.content(path)) is not None
    ]


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


def _priority(at: Observed) -> list[Action]:
    said, wanted = at.said, at.instance.client_priority
    if not isinstance(said, Answers) or said.client_priority in (None, wanted):
        return []
    now = said.client_priority
    change = Change(f"client priority{_of(at)}", "set", f"{now} → {wanted}", f"{now}\n", f"{wanted}\n")
    return [Action(Kind.PRIORITY, change, instance=at.instance)]


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


def waiting(moves: tuple[Action, ...], why: str) -> str:
    """Return a sentence about the daemons that have to go and cannot while the node is in use, and why it is."""
    ends = stops(moves)
    named = ", ".join(f"{each.unit} ({each.change.detail})" for each in ends)
    stay = "this daemon runs on as it is" if len(ends) == 1 else "these daemons run on as they are"
    return f"{why}; when the node is free, deploy again or reset it. Until then {stay}: {named}"


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
    actions += _restored_modes(() if isinstance(facts.cards, Unreadable) else facts.cards or (), facts)
    for path in reversed(every_path()):
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


def _restored_modes(cards: tuple[Card, ...], facts: Facts) -> list[Action]:
    """Put back the compute modes that the deploy found."""
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
