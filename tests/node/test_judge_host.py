"""Judging what surrounds the daemons: units, files of ours, processes, places, and why a daemon is silent. Invented."""

from __future__ import annotations

from typing import Any

import pytest
from build import DESIRED, LOG, OBSERVED, PIPE, SOUND, changed, daemon, names, process

from mpsfleet.node.host_facts import Cause, Drift, Holder, HostState, InstanceState, Own, Unit, Volume
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Directory, Facts, Peer, Silence, Unreadable

UNIT = Unit("nvidia-mps.service", main_pid=daemon().process.pid)
OWN = Own(daemon().process.pid, "/usr/bin/nvidia-cuda-mps-control", (("CUDA_MPS_LOG_DIRECTORY", LOG),))
DOWN = {"daemons": (), "control": Peer("refused"), "privileged": Peer("refused")}
STRANGER = Peer("listening", 900, 2001, "nvidia-cuda-mps", is_control_program=True)
ITSELF = Peer("listening", daemon().process.pid, 0, "nvidia-cuda-mps", is_control_program=True)
HELD = Silence("timeout", "it did not answer within 2 s", "S", held=True, seconds=2.0)
MUTE = Silence("mute", "its log thread has ended")
ANOTHER = daemon(directory=PIPE, inode=99)


def of(unit: Unit = UNIT, facts: dict[str, Any] | None = None, **state: Any) -> Facts:
    """Return the facts of a sound node with a unit and what surrounds its one daemon."""
    return changed(state=InstanceState(unit, **{"own": OWN, **state}), **(facts or {}))


def with_files(*drifts: Drift) -> Facts:
    return of()._replace(host=HostState((UNIT,), drifts))


def on_host(facts: Facts, *units: Unit) -> Facts:
    return facts._replace(host=HostState(units or (UNIT,), ()))


