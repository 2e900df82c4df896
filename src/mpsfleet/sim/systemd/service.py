"""The life of one service, as systemd.service(5) tells it: start, run, restart on failure, stop; a task of the loop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

from mpsfleet.sim import interpreter, processes
from mpsfleet.sim.systemd.loop import Event, Task, Wait
from mpsfleet.sim.systemd.unit_file import Command, Unit, parse

if TYPE_CHECKING:
    from collections.abc import Generator

    from mpsfleet.sim.place import Place
    from mpsfleet.sim.systemd.state import UnitState

_CLEAN = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)  # systemd.service(5), Restart=
_START_S, _STOP_S, _INTERVAL_S = 90.0, 90.0, 10.0  # systemd's defaults
_BURST, _RESTART_S = 5, 0.1
_WHY = {
    "exit-code": " because the control process exited with error code",
    "signal": " because a fatal signal was delivered to the control process",
    "timeout": " because a timeout was exceeded",
}


class Job(NamedTuple):
    """Something to do to the unit, and whom to tell: `done(rc, words for stderr)`."""

    verb: str  # "start" | "stop" | "restart"
    done: Callable[[int, str], None]


class Service:
    """One service; `changed` is called whenever its state did."""

    def __init__(self, place: Place, state: UnitState, changed: Callable[[], None]) -> None:
        self._place = place
        self.state = state
        self._changed = changed
        self._restart_at: float | None = None

    @property
    def unit(self) -> Unit:
        """The unit file as it was loaded."""
        return parse(self.state.text, self.state.name)

    def life(self) -> Task:
        """Wait for what comes, and do what it asks for; for ever."""
        if self.state.sub == "auto-restart":
            self._restart_at = time.monotonic()
        while True:
            event = yield Wait(self.state.main_pid, self._restart_at, jobs=True)
            if event.kind == "ended":
                self._main_ended(event.status)
            elif event.kind == "time":
                self._restart_at = None
                self.state.restarts += 1
                yield from self._start()
            else:
                yield from self._carry_out(event.job)

    def _carry_out(self, job: Job) -> Generator[Wait, Event, None]:
        if job.verb in ("stop", "restart"):
            yield from self._stop()
        rc, words = 0, ""
        if job.verb in ("start", "restart") and self.state.active != "active":
            self._restart_at, self.state.restarts = None, 0
            yield from self._start()
            if self.state.active == "failed":
                name = self.state.name
                rc, words = (
                    1,
                    (
                        f"Job for {name} failed{_WHY.get(self.state.result, '')}.\n"
                        f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.\n'
                    ),
                )
        job.done(rc, words)

    def _start(self) -> Generator[Wait, Event, None]:
        unit, now = self.unit, time.monotonic()
        interval_s = unit.seconds("Unit", "StartLimitIntervalSec", _INTERVAL_S)
        self.state.starts = [each for each in self.state.starts if now - each < interval_s]
        if len(self.state.starts) >= int(unit.value("Unit", "StartLimitBurst", str(_BURST))):
            self._say("Start request repeated too quickly.")
            self._become("failed", "failed", self.state.result if self.state.result != "success" else "start-limit-hit")
            return
        self.state.starts.append(now)
        self._become("activating", "start-pre", "success")
        limit = now + unit.seconds("Service", "TimeoutStartSec", _START_S)
        result = yield from self._control(unit.commands("ExecStartPre"), limit)
        if result == "success":
            result = self._spawn_main(unit)
        if result == "success":
            self._become("activating", "start-post", "success")
            result = yield from self._control(unit.commands("ExecStartPost"), limit)
        if result == "success":
            self._become("active", "running", "success")
            return
        yield from self._end_main()
        self._failed(result)

    def _control(self, commands: tuple[Command, ...], limit: float) -> Generator[Wait, Event, str]:
        """Run commands one after the other; return "success" or systemd's word for how one failed."""
        for each in commands:
            pid = self._spawn(each)
            if pid is None:
                result = "exit-code"
            else:
                event = yield Wait(pid, limit)
                if event.kind == "time":
                    os.kill(pid, signal.SIGKILL)  # our own child, which has not been collected
                    yield Wait(pid)
                    return "timeout"
                result = _result(event.status)
            if result != "success" and not each.may_fail:
                return result
        return "success"

    def _spawn_main(self, unit: Unit) -> str:
        """Start the main process; Type=exec counts as started once its program is executed."""
        commands = unit.commands("ExecStart")
        pid = self._spawn(commands[-1]) if commands else None
        if pid is None:
            return "exit-code"
        self.state.main_pid, self.state.main_start = pid, processes.start_of(pid) or 0
        return "success"

    def _spawn(self, command: Command) -> int | None:
        argv = _resolved(self._place, command.argv)
        journal = os.open(self._place.path("/var/log/systemd.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=journal,
                stderr=journal,
                cwd="/",
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"Failed at step EXEC spawning {command.argv[0]}: {error.strerror}")
            return None
        finally:
            os.close(journal)
        processes.register(self._place, "service", child.pid)
        child.returncode = 0  # the loop collects it, not the object
        return child.pid

    def _environment(self) -> dict[str, str]:
        """Return a command's whole environment; it names the main process as soon as there is one (systemd.exec(5))."""
        told = {"MAINPID": str(self.state.main_pid)} if self.state.main_pid else {}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **told}

    def _stop(self) -> Generator[Wait, Event, None]:
        if self._restart_at is not None:
            self._restart_at = None
            self._become("inactive", "dead", self.state.result)
        if self.state.main_pid:
            self._become("deactivating", "stop-sigterm", "success")
            yield from self._end_main()
            self._become("inactive", "dead", "success")

    def _end_main(self) -> Generator[Wait, Event, None]:
        """TERM and CONT to the main process alone (KillMode=process), KILL when its time is over."""
        if not self.state.main_pid:
            return
        known = processes.Known(self.state.main_pid, self.state.main_start, "service")
        for number in (signal.SIGTERM, signal.SIGCONT):
            processes.send(known, number)
        limit = time.monotonic() + self.unit.seconds("Service", "TimeoutStopSec", _STOP_S)
        event = yield Wait(known.pid, limit)
        if event.kind == "time":
            processes.send(known, signal.SIGKILL)
            yield Wait(known.pid)
        self._forget_main()

    def _forget_main(self) -> None:
        processes.forget(self._place, self.state.main_pid)
        self.state.main_pid = self.state.main_start = 0

    def _main_ended(self, status: int) -> None:
        self._forget_main()
        result = _result(status)
        is_clean = os.WTERMSIG(status) in _CLEAN if os.WIFSIGNALED(status) else result == "success"
        self._say(f"Main process exited, status {os.waitstatus_to_exitcode(status)}")
        if is_clean:
            self._become("inactive", "dead", "success")
        else:
            self._failed(result)

    def _failed(self, result: str) -> None:
        """Restart after a while where the unit says so, else stay failed."""
        if self.unit.value("Service", "Restart", "no") in ("on-failure", "always"):
            self._restart_at = time.monotonic() + self.unit.seconds("Service", "RestartSec", _RESTART_S)
            self._become("activating", "auto-restart", result)
        else:
            self._become("failed", "failed", result)

    def _become(self, active: str, sub: str, result: str) -> None:
        self.state.active, self.state.sub, self.state.result = active, sub, result
        self._changed()

    def _say(self, sentence: str) -> None:
        with open(self._place.path("/var/log/systemd.log"), "a", encoding="utf-8") as journal:
            journal.write(f"{self.state.name}: {sentence}\n")


def _result(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "signal"
    return "success" if os.waitstatus_to_exitcode(status) == 0 else "exit-code"


def _resolved(place: Place, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command of the node as one of this machine: paths lie under the root, and so do links' targets.

    Our own program names a system interpreter in its first line and works on the root it is given; so it is run with
    the fleet's interpreter and `--root`.
    """
    path = place.path(argv[0])
    for _ in range(8):
        if not os.path.islink(path):
            break
        target = os.readlink(path)
        path = place.path(target) if target.startswith("/") else os.path.join(os.path.dirname(path), target)
    if os.path.basename(path) == "mpsfleet" and path.startswith(place.root):
        python = interpreter.path(place.fleet)
        return (python, interpreter.OPTIONS, path, "--root", place.root, *argv[1:])
    return (path, *argv[1:])
