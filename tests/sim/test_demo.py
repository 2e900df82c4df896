"""`./dev demo` interrupted at any moment leaves nothing behind, and the next one can start. Bounded: it is cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rehearsal import REPOSITORY, processes_below, wait_until

DEMO = REPOSITORY / "tools" / "demo.py"
COLLECTION = REPOSITORY / "build" / "ansible" / "ansible_collections" / "mpsfleet" / "mps"
LIMIT_S = 40.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COLLECTION.exists(), reason="the collection is not built; `./dev collection` makes it"),
]


def environment(runtime: Path) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(runtime)}


def begin(runtime: Path) -> subprocess.Popen[str]:
    """Start the demo as a terminal does: in a process group of its own, to which Ctrl-C goes as a whole."""
    return subprocess.Popen(
        [sys.executable, str(DEMO)],
        env=environment(runtime),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_until(demo: subprocess.Popen[str], words: str) -> str:
    """Return what it says up to the line that holds `words`."""
    said = ""
    for line in demo.stdout or ():
        said += line
        if words in line:
            return said
    pytest.fail(f"it ended without saying {words!r}: {said}")


def folder_in(said: str) -> Path:
    return Path(next(word for word in said.split() if "mpsf." in word))


@pytest.mark.parametrize(
    ("words", "after_s", "is_whole_group"),
    [
        ("$ mpsfleet sim up", 0.05, True),
        ("are up in", 0.0, True),
        ("$ ansible-playbook", 2.5, True),
        ("2. Audit", 1.5, True),
        ("2. Audit", 0.5, False),
    ],
    ids=["while the fleet starts", "when it is up", "in a deploy", "in an audit", "to the demo alone"],
)
def test_an_interrupted_demo_leaves_nothing(
    tmp_path: Path, words: str, after_s: float, *, is_whole_group: bool
) -> None:
    demo = begin(tmp_path)
    try:
        said = read_until(demo, words)
        time.sleep(after_s)
        if is_whole_group:
            os.killpg(demo.pid, signal.SIGINT)
        else:
            demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=LIMIT_S)
        assert demo.returncode == 130, rest
        if "are up in" in said:
            folder = folder_in(said)
            assert (folder.exists(), processes_below(folder)) == (False, [])
        assert not list((tmp_path / "mpsfleet").glob("*.json"))
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.communicate()


def test_a_killed_demo_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    first = begin(tmp_path)
    said = read_until(first, "are up in")
    folder = folder_in(said)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert folder.exists()
    second = begin(tmp_path)
    try:
        read_until(second, "are up in")
        assert not folder.exists()
    finally:
        os.killpg(second.pid, signal.SIGINT)
        second.communicate(timeout=LIMIT_S)
    assert wait_until(lambda: not processes_below(folder))
