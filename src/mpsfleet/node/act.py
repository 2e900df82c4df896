"""Act: carry out planned actions on a host, stopping at the first that does not take effect."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Callable

from mpsfleet import __version__, program
from mpsfleet.errors import MpsfleetError, NotInEffect, Refused
from mpsfleet.node import config, daemon, files, plan, prepare, units
from mpsfleet.node.desired import CONFIG
from mpsfleet.node.host import children
from mpsfleet.node.host import files as disk
from mpsfleet.node.judge.limits import is_as_wanted
from mpsfleet.node.model import Change, Unreadable
from mpsfleet.node.plan import Kind
from mpsfleet.node.probe import PROBE_USER, directories, probe_user, procfs
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.plan import Action

_START_S = 60.0
_STOP_S = 30.0
_QUICK_S = 20.0
_COMMAND_S = 4.0
_INTERPRETERS = ("/usr/bin/python3", "/usr/libexec/platform-python")  # what a package manager owns and upgrades


def installed(host: Host, desired: Desired, text: str, program_path: str) -> plan.Installed:
    """Read what is on the node of what mpsfleet owns."""
    contents = tuple((each.path, _content(host, each.path)) for each in files.table(desired, text))
    return plan.Installed(
        contents,
        _is_installed(host, program_path),
        disk.link_target(host.path(files.PROGRAM_LINK)),
        _has_user(host),
        units.state(host),
    )


def _content(host: Host, path: str) -> bytes | None:
    try:
        return disk.read_or_none(host.path(path))
    except OSError as error:
        raise MpsfleetError(f"{path} cannot be read: {error.strerror}; remove it if it is not yours") from None


def _has_user(host: Host) -> bool:
    user = probe_user(host)
    return user is not None and user[2] == PROBE_USER


def source() -> tuple[bytes, str]:
    """Return the running program's zipapp and the digest of its source. MpsfleetError when it runs from plain files."""
    archive, digest = program.source_archive(), program.source_digest()
    if archive is None or digest is None:
        message = "this program runs from plain files; deploy with the zipapp (mpsfleet.pyz), which installs itself"
        raise MpsfleetError(message)
    return disk.read(os.path.realpath(archive), 64 << 20), digest  # the installed name is a link of ours


def interpreter() -> str:
    """Return the absolute interpreter of the installed program: the system's, else the running one."""
    here = os.path.realpath(sys.executable)
    for each in _INTERPRETERS:
        if os.path.realpath(each) == here:
            return each
    return here


def _is_installed(host: Host, path: str) -> bool:
    try:
        copy = disk.read_or_none(host.path(path), 64 << 20)
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
    argv = (host.path("/usr/bin/systemd-sysusers"), files.SYSUSERS_PATH)
    answer = children.run((children.Command(argv, _QUICK_S),))[0]
    if answer.rc != 0:
        detail = f"not added ({show(answer.err.strip() or 'systemd-sysusers is not there')}); `nobody` is used instead"
        return (action.change._replace(action="leave", detail=detail),)
    return (action.change,)


def _reload(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "daemon-reload", limit_s=_QUICK_S)
    return (action.change,)


def _prepare(host: Host, desired: Desired, _action: Action) -> tuple[Change, ...]:
    return prepare.prepare(host, desired)


def _enable(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "enable", "--quiet", files.UNIT, limit_s=_QUICK_S)
    return (action.change,)


def start(host: Host, desired: Desired) -> None:
    """Start the unit and wait until its daemon answers. NotInEffect otherwise."""
    with contextlib.suppress(NotInEffect):  # it clears the start limit; a unit never started yet has none
        units.tell(host, "reset-failed", files.UNIT, limit_s=_QUICK_S)
    units.tell(host, "start", files.UNIT, limit_s=_START_S)
    problem = daemon.settle(host, desired)
    if problem is not None:
        raise NotInEffect(f"{problem}; see `journalctl -u {files.UNIT}` and {desired.log_directory}/control.log")


def _start(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    start(host, desired)
    return (action.change,)


def _require_heard(host: Host, desired: Desired) -> None:
    """See that a command of root's reaches the daemon of the pipe directory and nobody else."""
    pipe, fd = directories.look(host, desired.pipe_directory)
    named = procfs.named_mps(host)
    try:
        if isinstance(named, Unreadable) or daemon.hears_root(host, pipe, fd, procfs.daemons(host, named)) is None:
            raise NotInEffect(f"what listens in {pipe.path} is not its control daemon, so it is told nothing; audit it")
    finally:
        if fd >= 0:
            os.close(fd)


def _set_percentage(host: Host, desired: Desired, action: Action) -> tuple[Change, ...]:
    """Set the value and read it back: the daemon's exit status is 0 for a refusal too."""
    _require_heard(host, desired)
    words = f"set_default_active_thread_percentage {desired.active_thread_percentage:g}"
    answer = daemon.command(host, desired, words, _COMMAND_S)
    back = daemon.command(host, desired, "get_default_active_thread_percentage", _COMMAND_S)
    try:
        now = float(back.out.strip())
    except ValueError:
        now = -1.0
    if not is_as_wanted(now, desired):
        said = show((answer.out + answer.err).strip() or "nothing")
        raise NotInEffect(f"the default thread percentage is still {back.out.strip()!r}; the daemon said {said}")
    return (action.change,)


def _stop(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "stop", files.UNIT, limit_s=_STOP_S)
    return (action.change,)


def _disable(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    units.tell(host, "disable", "--quiet", files.UNIT, limit_s=_QUICK_S)
    return (action.change,)


def _remove(host: Host, _desired: Desired, action: Action) -> tuple[Change, ...]:
    disk.remove(host.path(action.path))
    if action.path == CONFIG:
        disk.remove_empty(host.path(os.path.dirname(CONFIG)))
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
    Kind.STOP: _stop,
    Kind.DISABLE: _disable,
    Kind.REMOVE: _remove,
    Kind.CLEAR: _clear,
    Kind.UNINSTALL: _uninstall,
}
