"""What surrounds the daemons, on real nodes: units, files, processes, places, and why a silent daemon is silent.

Users do here what any user can do; what is asserted is that it is named, is never the node's fault, and is not made
worse by the audit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

NODE = "n1"
UNIT = "nvidia-mps.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN = f"{UNIT_FILE}.d"
PIPE = "/run/nvidia-mps/node"
LOGS = "/var/log/nvidia-mps"
BINARY = "/usr/bin/nvidia-cuda-mps-control"
START = (
    "env -i PATH=/usr/bin:/bin CUDA_MPS_PIPE_DIRECTORY={pipe} CUDA_MPS_LOG_DIRECTORY={logs} {more} "
    f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 {BINARY} -d"
)
AUDITS = 260  # as many questions would have stopped it (measured: 244)


def sh(fleet: Fleet, script: str, user: str | None = None) -> str:
    """Run a script of the shell on the node."""
    return fleet.cluster.must(NODE, "sh", "-c", script, user=user, timeout=120)


@pytest.fixture
def node(fleet: Fleet) -> Iterator[Fleet]:
    """Provide a sound node, deployed again after the test and without what the test has put there."""
    sh(fleet, f"cp {UNIT_FILE} /root/unit")
    yield fleet
    # what a test may have started or put there; the deploy and the reset that follow bring back the rest
    ended = f"rm -rf {DROP_IN} /etc/systemd/system/slurmd.service.d; umount {LOGS} 2>/dev/null; "
    ended += f"[ -f {UNIT_FILE} ] && [ ! -L {UNIT_FILE} ] || {{ rm -f {UNIT_FILE}; cp /root/unit {UNIT_FILE}; }}; "
    ended += "pkill -9 -u alice nvidia-cuda-mps; pkill -9 -u alice python3; pkill -9 -f /root/[p]arent.py; "  # no match of the script itself
    ended += "systemctl daemon-reload; true"
    sh(fleet, ended)
    fleet.drain(NODE, "mpsfleet: reset")
    again = (
        "cp /root/node.toml /etc/mpsfleet/node.toml; "
        if fleet.cluster.exec(NODE, ("test", "-e", "/root/node.toml")).returncode == 0
        else ""
    )
    sh(fleet, f"{again}mpsfleet node apply >/dev/null; mpsfleet node reset --others >/dev/null; rm -f /root/node.toml")
    fleet.undrain(NODE)
    assert fleet.audit(NODE)[0]["verdict"] == "ok"


def found(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Return the findings of an audit by their codes."""
    report, seconds = fleet.audit(NODE)
    assert seconds < 5
    return {each["code"]: each for each in report["findings"]}


def by_hand(fleet: Fleet, pipe: str = PIPE, logs: str = LOGS, more: str = "") -> None:
    """Start a daemon by hand in the place of the unit's."""
    sh(
        fleet,
        f"systemctl stop {UNIT}; mpsfleet node prepare >/dev/null; {START.format(pipe=pipe, logs=logs, more=more)}",
    )
    sh(fleet, f"for i in $(seq 50); do [ -S {pipe}/control ] && break; sleep 0.1; done; chmod 622 {pipe}/log")


