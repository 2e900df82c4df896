"""The judgement of a node: each broken piece has its code, severity and origin, and one sentence that names it."""

from __future__ import annotations

from typing import Any

import pytest
from build import DESIRED, LOG, OBSERVED, PIPE, changed, daemon, gpu, names, parents

from mpsfleet.codes import BY_NAME
from mpsfleet.node import judge as room
from mpsfleet.node.desired import Mistake
from mpsfleet.node.model import Answers, Directory, Gpus, Peer, Silence, Unreadable, UserView

GONE = Directory(PIPE, "missing", parents=parents("/", "/run"), reason=PIPE)
STRANGER = Peer("listening", 900, 2001, "python3")
NOBODY = Peer("absent")
TIMEOUT = Silence("timeout", "it did not answer within 2 s", seconds=2.0)
LOST = ("[GPU is lost]",) * 5


def pipe(**changes: Any) -> Directory:
    return OBSERVED.pipe._replace(**changes)


# what is broken, the findings as (code, severity, origin), a part of the sentence of the first
CASES: list[tuple[str, dict[str, Any], list[tuple[str, str, str]], str]] = [
    ("sound", {}, [], ""),
    (
        "killed, files left",
        {"daemons": (), "control": Peer("refused"), "privileged": Peer("refused"), "said": Silence("not-asked", "-")},
        [("daemon-absent", "critical", "node")],
        "its files are still there, but a socket file is no sign of life",
    ),
    (
        "stopped",
        {"said": TIMEOUT._replace(daemon_state="T")},
        [("daemon-wedged", "critical", "node")],
        f"the control daemon of {PIPE} is stopped (SIGSTOP) and did not answer within 2 s",
    ),
    (
        "in D state",
        {"said": TIMEOUT._replace(daemon_state="D")},
        [("daemon-wedged", "critical", "node")],
        "only a reboot",
    ),
    (
        "held by a connection",
        {"said": TIMEOUT._replace(daemon_state="S", held=True)},
        [("daemon-wedged", "critical", "user")],
        "holds a connection to it open",
    ),
    ("silent", {"said": TIMEOUT}, [("daemon-wedged", "critical", "either")], "accepts connections and did not answer"),
    (
        "busy all the time",
        {"said": Silence("busy", "busy")},
        [("daemon-busy", "unknown", "user")],
        "could not be asked",
    ),
    ("garbled answer", {"said": Silence("garbled", "x")}, [("probe-failed", "unknown", "node")], "not understood"),
    (
        "directory deleted under it",
        {
            "pipe": GONE,
            "daemons": (daemon(deleted=True),),
            "control": NOBODY,
            "privileged": NOBODY,
            "said": Silence("not-asked", "-"),
            "user": UserView(reached=False, step=PIPE, error="ENOENT"),
        },
        [("daemon-unreachable", "critical", "node"), ("directory-missing", "critical", "node")],
        f"the control daemon is alive, but its files in {PIPE} were deleted",
    ),
    (
        "control swapped by a user",
        {"control": STRANGER},
        [("socket-hijacked", "critical", "user")],
        f"{PIPE}/control is served by a process of user 2001 (python3)",
    ),
    (
        "control is a plain file",
        {"pipe": pipe(names=tuple(each._replace(kind="file") for each in names())), "control": Peer("not-a-socket")},
        [("socket-hijacked", "critical", "user"), ("socket-hijacked", "critical", "user")],
        "is a file of user 0, not the control daemon's socket",
    ),
    (
        "served from another pid namespace",
        {"control": Peer("listening", 0, 0)},
        [("probe-failed", "unknown", "node")],
        "another process namespace",
    ),
    (
        "root only",
        {"user": UserView(reached=False, step=PIPE, error="EACCES")},
        [("daemon-unreachable-by-users", "critical", "node")],
        f"an ordinary user is stopped at {PIPE} (EACCES)",
    ),
    ("no look as a user", {"user": Unreadable("no user")}, [("probe-failed", "unknown", "node")], "no user"),
    (
        "two on one directory",
        {"daemons": (daemon(), daemon(99, inode=5, deleted=True))},
        [("daemon-duplicate", "warn", "node")],
        "a second control daemon was started",
    ),
    (
        "another directory",
        {"daemons": (daemon(), daemon(99, "/tmp/nvidia-mps", 5))},  # noqa: S108  # NVIDIA's default
        [("daemon-duplicate", "warn", "node")],
        "another control daemon of root's serves /tmp/nvidia-mps",
    ),
    ("no processes", {"daemons": Unreadable("no /proc")}, [("probe-failed", "unknown", "node")], "no /proc"),
    ("0777", {"pipe": pipe(mode=0o777)}, [("directory-mode", "critical", "either")], "has mode 0777: others can write"),
    (
        "1777",
        {"pipe": pipe(mode=0o1777)},
        [("directory-mode", "critical", "either")],
        "has mode 1777: others can write",
    ),
    ("0700", {"pipe": pipe(mode=0o700)}, [("directory-mode", "critical", "node")], "users cannot pass it"),
    ("0711 serves users", {"pipe": pipe(mode=0o711)}, [], ""),
    ("a private log directory", {"log": OBSERVED.log._replace(mode=0o700)}, [], ""),
    (
        "a log directory for all",
        {"log": OBSERVED.log._replace(mode=0o777)},
        [("directory-mode", "critical", "either")],
        f"log directory {LOG} has mode 0777",
    ),
    (
        "no log directory",
        {"log": GONE._replace(path=LOG, reason=LOG)},
        [("log-directory-missing", "warn", "node")],
        LOG,
    ),
    (
        "a user's",
        {"pipe": pipe(uid=2001)},
        [("directory-owner", "critical", "either")],
        "belongs to user 2001, not to root",
    ),
    (
        "a link at the name",
        {
            "pipe": Directory(PIPE, "link", reason=PIPE),
            "daemons": (),
            "control": NOBODY,
            "privileged": NOBODY,
            "said": Silence("not-asked", "-"),
        },
        [("daemon-absent", "critical", "node"), ("directory-hijacked", "critical", "user")],
        "no control daemon runs",
    ),
    (
        "a closed parent",
        {"pipe": pipe(parents=parents("/", "/run", mode=0o700))},
        [("directory-parent", "critical", "node"), ("directory-parent", "critical", "node")],
        "has mode 0700: users cannot pass it",
    ),
    (
        "a parent of a user",
        {"pipe": pipe(parents=parents("/home/alice", uid=2001))},
        [("directory-parent", "critical", "node")],
        "/home/alice, above the pipe directory",
    ),
    ("a sticky parent", {"pipe": pipe(parents=parents("/tmp", mode=0o1777))}, [], ""),  # noqa: S108  # as on any machine
    (
        "a parent for all",
        {"pipe": pipe(parents=parents("/srv", mode=0o777))},
        [("directory-parent", "critical", "node")],
        "others can replace what lies in it",
    ),
    (
        "lowered by a user",
        {"said": Answers(10.0, (), (), ""), "started_with": 100.0},
        [("percentage-tampered", "warn", "user")],
        "is 10, not the configured 100: it was changed on the running daemon",
    ),
    (
        "started with another value",
        {"said": Answers(50.0, (), (), ""), "started_with": 50.0},
        [("percentage-differs", "warn", "node")],
        "is 50, not the configured 100; the daemon was started with 50",
    ),
    (
        "started without a value",
        {"said": Answers(50.0, (), (), ""), "started_with": None},
        [("percentage-differs", "warn", "node")],
        "is 50, not the configured 100",
    ),
    (
        "a lost GPU",
        {"gpus": Gpus((gpu(0), gpu(1, *LOST)), "ok")},
        [("gpu-lost", "critical", "node")],
        "GPU 1 is lost",
    ),
    (
        "a GPU to reset",
        {"gpus": Gpus((gpu(0), gpu(1, *(("[GPU requires reset]",) * 4), "0 MiB")), "ok")},
        [("gpu-requires-reset", "critical", "node")],
        "requires a reset",
    ),
    (
        "an error",
        {"gpus": Gpus((gpu(0), gpu(1, "a", "b", "c", "d", "[Unknown Error]")), "ok")},
        [("gpu-error", "critical", "node")],
        "reports an error for GPU 1",
    ),
    ("not supported", {"gpus": Gpus((gpu(0), gpu(1, "a", "b", "c", "d", "[N/A]")), "ok")}, [], ""),
    (
        "one of two",
        {"gpus": Gpus((gpu(0),), "ok")},
        [("gpu-missing", "critical", "node")],
        "nvidia-smi shows 1 of 2 GPUs",
    ),
    (
        "none found",
        {"gpus": Gpus((), "none-found")},
        [("gpu-missing", "critical", "node")],
        "found no GPU, and 2 are expected",
    ),
    (
        "mismatch",
        {"gpus": Gpus((), "mismatch", "580.126")},
        [("driver-mismatch", "critical", "node")],
        "(libraries 580.126)",
    ),
    ("no driver", {"gpus": Gpus((), "no-driver")}, [("driver-not-loaded", "critical", "node")], "cannot communicate"),
    (
        "slow",
        {"gpus": Gpus((), "timeout", "late", state="S")},
        [("nvidia-smi-slow", "unknown", "either")],
        "nvidia-smi late",
    ),
    (
        "D state",
        {"gpus": Gpus((), "timeout", "late", state="D")},
        [("nvidia-smi-wedged", "critical", "node")],
        "in the driver",
    ),
    ("no tool", {"gpus": Gpus((), "missing")}, [("nvidia-smi-missing", "unknown", "node")], "is not installed"),
    ("failed", {"gpus": Gpus((), "failed", "boom", 255)}, [("nvidia-smi-failed", "unknown", "node")], "boom"),
    (
        "no package",
        {"said": Silence("no-binary", "-"), "daemons": ()},
        [("mps-package-missing", "critical", "node")],
        "install it (Debian: nvidia-cuda-mps;",
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected", "sentence"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_a_broken_piece_is_named(changes: dict[str, Any], expected: list[tuple[str, str, str]], sentence: str) -> None:
    report = room.judge(changed(**changes), DESIRED)

    assert [(each.code, each.severity, each.origin) for each in report.findings] == expected
    if expected:
        assert sentence in report.findings[0].message
        assert report.verdict == report.findings[0].severity
    else:
        assert report.verdict == "ok"


def test_findings_are_one_line_and_carry_a_remedy() -> None:
    for _, changes, _, _ in CASES:
        for each in room.judge(changed(**changes), DESIRED).findings:
            assert each.message.isprintable()
            assert each.remedy
            assert each.code in BY_NAME


def test_a_judge_that_fails_is_an_unknown_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> tuple[()]:
        raise KeyError("boom")

    monkeypatch.setattr(room, "_JUDGES", (("limits", broken), *room._JUDGES))

    report = room.judge(changed(pipe=pipe(mode=0o777)), DESIRED)

    assert [each.code for each in report.findings] == ["directory-mode", "probe-failed"]
    assert "KeyError" in report.findings[1].message


def test_what_nobody_deployed_is_no_fault_of_the_node() -> None:
    facts = changed(daemons=(), control=NOBODY, privileged=NOBODY, said=Silence("not-asked", "-"), deployed=False)

    (found,) = room.judge(facts, DESIRED).findings

    assert (found.code, found.severity, found.origin) == ("daemon-absent", "critical", "either")
    assert found.message.endswith("; mpsfleet has not been deployed on this node")


def test_a_mistake_in_node_toml_makes_the_node_unknown() -> None:
    report = room.misconfigured("n1", (Mistake(3, "wrong"),))

    assert (report.verdict, report.findings[0].code) == ("unknown", "configuration-invalid")
    assert report.findings[0].message == "node.toml, line 3: wrong"
