"""Templates, instances and several units at once: the simulated systemctl answers as systemd 252 was seen to."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from mpsfleet.sim.systemd.names import expand, is_template, template_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rehearsal import Rehearsal

    Systemctl = Callable[..., str]

UNITS = "etc/systemd/system"
WANTS = "/etc/systemd/system/multi-user.target.wants"
SLEEP = "[Service]\nType=exec\nExecStart=/usr/bin/sleep 60\n[Install]\nWantedBy=multi-user.target\n"
FILES = {
    "tt@.service": "[Service]\nType=exec\nExecStartPre=/usr/bin/note %i %I %n %N %p 100%%\n"
    + SLEEP[len("[Service]\n") :],
    "st@.service": "[Service]\nExecStart=/usr/bin/sleep 60\n",
    "pl.service": SLEEP,
    "fl.service": "[Service]\nType=exec\nExecStart=/usr/bin/nothing\n",
}
NO_INSTANCE = (
    "Failed to start tt@.service: Unit name tt@.service is missing the instance name.\n"
    "See system logs and 'systemctl status tt@.service' for details.\n"
)
FL_FAILED = (
    "Job for fl.service failed because the control process exited with error code.\n"
    'See "systemctl status fl.service" and "journalctl -xeu fl.service" for details.\n'
)
NOT_RESET = "Failed to reset failed state of unit {0}: Unit {0} not loaded."
NO_UNIT = "Unit name tt@.service is neither a valid invocation ID nor unit name.\n"
NO_ZZ_STATE = "Failed to get unit file state for zz.service: No such file or directory\n"


@pytest.fixture
def root(fleet: Rehearsal) -> Iterator[Path]:
    root = fleet.root("n2")
    scripts = {"sleep": "exec sleep $1", "note": 'echo "$*" >"${0%/usr/bin/note}/run/noted"'}
    for name, text in scripts.items():
        (root / "usr/bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / "usr/bin" / name).chmod(0o755)
    for name, text in FILES.items():
        (root / UNITS / name).write_text(text)
    try:
        yield root
    finally:
        ask(root, "disable --now pl fl tt@0 tt@1 tt@2 tt@", code=None)
        for path in (*(root / UNITS).glob("*.service"), root / "run/noted"):
            path.unlink(missing_ok=True)
        ask(root, "reset-failed")
        ask(root, "daemon-reload")


def ask(root: Path, words: str, code: int | None = 0) -> str:
    """Run the node's systemctl; return what it printed, standard output first."""
    command = [str(root / "usr/bin/systemctl"), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert code in (None, done.returncode), done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def systemctl(root: Path) -> Systemctl:
    return functools.partial(ask, root)


def each(sentence: str, *names: str) -> str:
    return "".join(f"{sentence.format(name)}\n" for name in names)


def created(name: str, path: str) -> str:
    return f"Created symlink {WANTS}/{name} → /etc/systemd/system/{path}.\n"


def removed(name: str) -> str:
    return f'Removed "{WANTS}/{name}".\n'


def test_a_units_name_tells_its_template() -> None:
    names = ("a@1.service", "a@.service", "a.service", "a@b@c.service")
    assert [template_of(name) for name in names] == ["a@.service", "", "", "a@.service"]
    assert [is_template(name) for name in names] == [False, True, False, False]


@pytest.mark.parametrize(
    ("name", "text", "expanded"),
    [
        ("sp@a-b\\x20c.service", "%i %I %n %N %p %%", "a-b\\x20c a/b c sp@a-b\\x20c.service sp@a-b\\x20c sp %"),
        ("sq.service", "<%i> <%I> %n %N %p %%", "<> <> sq.service sq sq %"),
        ("sq@1.service", "%%i %z", "%i %z"),
    ],
)
def test_specifiers_stand_for_the_parts_of_a_name(name: str, text: str, expanded: str) -> None:
    assert expand(text, name) == expanded


def test_an_instance_is_started_from_its_template(systemctl: Systemctl, root: Path) -> None:
    assert systemctl("start tt@0") == ""
    assert (root / "run/noted").read_text() == "0 0 tt@0.service tt@0 tt 100%\n"
    shown = systemctl("show tt@0 tt@1 -p LoadState,ActiveState,UnitFileState")
    states = "LoadState=loaded\nActiveState={}\nUnitFileState=disabled\n"
    assert shown == states.format("active") + "\n" + states.format("inactive")


def test_an_instances_own_file_wins(systemctl: Systemctl, root: Path) -> None:
    (root / UNITS / "tt@1.service").write_text(SLEEP)
    assert systemctl("enable tt@1 tt@0") == created("tt@1.service", "tt@1.service") + created(
        "tt@0.service", "tt@.service"
    )
    systemctl("start tt@1")
    assert not (root / "run/noted").exists()


def test_an_instance_is_enabled_by_a_link_to_its_template(systemctl: Systemctl, root: Path) -> None:
    link = root / WANTS[1:] / "tt@0.service"
    assert systemctl("is-enabled tt@", code=1) == "disabled\n"
    assert systemctl("enable --now tt@0") == created("tt@0.service", "tt@.service")
    assert os.readlink(link) == "/etc/systemd/system/tt@.service"
    assert systemctl("enable tt@0") == ""
    assert systemctl("is-enabled tt@0 tt@1 tt@ st@4") == "enabled\ndisabled\nindirect\nstatic\n"
    assert systemctl("show tt@0 -p ActiveState,UnitFileState") == "ActiveState=active\nUnitFileState=enabled\n"
    assert systemctl("disable --now tt@0") == removed("tt@0.service")
    assert not link.is_symlink()
    assert systemctl("show tt@0 -p ActiveState,UnitFileState") == "ActiveState=inactive\nUnitFileState=disabled\n"


def test_disabling_a_template_disables_its_instances(systemctl: Systemctl) -> None:
    systemctl("enable tt@0 tt@2 pl")
    assert systemctl("disable tt@") == removed("tt@0.service") + removed("tt@2.service")
    assert systemctl("is-enabled pl") == "enabled\n"


def test_one_block_for_each_unit_that_was_asked_for(systemctl: Systemctl) -> None:
    systemctl("start pl")
    pid = systemctl("show pl -P MainPID").strip()
    block = "MainPID={}\nId={}\nLoadState={}\nActiveState={}\nUnitFileState={}\nNeedDaemonReload=no\n"
    wanted = [
        block.format(0, "zz.service", "not-found", "inactive", ""),
        block.format(pid, "pl.service", "loaded", "active", "disabled"),
        block.format(0, "yy@1.service", "not-found", "inactive", ""),
        block.format(0, "tt@0.service", "loaded", "inactive", "disabled"),
    ]
    words = "show zz pl yy@1 tt@0 --property=Id,LoadState,ActiveState,UnitFileState,MainPID,NeedDaemonReload"
    assert systemctl(words) == "\n".join(wanted)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("start tt@", 1, NO_INSTANCE),
        ("start zz yy", 5, each("Failed to start {0}: Unit {0} not found.", "zz.service", "yy.service")),
        ("start fl zz", 1, f"Failed to start zz.service: Unit zz.service not found.\n{FL_FAILED}"),
        ("stop zz pl yy@1", 5, each("Failed to stop {0}: Unit {0} not loaded.", "zz.service", "yy@1.service")),
        ("stop tt@1", 0, ""),
        ("enable tt@", 1, "Failed to enable unit: Destination unit multi-user.target is a non-template unit.\n"),
        ("enable tt@1 pl zz", 1, "Failed to enable unit: Unit file zz.service does not exist.\n"),
        ("disable zz yy", 1, "Failed to disable unit: Unit file zz.service does not exist.\n"),
        ("disable tt@1", 0, ""),
        ("reset-failed tt@7 zz", 1, each(NOT_RESET, "tt@7.service", "zz.service")),
        ("reset-failed", 0, ""),
        ("is-enabled pl zz tt@1", 1, f"disabled\n{NO_ZZ_STATE}"),
        ("is-active zz tt@1", 3, "inactive\ninactive\n"),
        ("is-active tt@", 1, f"Failed to retrieve unit state: {NO_UNIT}"),
        ("show zz tt@ pl -p MainPID", 1, f"MainPID=0\nFailed to get properties: {NO_UNIT}"),
        ("status zz yy", 4, each("Unit {0} could not be found.", "zz.service", "yy.service")),
        ("stop", 1, "Too few arguments.\n"),
        ("daemon-reload pl", 1, "Too many arguments.\n"),
    ],
    ids=lambda word: word if isinstance(word, str) else "",
)  # fmt: skip
def test_systemctl_says(systemctl: Systemctl, words: str, code: int, said: str) -> None:
    assert systemctl(words, code) == said