BROKEN_FILES = [
    ("rm /etc/systemd/system/multi-user.target.wants/" + UNIT, "unit-disabled", f"{UNIT} is disabled: the next boot"),
    (f"systemctl disable {UNIT}", "unit-disabled", f"{UNIT} is disabled: the next boot"),
    (f"rm {UNIT_FILE}", "unit-missing", f"the unit file {UNIT_FILE} is missing"),
    (f"rm {UNIT_FILE}; systemctl daemon-reload", "unit-missing", f"the unit file {UNIT_FILE} is missing"),
    (f"ln -sf /dev/null {UNIT_FILE}", "unit-masked", f"{UNIT} is masked"),
    (f"ln -sf /dev/null {UNIT_FILE}; systemctl daemon-reload", "unit-masked", f"{UNIT} is masked"),
    ("echo >> /etc/logrotate.d/mpsfleet", "deployment-differs", "/etc/logrotate.d/mpsfleet is another"),
    (f"sed -i s/KillMode=process/KillMode=mixed/ {UNIT_FILE}", "deployment-differs", f"{UNIT_FILE} is another"),
    ("chmod 0666 /etc/tmpfiles.d/mpsfleet.conf", "deployment-differs", "has another mode"),
    ("chown alice /etc/sysusers.d/mpsfleet.conf", "deployment-differs", "/etc/sysusers.d/mpsfleet.conf is another"),
    (
        "chmod -x /usr/lib/mpsfleet/hooks/prolog.sh",
        "hooks-missing",
        "/usr/lib/mpsfleet/hooks/prolog.sh has another mode",
    ),
    ("rm /usr/lib/mpsfleet/hooks/*.sh", "hooks-missing", "epilog.sh is missing"),
]


@pytest.mark.parametrize(("script", "code", "sentence"), BROKEN_FILES, ids=[each[0][:40] for each in BROKEN_FILES])
def test_a_file_of_ours_that_differs_is_named_though_all_runs(
    node: Fleet, script: str, code: str, sentence: str
) -> None:
    sh(node, script)

    findings = found(node)

    assert set(findings) == {code}
    assert sentence in findings[code]["message"]
    assert findings[code]["severity"] == "warn"


def test_a_start_that_a_condition_skipped_is_named(node: Fleet) -> None:
    sh(node, f"mkdir -p {DROP_IN}; printf '[Unit]\\nConditionPathExists=/nowhere\\n' > {DROP_IN}/x.conf")
    sh(node, f"systemctl daemon-reload; systemctl restart {UNIT}")

    findings = found(node)

    assert {"daemon-absent", "unit-skipped"} == set(findings)
    assert "one of its conditions did not hold" in findings["unit-skipped"]["message"]


def test_a_daemon_that_systemd_has_given_up_on_is_named(node: Fleet) -> None:
    node.cluster.break_(NODE, "daemon-killed")

    findings = found(node)

    assert {"daemon-absent", "unit-start-limit"} == set(findings)
    message = findings["unit-start-limit"]["message"]
    assert message.endswith(("failed too often in a row", "in a row; its last result was signal"))  # systemd 262; older


def test_a_daemon_that_was_started_by_hand_with_other_settings_is_named(node: Fleet) -> None:
    by_hand(node, logs="/root", more="CUDA_VISIBLE_DEVICES=1 SLURM_JOB_ID=17")

    findings = found(node)

    assert {"daemon-foreign", "daemon-environment", "daemon-wrong-gpus"} == set(findings)
    assert f"was not started by {UNIT}" in findings["daemon-foreign"]["message"]
    assert "environment of a Slurm job" in findings["daemon-foreign"]["message"]
    assert f"it logs in /root, not in {LOGS}" in findings["daemon-environment"]["message"]


def test_a_daemon_of_before_an_upgrade_is_named(node: Fleet) -> None:
    sh(node, f"cp {BINARY} /root/new && mv /root/new {BINARY}")

    findings = found(node)

    assert set(findings) == {"daemon-outdated"}
    assert "still runs the program of before an upgrade" in findings["daemon-outdated"]["message"]


def test_a_zombie_is_named(node: Fleet) -> None:
    parent = "import subprocess, time; each = subprocess.Popen(['/root/nvidia-cuda-mps-server']); time.sleep(30)"
    sh(node, f'cp /bin/true /root/nvidia-cuda-mps-server; echo "{parent}" > /root/parent.py')
    sh(node, "(setsid python3 -IS /root/parent.py >/dev/null 2>&1 &); sleep 0.5")

    findings = found(node)

    assert set(findings) == {"daemon-zombie"}


