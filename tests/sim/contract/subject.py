"""The daemon under test: a pipe directory, a program, and what is seen of them from outside; real or simulated.

Everything that is started is recorded by pid and start time and ended with the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple

from contract.implementations import Implementation, control_binary

from mpsfleet.sim import mps, processes

NOBODY = 65534
QUICK_S = 3.0  # for what is answered
SILENCE_S = 0.4  # for what is not
_CREDENTIALS = struct.Struct("3i")
# INVENTED: no server of NVIDIA's runs without a GPU. The real daemon starts this, lists it as INITIALIZING, ends it.
STAND_IN = """\
#!/bin/sh
echo $$ >> {pids}
{body}
"""
STAYS = "exec sleep 30"


class Said(NamedTuple):
    """What a call came to; `rc` is None where it did not end in time."""

    rc: int | None
    out: str = ""
    err: str = ""


class File(NamedTuple):
    """A name in a directory."""

    kind: str  # "socket", "fifo", "file"
    mode: int


class Subject:
    """One daemon's surroundings, in a directory of its own."""

    def __init__(self, implementation: Implementation, folder: Path) -> None:
        self.is_real = implementation.is_real
        self.version = implementation.version
        self.root = Path(tempfile.mkdtemp(prefix="n", dir=folder))
        self.root.chmod(0o755)
        for each in ("bin", "proc", "run", "tmp", "usr/bin", "var/log", "sim/pids"):
            (self.root / each).mkdir(parents=True)
        self.pids = self.root / "pids"
        self.pids.touch()
        self.pids.chmod(0o666)
        self.pipe = self.root / "run/mps"
        self.log = self.root / "var/log/mps"
        self.binary = control_binary(implementation) if self.is_real else self._simulated(implementation.version)
        self.environment = {
            "PATH": f"{self.root}/bin:/usr/bin:/bin",
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }
        self._started: list[tuple[int, int]] = []
        self._children: list[subprocess.Popen[str]] = []
        self.stand_in(STAYS)

    def _simulated(self, version: int) -> str:
        mps.install_tools(str(self.root), str(version))
        return f"{self.root}/usr/bin/nvidia-cuda-mps-control"

    def stand_in(self, body: str) -> None:
        """Put a server into the daemon's PATH."""
        path = self.root / "bin/nvidia-cuda-mps-server"
        path.write_text(STAND_IN.format(pids=self.pids, body=body), encoding="utf-8")
        path.chmod(0o755)

    def call(
        self, *words: str, text: str = "", limit_s: float = QUICK_S, uid: int = 0, pipe: str = "", umask: int = 0o022
    ) -> Said:
        """Run the program once. As `uid` through a real user with NVIDIA's, as a declared one with the simulator's."""
        child = self.begin(*words, uid=uid, pipe=pipe, umask=umask)
        try:
            out, err = child.communicate(text, timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return Said(None)
        return Said(child.returncode, out, err)

    def begin(self, *words: str, uid: int = 0, pipe: str = "", umask: int = 0o022) -> subprocess.Popen[str]:
        """Start the program and leave it running with its input open."""
        argv, environment = [self.binary, *words], dict(self.environment)
        if pipe:
            environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe
        if uid and self.is_real:
            argv = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *argv]
        elif uid:
            environment.update(mps.as_user(uid))
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
            umask=umask,
            pass_fds=[int(pipe.rpartition("/")[2])] if pipe.startswith("/proc/self/fd/") else (),
        )
        self._children.append(child)
        return child

    def ask(self, text: str, limit_s: float = QUICK_S, uid: int = 0) -> Said:
        """Send commands, a line each."""
        return self.call(text=text, limit_s=limit_s, uid=uid)

    def start(self, *, umask: int = 0o022, pipe: str = "", **variables: str) -> Said:
        """Start the daemon in the background; it is recorded by who listens then."""
        self.environment.update(variables)
        said = self.call("-d", umask=umask, pipe=pipe)
        if said.rc == 0:
            self.record(self.listener(Path(pipe or self.pipe) / "control")[0])
        return said

    def record(self, pid: int) -> None:
        """Note a process that is to be ended with the test."""
        start = processes.start_of(pid)
        if start is not None:
            self._started.append((pid, start))

    def daemon(self) -> int:
        """Return the daemon that was started last."""
        return self._started[-1][0]

    def listener(self, path: Path) -> tuple[int, int]:
        """Return pid and uid of who listens on a socket, without sending a byte."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(path))
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return pid, uid

    def start_server(self, uid: int | None = None) -> int:
        """Let the daemon start its server and return that server's pid."""
        assert self.ask(f"start_server -uid {os.geteuid() if uid is None else uid}\n").rc == 0
        return self.listed_server()

    def listed_server(self) -> int:
        """Wait for a server in the list, until it has become the stand-in, and return its pid."""

        def look() -> str:
            return self.ask("get_server_list\n").out.strip()

        server = self.eventually(look)
        self.eventually(lambda: server in self.pids.read_text(encoding="utf-8").split())
        return int(server)

    def ask_in_vain(self, text: str) -> None:
        """Send commands that are not answered; then wait until the daemon has seen that their sender has gone."""
        before = self.control_log().count("UI closed")
        assert self.ask(text, SILENCE_S).rc is None
        self.eventually(lambda: self.control_log().count("UI closed") > before)

    def files(self) -> dict[str, File]:
        """Return what lies in the pipe directory."""
        found = {}
        for each in self.pipe.iterdir():
            mode = each.lstat().st_mode
            kind = "socket" if stat.S_ISSOCK(mode) else "fifo" if stat.S_ISFIFO(mode) else "file"
            found[each.name] = File(kind, stat.S_IMODE(mode))
        return found

    def control_log(self) -> list[str]:
        """Return the lines of control.log without time and pid."""
        lines = (self.log / "control.log").read_text(encoding="utf-8").splitlines()
        return [line.partition("] ")[2] for line in lines]

    def eventually(self, look: Callable[[], object], limit_s: float = QUICK_S) -> str:
        """Wait until something is so, and return it as text; the test fails where it does not become so."""
        limit = time.monotonic() + limit_s
        while not (found := look()):
            assert time.monotonic() < limit, "it did not come about in time"
            time.sleep(0.02)
        return str(found)

    def lives(self, pid: int) -> bool:
        """Return whether a process has not ended."""
        return processes.start_of(pid) is not None

    def signal(self, pid: int, number: int) -> None:
        """Signal a process of this test and, where that ends it, wait for the end."""
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.eventually(lambda: not self.lives(pid))

    def close(self) -> None:
        """End everything that this test started and remove its directory."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        own = [int(each) for each in self.pids.read_text(encoding="utf-8").split()]
        started = [(pid, processes.start_of(pid)) for pid in own if self._is_stand_in(pid)] + list(self._started)
        for pid, start in started:
            if start is not None and processes.start_of(pid) == start:
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root)

    def _is_stand_in(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{self.root}/".encode() in environment
