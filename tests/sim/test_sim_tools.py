"""The simulated systemctl and Slurm tools say and return what the real ones were seen to (systemd 252, Slurm 22.05.8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from rehearsal import REPOSITORY

if TYPE_CHECKING:
    from rehearsal import Rehearsal

RECORDED = REPOSITORY / "tests" / "slurm" / "cases" / "nodes" / "real-22.05-idle.txt"
FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)=")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("show zz.service -p LoadState,ActiveState,UnitFileState,MainPID", 0,
         "MainPID=0\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"),
        ("start zz.service", 5, "Failed to start zz.service: Unit zz.service not found.\n"),
        ("stop zz", 5, "Failed to stop zz.service: Unit zz.service not loaded.\n"),
        ("enable zz", 1, "Failed to enable unit: Unit file zz.service does not exist.\n"),
        ("reset-failed zz", 1, "Failed to reset failed state of unit zz.service: Unit zz.service not loaded.\n"),
        ("is-active zz", 3, "inactive\n"),
        ("is-enabled zz", 1, "Failed to get unit file state for zz.service: No such file or directory\n"),
        ("is-enabled nvidia-mps", 0, "enabled\n"),
        ("foo", 1, "Unknown command verb foo.\n"),
    ],
    ids=lambda each: each.split(" -p")[0] if isinstance(each, str) else "",
)  # fmt: skip
def test_systemctl_says(fleet: Rehearsal, words: str, code: int, said: str) -> None:
    assert fleet.on("n1", "systemctl", *words.split(), code=code) == said


@pytest.mark.parametrize(
    ("service", "code", "active", "said"),
    [
        ("ExecStart=/usr/bin/nothing", 1, "failed", "the control process exited with error code"),
        ("ExecStartPre=/usr/bin/false\nExecStart=/usr/bin/sleep", 1, "failed", "the control process exited with error"),
        ("ExecStartPre=-/usr/bin/false\nExecStart=/usr/bin/sleep", 0, "active", ""),
        (
            "ExecStart=/usr/bin/sleep\nExecStartPost=/usr/bin/false",
            1,
            "failed",
            "the control process exited with error",
        ),
        ("ExecStart=/usr/bin/false", 0, "failed", ""),
        ("ExecStartPre=/usr/bin/untold\nExecStart=/usr/bin/sleep\nExecStartPost=/usr/bin/told", 0, "active", ""),
    ],
    ids=["no program", "pre fails", "pre may fail", "post fails", "ends at once", "post is told the main process"],
)
def test_a_start_ends_as_systemds(fleet: Rehearsal, service: str, code: int, active: str, said: str) -> None:
    root = fleet.root("n2")
    scripts = {"false": "exit 1", "sleep": "exec sleep 60", "untold": 'test -z "$MAINPID"', "told": "kill -0 $MAINPID"}
    for name, text in scripts.items():
        (root / "usr/bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / "usr/bin" / name).chmod(0o755)
    (root / "etc/systemd/system/t.service").write_text(f"[Service]\nType=exec\n{service}\n")
    fleet.on("n2", "systemctl", "daemon-reload")
    assert said in fleet.on("n2", "systemctl", "start", "t", code=code)
    now = fleet.on("n2", "systemctl", "show", "t", "-p", "ActiveState", "--value").strip()
    fleet.on("n2", "systemctl", "stop", "t")
    fleet.on("n2", "systemctl", "reset-failed", "t", code=None)
    assert now == active


def test_a_nodes_record_has_the_real_ones_fields_in_their_order(fleet: Rehearsal) -> None:
    # the machine's own system name may hold anything, so its line is left out
    record, recorded = (
        [FIELD.findall(line) for line in text.splitlines() if "OS=" not in line]
        for text in (fleet.on("ctl", "scontrol", "show", "node", "n2"), RECORDED.read_text())
    )
    assert record == recorded[: len(record)]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("show node zz", 1, "Node zz not found\n"),
        ("show job 99", 1, "slurm_load_jobs error: Invalid job id specified\n"),
        ("update NodeName=zz State=DRAIN Reason=x", 1, "slurm_update error: Invalid node name specified\n"),
        ("update NodeName=n2 State=RESUME", 1, "slurm_update error: Invalid node state specified\n"),
        ("update NodeName=n2 State=DRAIN", 1,
         "You must specify a reason when DOWNING or DRAINING a node. Request denied\n"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_scontrol_says(fleet: Rehearsal, words: str, code: int, said: str) -> None:
    assert fleet.on("ctl", "scontrol", *words.split(), code=code) == said


def test_a_node_without_jobs_has_no_pids(fleet: Rehearsal) -> None:
    said = fleet.on("n2", "scontrol", "listpids", code=1)
    assert "No job steps exist on this node." in said
    assert "PID      JOBID    STEPID   LOCALID GLOBALID\n" in said