def test_a_users_daemon_in_the_place_of_roots_is_named(node: Fleet) -> None:
    sh(node, f"systemctl stop {UNIT}; rm -f {PIPE}/*; chown alice {PIPE}; mkdir -p /tmp/alice; chown alice /tmp/alice")
    sh(node, START.format(pipe=PIPE, logs="/tmp/alice", more=""), user="alice")
    time.sleep(0.5)

    findings = found(node)

    assert {"daemon-wrong-user", "directory-owner"} <= set(findings)
    assert "by a control daemon of user 2001, not of root's" in findings["daemon-wrong-user"]["message"]
    assert findings["daemon-wrong-user"]["origin"] == "user"


def hold(fleet: Fleet) -> None:
    """Have alice open a connection to the daemon and say nothing."""
    program = (
        "import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        f" s.connect('{PIPE}/control'); time.sleep(60)"
    )
    sh(fleet, f'(setsid python3 -IS -c "{program}" >/dev/null 2>&1 &) ; sleep 0.5', user="alice")


def test_who_holds_a_silent_daemons_connection_is_named_where_the_kernel_tells(node: Fleet) -> None:
    hold(node)

    findings = found(node)

    assert set(findings) == {"daemon-wedged"}
    wedged = findings["daemon-wedged"]
    assert wedged["origin"] == "user"
    if "holder" in wedged["evidence"] and wedged["evidence"]["holder"].isdigit():
        assert "it waits for a program of user 2001 (python3)" in wedged["message"]
        sh(node, f"kill {wedged['evidence']['holder']}")
        assert found(node) == {}  # as the remedy says
    else:
        assert "cannot tell by whom" in wedged["evidence"]["holder"]


def spoil(fleet: Fleet) -> None:
    """Have alice write what is no line into the log fifo."""
    program = f"import os; os.write(os.open('{PIPE}/log', os.O_WRONLY | os.O_NONBLOCK), bytes(range(256)) * 8)"
    sh(fleet, f'sleep 2; python3 -IS -c "{program}"; sleep 0.5', user="alice")
    assert sh(fleet, f"grep -c '^Threads:.1$' /proc/{fleet.main_pid(NODE)}/status").strip() == "1"


def unread(findings: dict[str, dict[str, Any]]) -> int:
    return int(findings["daemon-log-stopped"]["evidence"]["unread"])


