"""A process to act on is held by its identity: what is not it, or no longer it, gets no signal."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from mpsfleet.node.host import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY = lambda pid: True  # noqa: E731, ARG005  # an identity that always fits


@pytest.fixture
def without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on a kernel before 5.3."""

    def missing(_: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)


@pytest.fixture(params=["pidfd", "no pidfd"])
def sleeper(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Provide a process, on this kernel and as on one without pidfds."""
    if request.param == "no pidfd":
        request.getfixturevalue("without_pidfds")
    with subprocess.Popen(("sleep", "600")) as process:
        yield process
        process.kill()


def test_it_ends_by_term(sleeper: subprocess.Popen[bytes]) -> None:
    held = processes.hold(sleeper.pid, ANY)

    assert held is not None
    assert held.end(2, 2) is None
    assert sleeper.wait() == -signal.SIGTERM
    held.close()


def test_a_stopped_one_ends_by_term_too(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    held = processes.hold(sleeper.pid, ANY)

    assert held is not None
    assert held.end(2, 2) is None
    held.close()


def test_one_that_is_not_it_is_not_held(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.hold(sleeper.pid, lambda pid: pid == 1) is None
    assert sleeper.poll() is None


def test_one_that_has_ended_is_not_held(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()

    assert processes.hold(sleeper.pid, ANY) is None


@pytest.mark.usefixtures("without_pidfds")
def test_without_pidfds_a_changed_identity_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = [True]
    held = processes.hold(os.getpid(), lambda pid: identity[0])  # noqa: ARG005
    assert held is not None
    identity[0] = False
    sent = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *words: sent.append(words))

        held.signal(signal.SIGKILL)

    assert sent == []
