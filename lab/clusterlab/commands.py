"""Commands: a program runs with an argument list and a time limit; both streams stay apart, the status is data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from clusterlab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Completed = subprocess.CompletedProcess[str]


def search_path() -> str:
    """Return PATH with the system's sbin folders: `su` and some sudo set-ups leave them out, and `ip` lives there."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys((*folders, "/usr/sbin", "/usr/bin", "/sbin", "/bin")))


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Completed:
    """Run argv and return its exit status and both streams.

    The child leads a process group of its own, and the whole group is killed when the limit is over, since entering a
    node puts several processes between us and the program.
    Raises subprocess.TimeoutExpired, with the output so far, after timeout_s seconds.
    """
    with subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        env={**(os.environ if env is None else env), "PATH": search_path()},
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)


def must(
    argv: Sequence[str],
    what: str,
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> str:
    """Run argv and return its stdout; `what` says in a few words what was tried.

    Raises LabError with the last line of the answer if it fails or takes longer than timeout_s.
    """
    with explained(argv[0], what):
        return stdout_of(run(argv, timeout_s=timeout_s, env=env, cwd=cwd), what)


@contextlib.contextmanager
def explained(program: str, what: str) -> Iterator[None]:
    """Translate a time-out or a program that cannot be started to a LabError that says what was tried."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{what}: no answer from {program} within {error.timeout:g} s") from None
    except OSError as error:
        raise LabError(f"{what}: {program}: {error.strerror}") from error


def stdout_of(done: Completed, what: str) -> str:
    """Return the stdout of a command that succeeded; LabError with the last line of its answer if it did not."""
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise LabError(f"{what}: exit status {done.returncode}: {lines[-1]}")
    return done.stdout