CASES: list[tuple[str, Facts, list[tuple[str, str]], str]] = [
    ("sound", on_host(of()), [], ""),
    (
        "starting",
        on_host(of(UNIT._replace(active="activating", sub="start"), DOWN)),
        [("daemon-starting", "node")],
        "is being started",
    ),
    (
        "given up",
        on_host(of(UNIT._replace(active="failed", result="start-limit-hit"), DOWN)),
        [("daemon-absent", "node"), ("unit-start-limit", "node")],
        "given up on nvidia-mps.service",
    ),
    (
        "failed",
        on_host(of(UNIT._replace(active="failed", result="exit-code"), DOWN)),
        [("daemon-absent", "node"), ("unit-failed", "node")],
        "its last result was exit-code",
    ),
    (
        "skipped",
        on_host(of(UNIT._replace(active="inactive", sub="dead", is_skipped=True), DOWN)),
        [("daemon-absent", "node"), ("unit-skipped", "node")],
        "one of its conditions did not hold",
    ),
    ("disabled", on_host(of(UNIT._replace(is_enabled=False))), [("unit-disabled", "node")], "is disabled"),
    (
        "timer stopped",
        on_host(of(), UNIT, Unit("mpsfleet-audit.timer", active="inactive")),
        [("unit-disabled", "node")],
        "nobody audits this node by the clock",
    ),
    (
        "started by hand",
        on_host(of(UNIT._replace(main_pid=0), group="/user.slice/session-3.scope")),
        [("daemon-foreign", "node")],
        "it runs in session-3.scope",
    ),
    (
        "left by a job",
        on_host(of(UNIT._replace(main_pid=0), own=OWN._replace(environment=(*OWN.environment, ("SLURM_JOB_ID", "7"))))),
        [("daemon-foreign", "node")],
        "in the environment of a Slurm job",
    ),
    ("just started", on_host(of(UNIT._replace(main_pid=0, is_fresh=True))), [], ""),
    (
        "old program",
        on_host(of(own=OWN._replace(program=f"{OWN.program} (deleted)"))),
        [("daemon-outdated", "node")],
        "of before an upgrade",
    ),
    (
        "logs elsewhere",
        on_host(of(own=OWN._replace(environment=()))),
        [("daemon-environment", "node")],
        "it logs in NVIDIA's default directory",
    ),
    (
        "serves all users at once",
        on_host(of(own=OWN._replace(environment=(*OWN.environment, ("MPSFLEET_MULTI_USER", "1"))))),
        [("daemon-environment", "node")],
        "it serves all users, not one user at a time",
    ),
    (
        "unit file missing",
        with_files(Drift("/etc/systemd/system/nvidia-mps.service", "missing")),
        [("unit-missing", "node")],
        "the next boot starts no control daemon",
    ),
    (
        "masked",
        with_files(Drift("/etc/systemd/system/nvidia-mps.service", "masked")),
        [("unit-masked", "node")],
        "nvidia-mps.service is masked",
    ),
    (
        "hook without its mode",
        with_files(Drift("/usr/lib/mpsfleet/hooks/prolog", "mode")),
        [("hooks-missing", "node")],
        "jobs fail or go wrong",
    ),
    (
        "a file is another",
        with_files(Drift("/etc/logrotate.d/mpsfleet", "content")),
        [("deployment-differs", "node")],
        "/etc/logrotate.d/mpsfleet is another",
    ),
    (
        "zombie",
        of()._replace(host=HostState((UNIT,), (), (process(31, state="Z"),))),
        [("daemon-zombie", "node")],
        "a zombie",
    ),
    (
        "a user's daemon in the place of root's",
        on_host(of(facts={"daemons": (), "control": STRANGER, "privileged": STRANGER})),
        [("daemon-absent", "node"), ("daemon-wrong-user", "user"), ("daemon-wrong-user", "user")],
        "a control daemon of user 2001",
    ),
    (
        "held by a user's connection",
        on_host(of(facts={"said": HELD}, cause=Cause(2, 0, holder=Holder(77, 2001, "python3")))),
        [("daemon-wedged", "user")],
        "it waits for a program of user 2001 (python3)",
    ),
    (
        "held by root's connection",
        on_host(of(facts={"said": HELD}, cause=Cause(2, 0, holder=Holder(77, 0, "echo")))),
        [("daemon-wedged", "either")],
        "a program of root",
    ),
    (
        "held, by whom is not known",
        on_host(of(facts={"said": HELD}, cause=Cause(2, 0, holder=Holder(reason="it lives elsewhere")))),
        [("daemon-wedged", "user")],
        "waits for a program that holds",
    ),
    (
        "log thread ended",
        on_host(of(facts={"said": MUTE}, is_mute=True, cause=Cause(1, 300))),
        [("daemon-log-stopped", "user")],
        "its log thread has ended",
    ),
    (
        "blocked at its log",
        on_host(of(facts={"said": HELD._replace(held=False)}, cause=Cause(1, 65_536))),
        [("daemon-wedged", "user")],
        "its log fifo is full",
    ),
    (
        "its log is being emptied",
        on_host(of(facts={"said": HELD._replace(held=False)}, cause=Cause(2, 65_000, is_draining=True))),
        [("daemon-wedged", "either")],
        "accepts connections and did not answer",
    ),
    (
        "stopped",
        on_host(of(facts={"said": HELD._replace(daemon_state="T")})),
        [("daemon-wedged", "node")],
        "is stopped (SIGSTOP)",
    ),
    (
        "uninterruptible",
        on_host(of(facts={"said": HELD._replace(daemon_state="D")})),
        [("daemon-wedged", "node")],
        "only a reboot ends that",
    ),
    (
        "lock replaced",
        on_host(of(UNIT, {"daemons": (ANOTHER,)})),
        [("lock-replaced", "either")],
        "was deleted or replaced under the control daemon, which jobs still reach",
    ),
    (
        "lock held",
        on_host(of(UNIT._replace(active="inactive", sub="dead"), DOWN, locked_by=Holder(77, 2001, "flock"))),
        [("daemon-absent", "node"), ("lock-held", "either")],
        "is locked by a process of user 2001 (flock)",
    ),
    (
        "on a network file system",
        on_host(of(pipe=Volume(1 << 30, 1000, "nfs4"))),
        [("directory-on-network", "node")],
        "(nfs4)",
    ),
    ("full", on_host(of(log=Volume(0, 1000, "ext4"))), [("directory-unwritable", "node")], "has no free space"),
    (
        "no names left",
        on_host(of(pipe=Volume(1 << 30, 0, "ext4"))),
        [("directory-unwritable", "node")],
        "can hold no more files",
    ),
    (
        "read-only",
        on_host(of(log=Volume(1 << 30, 1000, "ext4", is_read_only=True))),
        [("directory-unwritable", "node")],
        "is read-only",
    ),
    ("file system without a count of names", on_host(of(pipe=Volume(1 << 30, -1, "btrfs"))), [], ""),
    ("hidden from jobs", on_host(of(hidden="jobs")), [("directory-hidden", "node")], "(job_container)"),
    (
        "hidden by slurmd's own /tmp",
        on_host(of(hidden="slurmd")),
        [("directory-hidden", "node")],
        "slurmd does not see",
    ),
    (
        "hidden by the daemon's own /tmp",
        on_host(of(UNIT, {**DOWN, "daemons": (daemon(inode=7),)}, hidden="daemon")),
        [("directory-hidden", "node")],
        "the control daemon itself has a /tmp of its own",
    ),
    (
        "failed, and waiting for its next start",
        on_host(of(UNIT._replace(active="activating", sub="auto-restart", result="signal"), DOWN)),
        [("daemon-absent", "node"), ("unit-failed", "node")],
        "waits to be started again; its last result was signal",
    ),
    (
        "given up, with the result of its last try",
        on_host(of(UNIT._replace(active="failed", result="signal", restarts=5), DOWN)),
        [("daemon-absent", "node"), ("unit-start-limit", "node")],
        "its last result was signal",
    ),
    (
        "given up, with the result that systemd 262 gives",
        on_host(of(UNIT._replace(active="failed", result="start-limit-hit", restarts=4), DOWN)),
        [("daemon-absent", "node"), ("unit-start-limit", "node")],
        "which failed too often in a row",
    ),
    (
        "started by hand a moment after its unit was stopped",
        on_host(of(UNIT._replace(main_pid=0, active="inactive", sub="dead", is_fresh=True))),
        [("daemon-foreign", "node")],
        "was not started by nvidia-mps.service",
    ),
    ("being stopped", on_host(of(UNIT._replace(main_pid=0, active="deactivating", sub="stop"))), [], ""),
    (
        "timer not enabled",
        on_host(of(), UNIT, Unit("mpsfleet-audit.timer", is_enabled=False)),
        [("unit-disabled", "node")],
        "which the configuration asks for, is disabled",
    ),
    (
        "unit file missing, so its links are not told beside it",
        on_host(of(UNIT._replace(is_enabled=False)))._replace(
            host=HostState((UNIT,), (Drift("/etc/systemd/system/nvidia-mps.service", "missing"),))
        ),
        [("unit-missing", "node")],
        "the next boot starts no control daemon",
    ),
    (
        "many files differ",
        with_files(*(Drift(f"/etc/{each}", "mode") for each in range(7))),
        [("deployment-differs", "node")],
        "/etc/5 has another mode, and 1 more",
    ),
    (
        "logs in another place",
        on_host(of(own=OWN._replace(environment=(("CUDA_MPS_LOG_DIRECTORY", "/root"),)))),
        [("daemon-environment", "node")],
        f"it logs in /root, not in {LOG}",
    ),
    (
        "its environment cannot be read",
        on_host(of(own=Unreadable("what it was started with could not be read"))),
        [("probe-failed", "node")],
        "what it was started with could not be read",
    ),
    (
        "units cannot be asked",
        of(UNIT)._replace(host=HostState(Unreadable("systemd did not answer within 2 s"), ())),
        [("probe-failed", "node")],
        "the state of the units is not known: systemd did not answer within 2 s",
    ),
    (
        "files cannot be read",
        of(UNIT)._replace(host=HostState((UNIT,), Unreadable("no"))),
        [("probe-failed", "node")],
        "the deployed files are not known: no",
    ),
    (
        "its lock was renamed, so it is known by its sockets alone",
        on_host(of(UNIT, {"daemons": (), "control": ITSELF, "privileged": ITSELF})),
        [("lock-replaced", "either")],
        "was deleted or replaced under the control daemon, which jobs still reach",
    ),
    (
        "its lock was deleted",
        on_host(of(UNIT, {"daemons": (daemon(inode=99, deleted=True),)})),
        [("lock-replaced", "either")],
        "which jobs still reach",
    ),
    (
        "one socket is root's daemon's and the other a stranger's",
        on_host(of(UNIT, {"daemons": (), "control": STRANGER, "privileged": ITSELF})),
        [("daemon-absent", "node"), ("daemon-wrong-user", "user"), ("socket-hijacked", "user")],
        "so jobs connect to a stranger",
    ),
]


