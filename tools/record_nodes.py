"""Record the simulated nodes of tests/nodes/ again: `.venv/bin/python tools/record_nodes.py [NAME…]`, all by default.

A node's about.toml says how it is made and what an audit of it must find. A fleet is started for each one alone, the
steps are followed, and the last audit is recorded; what was there before is replaced only by a recording that finds
what is expected, replays to the same, and that the checker of tests/nodes/ takes for possible.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
NODES = REPOSITORY / "tests" / "nodes"
sys.path[:0] = [str(REPOSITORY / "src"), str(NODES)]

import checker  # noqa: E402  # from here on, of this checkout
import recorded_node  # noqa: E402

from mpsfleet import __version__  # noqa: E402
from mpsfleet.node.audit import look  # noqa: E402
from mpsfleet.node.recorded import replay  # noqa: E402
from mpsfleet.node.render.json import report_object  # noqa: E402
from mpsfleet.sim import mps  # noqa: E402

FLEET = "/tmp/sim"  # noqa: S108  # shows in a recording as the place of the simulated programs; has to be short
_LIMIT_S = 60.0
_WAIT_S = 10.0
_USERS = {"alice": 2001, "bob": 2002}
_FILES = (recorded_node.ANSWERS, recorded_node.REPORT)


class RecordingFailed(Exception):
    """A node could not be recorded; the sentence says why."""


class Stage(NamedTuple):
    """A simulated fleet of one node, n1, and its controller, ctl."""

    scratch: Path
    program: Path

    @property
    def root(self) -> str:
        """The node's directory."""
        return f"{FLEET}/n1"

    def sim(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run `mpsfleet sim …`."""
        return self._run((sys.executable, "-m", "mpsfleet", "sim", *words), codes)

    def node(self, *words: str, codes: tuple[int, ...] = (0,), stdin: str = "") -> str:
        """Run the program on the node: its own copy where one is deployed."""
        link = Path(f"{self.root}/usr/sbin/mpsfleet")
        path = f"{self.root}{os.readlink(link)}" if link.is_symlink() else str(self.program)
        return self._run((sys.executable, "-IS", path, "--root", self.root, "node", *words), codes, stdin)

    def shell(self, line: str) -> str:
        """Run a line of shell in the node's directory, for what a simulated node has no fault for."""
        return self._run(("/bin/sh", "-e", "-c", line), (0,), folder=self.root)

    def _run(self, command: tuple[str, ...], codes: tuple[int, ...], stdin: str = "", folder: str = "/") -> str:
        environment = {
            "PATH": os.defpath,
            "PYTHONPATH": str(REPOSITORY / "src"),
            "XDG_RUNTIME_DIR": str(self.scratch),
            "MPSFLEET_SIM_NAME": "nodes",
        }
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            cwd=folder,
            env=environment,
        )
        if codes and done.returncode not in codes:
            said = (done.stderr.strip() or done.stdout.strip())[-400:]
            message = f"`{shlex.join(command[-4:])}` ended with {done.returncode}: {said}"
            raise RecordingFailed(message)
        return done.stdout


def follow(stage: Stage, node: recorded_node.About) -> None:
    """Make the node what it is to be."""
    for step in node.steps:
        word, _, rest = step.partition(" ")
        if word not in _STEPS:
            message = f"no step is called {word}; there are {', '.join(_STEPS)}"
            raise RecordingFailed(message)
        _STEPS[word](stage, node, rest)


def _apply(stage: Stage, node: recorded_node.About, _: str) -> None:
    stage.node("apply", "--config", "-", codes=(0, 1), stdin=node.config)


def _configure(stage: Stage, node: recorded_node.About, _: str) -> None:
    Path(f"{stage.root}/etc/mpsfleet/node.toml").write_text(node.configured, encoding="utf-8")


def _break(stage: Stage, _: recorded_node.About, rest: str) -> None:
    fault, *gpu = rest.split()
    stage.sim("break", "n1", fault, *(("--gpu", *gpu) if gpu else ()))


def _client(stage: Stage, _: recorded_node.About, rest: str) -> None:
    """Start CUDA programs of a user's and wait until MPS serves them."""
    user, directory, *count = rest.split()
    for _each in range(int(count[0]) if count else 1):
        pid = mps.start_client(stage.root, f"{stage.root}{directory}", _USERS[user])
        limit = time.monotonic() + _WAIT_S
        while mps.client_state(stage.root, pid) != "running":
            if time.monotonic() > limit:
                message = f"the client of {user} is {mps.client_state(stage.root, pid) or 'gone'}"
                raise RecordingFailed(message)
            time.sleep(0.02)


