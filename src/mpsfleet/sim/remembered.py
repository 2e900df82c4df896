"""Which fleet is up: one small file per user and name, written before anything else is made, removed last.

So `sim down` finds a fleet whose `sim up` was killed at any moment. MPSFLEET_SIM_NAME selects one of several fleets.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import time
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet.errors import Refused, UsageError
from mpsfleet.sim.place import read_json, write_json
from mpsfleet.slurm.names import is_literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME_VARIABLE = "MPSFLEET_SIM_NAME"
USUAL_NAME = "sim"
_WAIT_S = 15.0


class Memory(NamedTuple):
    """Where it is remembered which directory the fleet of a name has."""

    path: str

    def fleet(self) -> str | None:
        """Return the directory of the fleet that is up, or was being made; None where there is none."""
        try:
            known = read_json(self.path, {})
        except ValueError:  # not ours, or damaged: nothing to rely on
            return None
        return known.get("fleet") if isinstance(known, dict) else None

    def remember(self, fleet: str) -> None:
        """Note the directory of the fleet."""
        write_json(self.path, {"fleet": fleet})

    def forget(self) -> None:
        """Note that there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock under which fleets of this name are made and taken away. Refused where another run keeps it."""
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        limit = time.monotonic() + _WAIT_S
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= limit:
                        message = "another `mpsfleet sim` is making or removing this fleet; try again in a moment"
                        raise Refused(message) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(fd)


def memory(environ: Mapping[str, str]) -> Memory:
    """Return where this user's fleet of this name is remembered: $XDG_RUNTIME_DIR/mpsfleet, else ~/.cache/mpsfleet."""
    name = environ.get(NAME_VARIABLE) or USUAL_NAME
    if not is_literal(name):
        raise UsageError(f"{NAME_VARIABLE} must be one plain word")
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    folder = runtime if runtime and os.access(runtime, os.W_OK) else ""
    if not folder:
        home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
        folder = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    os.makedirs(f"{folder}/mpsfleet", 0o700, exist_ok=True)
    return Memory(f"{folder}/mpsfleet/{name}.json")