def test_nothing_is_enabled_where_one_unit_cannot_be(systemctl: Systemctl) -> None:
    systemctl("enable tt@1 pl zz", code=1)
    assert systemctl("is-enabled tt@1 pl", code=1) == "disabled\ndisabled\n"


def test_a_missing_unit_is_not_told_where_another_was_disabled(systemctl: Systemctl) -> None:
    systemctl("enable tt@0")
    assert systemctl("disable tt@0 zz") == removed("tt@0.service")


def test_the_links_of_a_template_that_has_gone_can_be_removed(systemctl: Systemctl, root: Path) -> None:
    systemctl("enable tt@0")
    (root / UNITS / "tt@.service").unlink()
    assert systemctl("show tt@0 -p LoadState,NeedDaemonReload") == "LoadState=loaded\nNeedDaemonReload=yes\n"
    assert systemctl("disable tt@0") == removed("tt@0.service")
    assert systemctl("show tt@0 -p LoadState,NeedDaemonReload") == "LoadState=not-found\nNeedDaemonReload=no\n"
    assert systemctl("start tt@0", code=5) == "Failed to start tt@0.service: Unit tt@0.service not found.\n"


def test_a_changed_template_is_told_of_the_instances_that_run(systemctl: Systemctl, root: Path) -> None:
    systemctl("start tt@0")
    path = root / UNITS / "tt@.service"
    os.utime(path, (time.time(), path.stat().st_mtime + 1))
    assert systemctl("show tt@0 tt@1 -p NeedDaemonReload") == "NeedDaemonReload=yes\n\nNeedDaemonReload=no\n"
    assert "of tt@0.service changed on disk. Run 'systemctl daemon-reload'" in systemctl("restart tt@0")


def test_a_link_removed_by_hand_is_noticed_at_a_reload(systemctl: Systemctl, root: Path) -> None:
    systemctl("enable --now pl")
    (root / WANTS[1:] / "pl.service").unlink()
    assert systemctl("is-enabled pl", code=1) == "disabled\n"
    assert systemctl("show pl -p UnitFileState") == "UnitFileState=enabled\n"
    systemctl("daemon-reload")
    assert systemctl("show pl -p UnitFileState") == "UnitFileState=disabled\n"
