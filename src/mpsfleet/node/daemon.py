"""The control daemon of a node, as it is started: its command line, its environment from nothing, its first moments.

Under `-f` the daemon logs to its standard output, so the log is opened here, by descriptor and never through a link,
before this process becomes the daemon (a unit's own `append:` would be opened by the service manager, which follows).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable

from mpsfleet.errors import MpsfleetError, NotInEffect
from mpsfleet.node.host import children, files, processes
from mpsfleet.node.host_facts import MULTI_USER
from mpsfleet.node.model import Answers, Daemon, Directory, Unreadable, serving
from mpsfleet.node.probe import directories, mps, probe_user, procfs
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.instances import Instance

FIFO_MODE = 0o622  # clients write their lines; nobody but root reads them away
_MULTI_USER_OPTION = "-multiuser-server"  # as of driver 580; 550 does not start with it
_SETTLE_S = 10.0
_PAUSE_S = 0.05
_PID_DIGITS = 7  # pid_max is 4194304 at most (proc_sys_kernel(5))
_SETPRIV = ("/usr/bin/setpriv", "/bin/setpriv")


def environment(host: Host, instance: Instance) -> tuple[tuple[str, str], ...]:
    """Return the daemon's whole environment. Servers are found through PATH; the percentage is there from the start.

    The last variable is our own: an audit reads it beside the others, and so knows which option the daemon was given.
    """
    return (
        *children.ENVIRONMENT,
        ("CUDA_MPS_PIPE_DIRECTORY", host.path(instance.pipe_directory)),
        ("CUDA_MPS_LOG_DIRECTORY", host.path(instance.log_directory)),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{instance.active_thread_percentage:g}"),
        *((("CUDA_VISIBLE_DEVICES", ",".join(instance.gpus)),) if instance.gpus else ()),
        *(((MULTI_USER, "1"),) if instance.multi_user else ()),
    )


def become(host: Host, desired: Desired, instance: Instance) -> None:
    """Become the control daemon of an instance (the unit's ExecStart). Never returns."""
    binary = host.path(desired.control_binary)
    if not os.access(binary, os.X_OK):
        raise MpsfleetError(f"{desired.control_binary} is not installed; install NVIDIA's MPS package")
    log, fd = directories.look(host, instance.log_directory)
    if fd < 0 or log.uid != host.owner_uid:
        raise MpsfleetError(f"log directory {instance.log_directory} is not ready; run `mpsfleet node prepare`")
    try:
        output = files.open_log(fd, "control.log")
    except OSError as error:
        raise MpsfleetError(f"{instance.log_directory}/control.log cannot be opened: {error.strerror}") from None
    options = ("-f", _MULTI_USER_OPTION) if instance.multi_user else ("-f",)
    processes.become((binary, *options), environment(host, instance), output)


def settle(host: Host, desired: Desired, instance: Instance, main_pid: str = "") -> str | None:
    """Wait until the started daemon answers, then close its log fifo to readers. Return what is wrong, or None.

    `main_pid` is what systemd told the unit's ExecStartPost in MAINPID (systemd.exec(5)), and a hint alone: where that
    process has ended the wait ends too. Whatever else it holds, nothing is done to a process by it.
    """
    end = time.monotonic() + _SETTLE_S
    while True:
        pipe, fd = directories.look(host, instance.pipe_directory)
        try:
            problem = _unsettled(host.path(desired.control_binary), desired, pipe, fd)
            if problem is None:
                return None
        finally:
            if fd >= 0:
                os.close(fd)
        if _has_ended(host, main_pid):
            return f"the control daemon (process {main_pid}) ended before it answered: {problem}"
        if time.monotonic() >= end:
            return f"the control daemon does not answer {_SETTLE_S:g} s after its start: {problem}"
        processes.sleep(_PAUSE_S)


def _has_ended(host: Host, pid: str) -> bool:
    """Return whether `pid` names a process that is no more, or is a zombie; False where it is no process number."""
    is_number = pid.isascii() and pid.isdigit() and len(pid) <= _PID_DIGITS and int(pid) > 0
    return is_number and children.state_of(int(pid), host.proc) in ("", "Z", "X")


def _unsettled(binary: str, desired: Desired, pipe: Directory, fd: int) -> str | None:
    if fd < 0 or pipe.name("control") is None:
        return "it has made no socket"
    answer = children.run((mps.question(binary, fd, desired.query_timeout_s),))[0]
    said = mps.understand(answer, desired.query_timeout_s)
    if not isinstance(said, Answers):
        return said.reason
    try:
        files.chmod_fifo(fd, "log", FIFO_MODE)
    except FileNotFoundError:
        return "it has made no log fifo"
    return None


def command(host: Host, desired: Desired, directory: str, words: str, limit_s: float) -> children.Answer:
    """Send one writing command to the daemon of a pipe directory, as root; writes are sent one at a time."""
    pipe, fd = directories.look(host, directory)
    if fd < 0:
        return children.Answer(None, "", f"{pipe.path} is {pipe.kind}", missing=True)
    asked = mps.command(host.path(desired.control_binary), fd, f"{words}\n".encode(), limit_s)
    try:
        return children.run((asked,), _until_heard(asked, limit_s, mps.is_busy))[0]
    finally:
        os.close(fd)


def _until_heard(
    asked: children.Command, limit_s: float, is_unheard: Callable[[children.Answer], bool] = mps.is_unheard
) -> children.Again:
    """Return a rule that asks a busy daemon again until `limit_s` seconds from now."""
    end = time.monotonic() + limit_s

    def again(_index: int, answer: children.Answer) -> children.Command | None:
        left_s = end - time.monotonic() - mps.BUSY_PAUSE_S
        return asked._replace(limit_s=left_s, delay_s=mps.BUSY_PAUSE_S) if is_unheard(answer) and left_s > 0 else None

    return again


def hears_root(host: Host, pipe: Directory, fd: int, among: tuple[Daemon, ...]) -> Daemon | None:
    """Return the daemon that a command of root's through the pinned directory would reach, if it is one of `among`.

    The listener of both sockets must be the holder of the directory's control_lock; else nobody is spoken to.
    """
    owner = serving(pipe, among) if fd >= 0 else None
    if owner is None:
        return None
    peers = (mps.peer(host, fd, "control_privileged"), mps.peer(host, fd, "control"))
    return owner if all(each.outcome == "listening" and each.pid == owner.process.pid for each in peers) else None


def require_heard(host: Host, directory: str) -> None:
    """See that a command of root's reaches the daemon of the pipe directory and nobody else; NotInEffect otherwise."""
    pipe, fd = directories.look(host, directory)
    named = procfs.named_mps(host)
    try:
        if isinstance(named, Unreadable) or hears_root(host, pipe, fd, procfs.daemons(host, named)) is None:
            raise NotInEffect(f"what listens in {pipe.path} is not its control daemon, so it is told nothing; audit it")
    finally:
        if fd >= 0:
            os.close(fd)


def refuses_user(host: Host, desired: Desired, instance: Instance) -> str | None:
    """Ask the daemon with NVIDIA's own program as an ordinary user, as a job would; return what went wrong, or None."""
    setpriv = next((each for each in _SETPRIV if os.access(host.path(each), os.X_OK)), None)
    user = probe_user(host)
    if setpriv is None or user is None or os.geteuid() != 0:
        return None  # the audit's own look as a user has to do
    uid, gid, name = user
    dropped = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--inh-caps=-all")
    environment = (*children.ENVIRONMENT, ("CUDA_MPS_PIPE_DIRECTORY", host.path(instance.pipe_directory)))
    limit_s = desired.query_timeout_s
    argv = (host.path(setpriv), *dropped, host.path(desired.control_binary))
    command = children.Command(argv, limit_s, b"get_default_active_thread_percentage\n", environment)
    answer = children.run((command,), _until_heard(command, limit_s))[0]
    try:
        float(answer.out.strip())
    except ValueError:
        said = f"no answer within {limit_s:g} s" if answer.rc is None else (answer.err + answer.out).strip()
        return f"the new daemon of {instance.pipe_directory} answers root and not user {name}: {show(said)}"
    return None