def _signal_servers(stage: Stage, _: recorded_node.About, rest: str) -> None:
    for pid in mps.servers(stage.root):
        os.kill(pid, signal.Signals[f"SIG{rest}"])


_STEPS: dict[str, Callable[[Stage, recorded_node.About, str], object]] = {
    "apply": _apply,
    "configure": _configure,
    "break": _break,
    "mend": lambda stage, _, __: stage.sim("mend", "n1"),
    "node": lambda stage, _, rest: stage.node(*shlex.split(rest), codes=()),
    "n1": lambda stage, _, rest: stage.sim("exec", "n1", *shlex.split(rest), codes=()),
    "ctl": lambda stage, _, rest: stage.sim("exec", "ctl", *shlex.split(rest), codes=()),
    "shell": lambda stage, _, rest: stage.shell(rest),
    "client": _client,
    "hold": lambda stage, _, rest: mps.hold_connection(stage.root, f"{stage.root}{rest}"),
    "server": _signal_servers,
    "pause": lambda _, __, rest: time.sleep(float(rest)),
}


def record(stage: Stage, name: str) -> str:
    """Record one node; return a line that says what came of it. RecordingFailed leaves the old recording."""
    folder = recorded_node.FOLDER / name
    node = recorded_node.about(folder)
    if node.source != checker.SIMULATED:
        return f"{name}: left as it is, for it is a recording of a {node.source}"
    if node.needs_root and os.geteuid() != 0:
        return f"{name}: left as it is, for this one takes root"
    fresh = stage.scratch / name
    stage.sim("up", "1", "--terse", "--version", node.mps, "--gpus", node.gpus, "--dir", FLEET)
    try:
        follow(stage, node)
        stage.node("audit", "--record", str(fresh), codes=(0, 1, 2, 3))
    finally:
        stage.sim("down", codes=())
    _require(fresh, node)
    for each in _FILES:
        shutil.copyfile(fresh / each, folder / each)
    _stamp(folder)
    size = sum((folder / each).stat().st_size for each in _FILES)
    return f"{name}: {node.verdict}, {len(node.findings)} findings, {size / 1000:.0f} kB"


def _require(fresh: Path, node: recorded_node.About) -> None:
    """Refuse a recording that is not what the node was made for, or that tells of this machine."""
    report = json.loads((fresh / recorded_node.REPORT).read_text(encoding="utf-8"))
    found = recorded_node.found(report)
    if found != node.expected:
        message = f"expected {node.expected}, found {found}: {[each['message'] for each in report['findings']]}"
        raise RecordingFailed(message)
    again, _ = replay.replay(replay.read(str(fresh)), look)
    if report_object(again) != report:
        message = f"audited again from its answers alone it comes to {recorded_node.found(report_object(again))}"
        raise RecordingFailed(message)
    text = "".join((fresh / each).read_text(encoding="utf-8") for each in _FILES)
    told = [each for each in _private_words() if each in text]
    if told:
        message = f"it tells of this machine: {', '.join(told)}"
        raise RecordingFailed(message)
    document = json.loads((fresh / recorded_node.ANSWERS).read_text(encoding="utf-8"))
    about = node._replace(date=_today())
    wrong = [str(each) for each in checker.problems(about, document, report)]
    if wrong:
        raise RecordingFailed("; ".join(wrong))


def _private_words() -> tuple[str, ...]:
    """Return what only this machine has: its name, and where the program and its user live."""
    name = os.uname().nodename
    named = (f'"{name}"', f" {name} ", f"{name}.")
    return (*named, str(REPOSITORY), os.path.expanduser("~") + "/", str(Path(sys.executable).parent))


def _stamp(folder: Path) -> None:
    """Note when, and by which version, in about.toml; its other lines stay as they were written."""
    path = folder / recorded_node.ABOUT
    stamps = {"date": _today(), "program": f'"{__version__}"'}
    lines = [
        f"{key} = {stamps[key]}" if (key := line.partition(" =")[0]) in stamps else line
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def main() -> int:
    """Record the named nodes, or all; 1 where one could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("name", nargs="*", help="a directory of tests/nodes/recorded")
    names = parser.parse_args().name or [each.name for each in recorded_node.folders()]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nodes.") as scratch:
        stage = Stage(Path(scratch), Path(scratch) / "mpsfleet.pyz")
        build = (sys.executable, str(REPOSITORY / "tools" / "build_pyz.py"), "--output", str(stage.program))
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        for name in names:
            try:
                print(record(stage, name), flush=True)
            except (RecordingFailed, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{name}: NOT RECORDED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
