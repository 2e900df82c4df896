"""Commands: a program is run with an argument list and a time limit; stdout and stderr stay apart, the exit status is data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Optional

from clusterlab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Completed = subprocess.CompletedProcess[str]


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str = "",
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
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
        env=None if env is None else dict(env),
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
    stdin: str = "",
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
) -> str:
    """Run argv and return its stdout; `what` says in a few words what was tried.

    Raises LabError with the last line of the answer if it fails or takes longer than timeout_s.
    """
    try:
        done = run(argv, timeout_s=timeout_s, stdin=stdin, env=env, cwd=cwd)
    except subprocess.TimeoutExpired:
        raise LabError(f"{what}: no answer from {argv[0]} within {timeout_s:g} s") from None
    except OSError as error:
        raise LabError(f"{what}: {argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise LabError(f"{what}: {os.path.basename(argv[0])} ended with {done.returncode}: {lines[-1]}")
    return done.stdout
