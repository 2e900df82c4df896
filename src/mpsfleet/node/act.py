"""Act: carry out planned actions on a host, stopping at the first that does not take effect."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Callable

from mpsfleet import __version__, program
from mpsfleet.errors import MpsfleetError, NotInEffect, Refused
from mpsfleet.node import (
    config,
    daemon,
    extras,
    files,
    hook_files,
    instances,
    prepare,
    settings,
    table,
    topology,
    units,
)
from mpsfleet.node.actions import Installed, Kind
from mpsfleet.node.desired import CONFIG
from mpsfleet.node.host import children
from mpsfleet.node.host import files as disk
from mpsfleet.node.model import Change, Unreadable
from mpsfleet.node.probe import PROBE_USER, probe_user
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.actions import Action
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance

_START_S = 60.0
_STOP_S = 30.0
_QUICK_S = 20.0
_COMMAND_S = 4.0
_SYSUSERS = "/usr/bin/systemd-sysusers"
_PROGRAM_CAP = 64 << 20  # bytes
_INTERPRETERS = ("/usr/bin/python3", "/usr/libexec/platform-python")  # what a package manager owns and upgrades


def installed(host: Host, wanted: tuple[Instance, ...], program_path: str) -> Installed:
    """Read what is on the node of what mpsfleet owns. Without systemd (in an image) nothing runs, and links tell."""
    contents = tuple((each, _content(host, each)) for each in table.every_path())
    names = (*units.known(host, tuple(each.unit for each in wanted)), *extras.UNITS)
    booted = units.is_booted(host)
    return Installed(
        contents,
        _is_installed(host, program_path),
        disk.link_target(host.path(files.PROGRAM_LINK)),
        _has_user(host),
        units.states(host, names) if booted else units.linked(host, names),
        booted,
        _modes(host),
    )


def _content(host: Host, path: str) -> bytes | None:
    try:
        return disk.read_or_none(host.path(path))
    except OSError as error:
        raise MpsfleetError(f"{path} cannot be read: {error.strerror}; remove it if it is not yours") from None


def _modes(host: Host) -> tuple[tuple[str, int], ...]:
    """Return the modes of the files that are there; node.toml's is its writer's choice."""
    found = ((each, disk.own_mode(host.path(each), host.owner_uid)) for each in table.every_path() if each != CONFIG)
    return tuple((path, mode) for path, mode in found if mode is not None)


def _has_user(host: Host) -> bool:
    user = probe_user(host)
    return user is not None and user[2] == PROBE_USER


def source() -> tuple[bytes, str]:
    """Return the program as a zipapp and the digest of its source. MpsfleetError when it runs from bare plain files.

    It is the running zipapp, else the one that a package installed by pip carries.
    """
    archive, digest = program.source_archive(), program.source_digest()
    if archive is not None and digest is not None:
        return disk.read(os.path.realpath(archive), _PROGRAM_CAP), digest  # the installed name is a link of ours
    carried = program.carried_archive()
    if carried is None:
        message = "this program runs from plain files; deploy with mpsfleet.pyz, which a checkout makes by `./dev pyz`"
        raise MpsfleetError(message)
    from hashlib import sha256

    data = disk.read(os.path.realpath(carried), _PROGRAM_CAP)
    return data, sha256(data).hexdigest()


def interpreter() -> str:
    """Return the absolute interpreter of the installed program: the system's, else the running one."""
    here = os.path.realpath(sys.executable)
    for each in _INTERPRETERS:
        if os.path.realpath(each) == here:
            return each
    return here


def _is_installed(host: Host, path: str) -> bool:
    try:
        copy = disk.read_or_none(host.path(path), _PROGRAM_CAP)
    except OSError:
        return False
    return copy is not None and program.is_rebuilt(copy, source()[1], interpreter())


def program_path() -> str:
    """Return where this program belongs on a node."""
    return files.program_path(__version__, source()[1])


def run(host: Host, desired: Desired, actions: tuple[Action, ...]) -> tuple[Change, ...]:
    """Carry the actions out in order and return what was done. Raises at the first that fails; a next run goes on."""
    done: list[Change] = []
    for each in actions:
        try:
            done += _DO[each.kind](host, desired, each)
        except OSError as error:  # a dozen turns, each with a system call
            message = f"could not {each.kind.value} ({each.change.what}): {error.strerror or error}"
            raise NotInEffect(message) from None
    return tuple(done)


