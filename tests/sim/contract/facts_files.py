"""Facts about directories, files and modes, the log, and who listens."""

from __future__ import annotations

import os
import re
import socket
import stat
from typing import TYPE_CHECKING

from contract.facts import fact
from contract.subject import NOBODY, File, Said

if TYPE_CHECKING:
    from pathlib import Path

    from contract.subject import Subject

ABOUT = "Files"
LONGEST = 87


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@fact(ABOUT, "a missing pipe directory is made 0777, whatever the umask (022, 077)")
def makes_its_directory(subject: Subject) -> None:
    for umask in (0o022, 0o077):
        subject.start(umask=umask)
        assert mode_of(subject.pipe) == 0o777
        subject.ask("quit\n")
        for name in subject.files():
            (subject.pipe / name).unlink()
        subject.pipe.rmdir()


@fact(ABOUT, "an existing pipe directory keeps its mode")
def keeps_a_mode(subject: Subject) -> None:
    subject.pipe.mkdir(0o711)
    subject.start()
    assert mode_of(subject.pipe) == 0o711


@fact(
    ABOUT, "modes: `control` 0666, `control_privileged` 0755, `control_lock` 0666, `log` a fifo of 0777", is_quiet=True
)
def has_its_modes(subject: Subject) -> None:
    found = subject.files()
    found.pop("nvidia-cuda-mps-control.pid", None)
    assert found == {
        "control": File("socket", 0o666),
        "control_privileged": File("socket", 0o755),
        "control_lock": File("file", 0o666),
        "log": File("fifo", 0o777),
    }


@fact(ABOUT, "a pid file, 0666, with the daemon's pid: from 550 on, none before", is_quiet=True)
def has_a_pid_file(subject: Subject) -> None:
    path = subject.pipe / "nvidia-cuda-mps-control.pid"
    assert path.exists() == (subject.version >= 550)
    if path.exists():
        assert mode_of(path) == 0o666
        assert int(path.read_text(encoding="utf-8")) == subject.daemon()


@fact(ABOUT, "a POSIX lock on `control_lock` is the daemon's", is_quiet=True)
def holds_its_lock(subject: Subject) -> None:
    inode = (subject.pipe / "control_lock").stat().st_ino
    with open("/proc/locks", encoding="utf-8") as stream:
        holders = [line.split()[4] for line in stream if line.split()[5].endswith(f":{inode}")]
    assert holders == [str(subject.daemon())]


@fact(ABOUT, "without the pipe directory's parent: exit status 1, `Cannot access CUDA_MPS_PIPE_DIRECTORY=…`")
def needs_a_parent(subject: Subject) -> None:
    for path in (subject.root / "no/where", subject.root / "a-file"):
        (subject.root / "a-file").touch()
        subject.environment["CUDA_MPS_PIPE_DIRECTORY"] = str(path)
        assert subject.call("-d") == Said(1, f"Cannot access CUDA_MPS_PIPE_DIRECTORY={path}\n")


@fact(ABOUT, "a pipe directory of 87 characters serves; with 88 the start ends with 1 and without a word")
def has_a_longest_path(subject: Subject) -> None:
    for length in (LONGEST, LONGEST + 1):
        path = f"{subject.root}/".ljust(length, "x")
        subject.environment["CUDA_MPS_PIPE_DIRECTORY"] = path
        if length == LONGEST:
            subject.pipe = subject.root / path.rpartition("/")[2]
            assert subject.start() == Said(0)
            assert subject.ask("quit\n") == Said(0)
        else:
            assert subject.call("-d") == Said(1)
            assert subject.ask("get_server_list\n").rc == 1


@fact(ABOUT, "a query through a pinned directory, `/proc/self/fd/N`, is answered", is_quiet=True)
def is_asked_through_a_descriptor(subject: Subject) -> None:
    fd = os.open(subject.pipe, os.O_PATH | os.O_DIRECTORY)
    try:
        said = subject.call(text="get_default_active_thread_percentage\n", pipe=f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    assert said == Said(0, "100.0\n")


@fact(ABOUT, "a missing log directory is made 0700, with `control.log` and `server.log` of 0644", is_quiet=True)
def makes_its_logs(subject: Subject) -> None:
    assert mode_of(subject.log) == 0o700
    assert {each.name: mode_of(each) for each in subject.log.iterdir()} == {"control.log": 0o644, "server.log": 0o644}


@fact(ABOUT, "a log directory that cannot be written: a warning on standard output, and the daemon serves")
def does_without_a_log(subject: Subject) -> None:
    path = f"{subject.root}/no/where"
    said = subject.start(CUDA_MPS_LOG_DIRECTORY=path)
    assert said == Said(0, f"Warning: Failed writing log files to directory [{path}]. No logs will be available.\n")
    assert subject.ask("get_server_list\n") == Said(0)


@fact(ABOUT, "control.log: `[date time.ms Control pid] text`; a query is five lines from connection to `UI closed`")
def logs_a_query(subject: Subject) -> None:
    subject.start()
    subject.eventually(
        lambda: {"Unable to accept connection", "User did not send valid credentials"} & set(subject.control_log())
    )
    before = len(subject.control_log())
    subject.ask("get_default_active_thread_percentage\n")
    subject.eventually(lambda: subject.control_log()[before:].count("UI closed") == 1)
    assert subject.control_log()[before:] == [
        "Accepting connection...",
        "NEW UI",
        "Cmd:get_default_active_thread_percentage",
        "100.0",
        "UI closed",
    ]
    line = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Control +\d+\] ")
    text = (subject.log / "control.log").read_text(encoding="utf-8")
    assert all(line.match(each) for each in text.splitlines())
    assert f" {subject.daemon():5d}] NEW UI\n" in text


@fact(
    ABOUT,
    "SO_PEERCRED names pid and uid of the listener on both sockets; a bare connection does no harm",
    is_quiet=True,
)
def names_itself(subject: Subject) -> None:
    for name in ("control", "control_privileged"):
        assert subject.listener(subject.pipe / name) == (subject.daemon(), os.geteuid())
    assert subject.ask("get_default_active_thread_percentage\n") == Said(0, "100.0\n")


@fact(ABOUT, "a user may connect to `control` and open the fifo for writing, and not connect to `control_privileged`",
      is_quiet=True, needs_real_user=True)  # fmt: skip
def is_open_to_users(subject: Subject) -> None:
    assert as_nobody(subject, "control") == 0
    assert as_nobody(subject, "log") == 0
    assert as_nobody(subject, "control_privileged") == 1
    subject.eventually(lambda: subject.ask("get_server_list\n") == Said(0))


def as_nobody(subject: Subject, name: str) -> int:
    """Reach for a name as another user, in a child; return 0 where that was let."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            if name == "log":
                os.close(os.open(subject.pipe / name, os.O_WRONLY | os.O_NONBLOCK))
            else:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(str(subject.pipe / name))
        except PermissionError:
            os._exit(1)
        except BaseException:  # noqa: BLE001  # the child must not go on as a test
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