@pytest.mark.parametrize(
    ("facts", "expected", "sentence"), [case[1:] for case in CASES], ids=[each[0] for each in CASES]
)
def test_what_surrounds_a_daemon(facts: Facts, expected: list[tuple[str, str]], sentence: str) -> None:
    findings = judge(facts, DESIRED).findings

    assert sorted((each.code, each.origin) for each in findings) == sorted(expected)
    assert not sentence or any(sentence in each.message for each in findings)


UNPROTECTED = DESIRED._replace(pipe_directory="/tmp/nvidia-mps")  # noqa: S108  # the article's
BELOW_TMP = OBSERVED._replace(pipe=Directory("/tmp/nvidia-mps", "directory", 0, 0, 0o755, (), names()))  # noqa: S108


def test_a_directory_below_tmp_that_cleaning_is_not_told_to_spare() -> None:
    drifts = (Drift("/etc/tmpfiles.d/mpsfleet.conf", "missing"),)
    facts = SOUND._replace(instances=(BELOW_TMP,), daemons=(daemon(directory=BELOW_TMP.pipe.path),))
    codes = {each.code for each in judge(facts._replace(host=HostState((UNIT,), drifts)), UNPROTECTED).findings}

    assert "directory-unprotected" in codes
    assert "directory-unprotected" not in {
        each.code for each in judge(facts._replace(host=HostState((UNIT,), ())), UNPROTECTED).findings
    }