def _write_program(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    data, digest = source()
    path = host.path(action.path)
    disk.ensure_directory(os.path.dirname(path), 0o755)
    disk.publish(path, program.rebuild(data, digest, interpreter()), 0o755)
    return (action.change,)


def _point_link(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    disk.publish_link(host.path(action.path), str(action.change.after))
    kept = {action.change.after, action.change.before}  # the one before may still be running
    return (action.change, *_remove_programs(host, kept))


def _remove_programs(host: Host, kept: set[str | None]) -> tuple[Change, ...]:
    """Remove the installed versions of the program that are not to be kept."""
    removed = []
    for version in disk.names(host.path(files.PROGRAM_DIRECTORY)):
        path = f"{files.PROGRAM_DIRECTORY}/{version}/mpsfleet"
        if path not in kept and disk.remove(host.path(path)):
            disk.remove_empty(host.path(os.path.dirname(path)))
            removed.append(Change(path, "remove", "an older version of the program"))
    return tuple(removed)


def _write(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    if action.path == CONFIG and config.load(host, action.content.decode())[0] != desired:
        raise NotInEffect("the new node.toml reads differently from what was planned; nothing was replaced")
    path = host.path(action.path)
    disk.ensure_directory(os.path.dirname(path), 0o755)
    disk.publish(path, action.content, action.mode)
    return (action.change,)


def _add_user(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    argv: tuple[str, ...] = (host.path(_SYSUSERS), files.SYSUSERS_PATH)
    if host.root and not units.is_booted(host):  # an image: this machine's program writes the image's passwd
        argv = (_SYSUSERS, f"--root={host.root}", os.path.basename(files.SYSUSERS_PATH))
    answer = children.run((children.Command(argv, _QUICK_S),))[0]
    if answer.rc != 0:
        detail = f"not added ({show(answer.err.strip() or 'systemd-sysusers is not there')}); `nobody` is used instead"
        return (action.change._replace(action="leave", detail=detail),)
    return (action.change,)


def _reload(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "daemon-reload", limit_s=_QUICK_S)
    return (action.change,)


def _prepare(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    """Prepare the directory of the action: the instance's it is of, or NVIDIA's own."""
    cards = topology.recorded(host)
    wanted = instances.of(desired, None if isinstance(cards, Unreadable) else cards)
    return prepare.one(host, wanted, action.change.what)


def _enable(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "enable", "--quiet", action.unit, limit_s=_QUICK_S)
    return (action.change,)


def start(host: Host, desired: Desired, instance: Instance) -> None:
    """Start an instance's unit and wait until its daemon answers with its settings. NotInEffect otherwise."""
    with contextlib.suppress(NotInEffect):  # it clears the start limit; a unit never started yet has none
        units.tell(host, "reset-failed", instance.unit, limit_s=_QUICK_S)
    units.tell(host, "start", instance.unit, limit_s=_START_S)
    problem = settings.settle(host, desired, instance)
    if problem is not None:
        raise NotInEffect(f"{problem}; see `journalctl -u {instance.unit}` and {instance.log_directory}/control.log")


def _start(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    if action.instance is None:
        units.tell(host, "start", action.unit, limit_s=_QUICK_S)
        return (action.change,)
    start(host, desired, _instance(action))
    return (action.change,)


def _instance(action: Action) -> Instance:
    if action.instance is None:
        message = f"the action {action.kind.value} names no instance"
        raise AssertionError(message)
    return action.instance


def _set_percentage(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    daemon.require_heard(host, _instance(action).pipe_directory)
    settings.percentage(host, desired, _instance(action))
    return (action.change,)


def _set_memory(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    daemon.require_heard(host, _instance(action).pipe_directory)
    settings.limits(host, desired, _instance(action))
    return (action.change,)


def _set_priority(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    daemon.require_heard(host, _instance(action).pipe_directory)
    settings.priority(host, desired, _instance(action))
    return (action.change,)


def _set_compute_mode(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    settings.compute_mode(host, action.gpu, action.word)
    return (action.change,)


def _stop(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "stop", action.unit, limit_s=_STOP_S)
    return (action.change,)


def _disable(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "disable", "--quiet", action.unit, limit_s=_QUICK_S)
    return (action.change,)


def _remove(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    disk.remove(host.path(action.path))
    folder = os.path.dirname(action.path)
    if folder in (os.path.dirname(CONFIG), hook_files.DIRECTORY):
        disk.remove_empty(host.path(folder))
    return (action.change,)


def _uninstall(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    _remove_programs(host, set())
    disk.remove_empty(host.path(files.PROGRAM_DIRECTORY))
    return (action.change,)


def _clear(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    return prepare.clear(host, action.path)


def refuse_when_off(host: Host) -> None:
    """Refuse to act where a person has put the kill switch."""
    if disk.exists(host.path(files.KILL_SWITCH)):
        raise Refused(f"{files.KILL_SWITCH} is there: mpsfleet changes nothing on this node until it is removed")


_DO: dict[Kind, Callable[[Host, Desired, Action], tuple[Change, ...]]] = {
    Kind.PROGRAM: _write_program,
    Kind.LINK: _point_link,
    Kind.WRITE: _write,
    Kind.ADD_USER: _add_user,
    Kind.RELOAD: _reload,
    Kind.PREPARE: _prepare,
    Kind.ENABLE: _enable,
    Kind.START: _start,
    Kind.PERCENTAGE: _set_percentage,
    Kind.MEMORY: _set_memory,
    Kind.PRIORITY: _set_priority,
    Kind.COMPUTE_MODE: _set_compute_mode,
    Kind.STOP: _stop,
    Kind.DISABLE: _disable,
    Kind.REMOVE: _remove,
    Kind.CLEAR: _clear,
    Kind.UNINSTALL: _uninstall,
}