def test_audits_never_bring_a_daemon_to_a_stop_whose_log_a_user_has_stopped(node: Fleet) -> None:
    spoil(node)
    first = found(node)
    assert set(first) == {"daemon-log-stopped"}
    assert (first["daemon-log-stopped"]["severity"], first["daemon-log-stopped"]["origin"]) == ("critical", "user")

    for _ in range(AUDITS // 20):
        sh(node, "for i in $(seq 20); do mpsfleet node audit >/dev/null; done; true")

    assert unread(found(node)) == unread(first)
    ask = f"echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={PIPE} timeout 5 nvidia-cuda-mps-control"
    sh(node, ask, user="alice")  # it still answers


def test_a_daemon_that_is_blocked_at_its_full_log_fifo_is_named_as_that(node: Fleet) -> None:
    spoil(node)
    loop = f"for i in $(seq 300); do echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={PIPE} timeout 1 {BINARY} || break; done"
    sh(node, f"{loop}; true", user="alice")

    findings = found(node)
    play = node.play("check_mps_health", limit=NODE, trigger_drain=True)

    assert set(findings) == {"daemon-wedged"}
    assert "its log thread has ended, and its log fifo is full" in findings["daemon-wedged"]["message"]
    assert findings["daemon-wedged"]["origin"] == "user"
    assert (play.rc != 0, node.reason(NODE)) == (True, "")


def test_a_lock_that_a_user_holds_is_named(node: Fleet) -> None:
    sh(node, f"systemctl stop {UNIT}; rm -f {PIPE}/control_lock; umask 0; : > {PIPE}/control_lock")
    program = f"import fcntl, time; f = open('{PIPE}/control_lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(60)"
    sh(node, f'(setsid python3 -IS -c "{program}" >/dev/null 2>&1 &) ; sleep 0.5', user="alice")

    findings = found(node)

    assert {"daemon-absent", "lock-held"} == set(findings)
    assert "control_lock is locked by a process of user 2001 (python3)" in findings["lock-held"]["message"]
    sh(node, f"systemctl start {UNIT}")  # its prepare puts a fresh file there


@pytest.mark.parametrize(
    "script",
    [
        f"mv {PIPE}/control_lock /run/nvidia-mps/old; : > {PIPE}/control_lock",
        f"rm {PIPE}/control_lock; : > {PIPE}/control_lock",
        f"rm {PIPE}/control_lock",
    ],
    ids=["renamed", "replaced", "deleted"],
)
def test_a_lock_that_the_daemon_no_longer_has_in_its_place_is_named(node: Fleet, script: str) -> None:
    sh(node, script)

    findings = found(node)

    assert set(findings) == {"lock-replaced"}
    assert "which jobs still reach" in findings["lock-replaced"]["message"]
    ask = f"echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={PIPE} timeout 5 nvidia-cuda-mps-control"
    sh(node, ask, user="alice")  # as it says
    sh(node, "rm -f /run/nvidia-mps/old")


@pytest.mark.parametrize(
    ("mount", "sentence"),
    [
        (
            f"mount -t tmpfs -o size=64k,mode=755 full {LOGS}; head -c 1M /dev/zero > {LOGS}/x; true",
            "has no free space",
        ),
        (f"mount -t tmpfs -o nr_inodes=1,mode=755 few {LOGS}", "can hold no more files"),
        (f"mount -t tmpfs -o ro,mode=755 ro {LOGS}", "is read-only"),
    ],
)
def test_a_log_directory_that_cannot_be_written_is_named(node: Fleet, mount: str, sentence: str) -> None:
    sh(node, mount)

    findings = found(node)

    assert set(findings) == {"directory-unwritable"}
    assert f"the file system of log directory {LOGS} {sentence}" in findings["directory-unwritable"]["message"]


@pytest.fixture
def in_tmp(node: Fleet) -> Fleet:
    """Provide the node with the pipe directory below /tmp."""
    node.drain(NODE, "mpsfleet: reset")
    sh(node, "cp /etc/mpsfleet/node.toml /root/node.toml")
    node.cluster.must(NODE, "mpsfleet", "node", "apply", "--config", "-",
                      stdin="schema = 1\n[mps]\npipe_directory = '/tmp/nvidia-mps'\n")  # fmt: skip
    node.undrain(NODE)
    assert found(node) == {}
    return node


def private(fleet: Fleet, unit: str) -> None:
    sh(
        fleet,
        f"mkdir -p /etc/systemd/system/{unit}.d; printf '[Service]\\nPrivateTmp=yes\\n' > /etc/systemd/system/{unit}.d/x.conf",
    )
    sh(fleet, f"systemctl daemon-reload; systemctl restart {unit}; sleep 1")


def test_a_pipe_directory_below_tmp_that_others_do_not_see_is_named(in_tmp: Fleet) -> None:
    sh(in_tmp, "sed -i /nvidia-mps/d /etc/tmpfiles.d/mpsfleet.conf")
    assert set(found(in_tmp)) == {"directory-unprotected", "deployment-differs"}
    sh(in_tmp, "mpsfleet node apply >/dev/null")

    private(in_tmp, "slurmd.service")
    of_slurmd = found(in_tmp)
    sh(in_tmp, "rm -r /etc/systemd/system/slurmd.service.d; systemctl daemon-reload; systemctl restart slurmd")
    assert found(in_tmp) == {}
    private(in_tmp, UNIT)
    of_daemon = found(in_tmp)

    assert set(of_slurmd) == {"directory-hidden"}
    assert "slurmd does not see /tmp/nvidia-mps" in of_slurmd["directory-hidden"]["message"]
    assert "directory-hidden" in of_daemon
    assert "the control daemon itself has a /tmp of its own" in of_daemon["directory-hidden"]["message"]
    assert not {"daemon-duplicate", "daemon-unreachable"} & set(of_daemon)


def test_a_pipe_directory_that_each_jobs_own_tmp_hides_is_named(in_tmp: Fleet) -> None:
    conf = "/etc/slurm/slurm.conf"
    sh(in_tmp, f"cp {conf} /root/slurm.conf; echo JobContainerType=job_container/tmpfs >> {conf}")
    hidden = found(in_tmp)
    sh(in_tmp, "echo 'Dirs=/dev/shm BasePath=/x' > /etc/slurm/job_container.conf")
    other = found(in_tmp)
    sh(in_tmp, f"cp /root/slurm.conf {conf}; rm /etc/slurm/job_container.conf")

    assert set(hidden) == {"directory-hidden"}
    assert "Slurm gives each job its own directory above /tmp/nvidia-mps" in hidden["directory-hidden"]["message"]
    assert other == {}


def test_a_daemon_that_is_just_starting_is_no_fault(node: Fleet) -> None:
    sh(
        node,
        f"(for i in 1 2 3 4; do systemctl restart {UNIT}; sleep 1; systemctl reset-failed {UNIT}; done >/dev/null 2>&1 &)",
    )

    verdicts = [node.audit(NODE)[0] for _ in range(15)]

    assert {each["verdict"] for each in verdicts} == {"ok"}, [each for each in verdicts if each["verdict"] != "ok"]


def test_a_start_that_takes_long_is_not_known_yet(node: Fleet) -> None:
    sh(node, f"mkdir -p {DROP_IN}; printf '[Service]\\nExecStartPre=/bin/sleep 8\\n' > {DROP_IN}/x.conf")
    sh(node, f"systemctl daemon-reload; systemctl restart --no-block {UNIT}; sleep 1")

    report, _ = node.audit(NODE)

    assert [(each["code"], each["severity"]) for each in report["findings"]] == [("daemon-starting", "unknown")]
    time.sleep(8)


def test_what_is_sound_raises_no_alarm(node: Fleet) -> None:
    # a drop-in of the site's, read and not yet read
    sh(node, f"mkdir -p {DROP_IN}; printf '[Service]\\nLimitNOFILE=70000\\n' > {DROP_IN}/site.conf")
    assert found(node) == {}
    sh(node, "systemctl daemon-reload")
    assert found(node) == {}
    # enabled by another target of the site's
    sh(node, "cd /etc/systemd/system; mkdir -p graphical.target.wants; "
       f"mv multi-user.target.wants/{UNIT} graphical.target.wants/")  # fmt: skip
    assert found(node) == {}
    sh(node, f"cd /etc/systemd/system; mv graphical.target.wants/{UNIT} multi-user.target.wants/")
    # connections that end without a word, of which the daemon complains in its log; and lines of nobody's there
    program = (
        "import socket\nfor _ in range(40):\n s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f" s.connect('{PIPE}/control')\n s.close()"
    )
    sh(node, f'python3 -IS -c "{program}"', user="alice")
    line = "[2026-12-01 02:45:37.474 Control  2530] User did not send valid credentials"
    sh(node, f"for i in $(seq 200); do echo '{line}'; echo 'Server 7 exited with status 1'; done >> {LOGS}/control.log")
    assert found(node) == {}
    # slurmd has not registered, and does not run
    sh(node, "systemctl stop slurmd")
    assert found(node) == {}
    sh(node, "systemctl start slurmd")


def test_four_loops_of_questions_raise_no_alarm(node: Fleet) -> None:
    loop = f"for i in $(seq 150); do echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={PIPE} {BINARY}; done"
    sh(node, " ".join([f"({loop}) >/dev/null 2>&1 &"] * 4), user="alice")

    assert {node.audit(NODE)[0]["verdict"] for _ in range(8)} == {"ok"}
