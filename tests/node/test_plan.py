"""The plan of a deploy: what differs and nothing else, and nothing that restarts a daemon."""

from __future__ import annotations

import pytest
from build import DESIRED, INSTANCE, OBSERVED, PID, SOUND, changed, daemon

from mpsfleet.node import files, plan, table
from mpsfleet.node.actions import Action, Installed, Kind, UnitState, Wanted
from mpsfleet.node.model import Answers, Facts

TEXT = "schema = 1\n"
PROGRAM = files.program_path("0.1.0", "ab" * 32)
WANTED = Wanted(DESIRED, table.wanted(DESIRED, TEXT, None), PROGRAM, (INSTANCE,))
UNIT = INSTANCE.unit
RUNNING = UnitState(UNIT, "loaded", "active", "enabled", PID, stale=False)
ALL = Installed(
    tuple((each.path, each.content) for each in WANTED.files), program=True, link=PROGRAM, user=True, units=(RUNNING,)
)
BARE = Installed(
    tuple((each, None) for each in table.every_path()),
    program=False,
    link=None,
    user=False,
    units=(UnitState(UNIT, "not-found", "inactive", "", 0, stale=False),),
)


def deploy(installed: Installed, facts: Facts = SOUND, *, is_free: bool = False) -> tuple[Action, ...]:
    return plan.apply(WANTED, installed, facts, is_free=is_free)


def kinds(actions: tuple[Action, ...]) -> list[Kind]:
    return [each.kind for each in actions]


def test_a_node_that_is_as_it_should_be_needs_nothing() -> None:
    assert deploy(ALL) == ()


def test_a_bare_node_gets_everything_in_order() -> None:
    facts = changed(daemons=(), pipe=OBSERVED.pipe._replace(kind="missing"))

    found = kinds(deploy(BARE, facts))

    assert found == [
        Kind.PROGRAM,
        Kind.LINK,
        *[Kind.WRITE] * 9,
        Kind.ADD_USER,
        Kind.RELOAD,
        Kind.PREPARE,
        Kind.ENABLE,
        Kind.START,
    ]


@pytest.mark.parametrize("mode", [0o666, -1], ids=["another mode", "another owner"])
def test_a_file_of_another_mode_or_owner_is_written_anew(mode: int) -> None:
    right = tuple((each.path, each.mode) for each in WANTED.files)
    path, _ = right[-1]

    assert deploy(ALL._replace(modes=right)) == ()
    assert [(each.kind, each.path) for each in deploy(ALL._replace(modes=(*right[:-1], (path, mode))))] == [
        (Kind.WRITE, path)
    ]


def test_a_changed_unit_is_written_and_its_daemon_left_running() -> None:
    other = tuple((path, b"old" if path == files.UNIT_PATHS[0] else content) for path, content in ALL.contents)

    found = deploy(ALL._replace(contents=other))

    assert kinds(found) == [Kind.WRITE, Kind.RELOAD]
    assert (found[0].change.before, found[0].change.after) == ("old", files.unit(DESIRED))


def test_a_tampered_percentage_is_set_back_without_a_restart() -> None:
    facts = changed(said=Answers(10.0, (), (), ""))

    found = deploy(ALL, facts)

    assert [str(each.change) for each in found] == ["set default thread percentage: 10 → 100"]


def test_a_polluted_directory_is_prepared() -> None:
    found = deploy(ALL, changed(pipe=OBSERVED.pipe._replace(mode=0o777)))

    assert kinds(found) == [Kind.PREPARE]


def test_a_daemon_started_by_hand_is_told_and_left_alone() -> None:
    facts = SOUND._replace(daemons=(daemon(9),))

    assert "control daemon 9 serves" in str(
        plan.foreign_daemons(ALL._replace(units=(RUNNING._replace(main_pid=0),)), facts)
    )
    assert Kind.START not in kinds(deploy(BARE, facts))


def test_removal_takes_away_what_apply_put_there() -> None:
    found = plan.remove(ALL, SOUND)

    removed = [each.path for each in found if each.kind is Kind.REMOVE]
    assert removed == [*[each.path for each in reversed(WANTED.files)], files.PROGRAM_LINK]
    assert found[-1].kind is Kind.UNINSTALL
    assert kinds(found)[:2] == [Kind.STOP, Kind.DISABLE]


def test_removal_from_a_bare_node_does_nothing() -> None:
    facts = changed(daemons=(), pipe=OBSERVED.pipe._replace(kind="missing"))

    assert plan.remove(BARE, facts) == ()


def test_nothing_of_ours_lets_tmp_cleaning_adopt_a_planted_directory() -> None:
    lines = {each.path: each.content.decode() for each in WANTED.files}[files.TMPFILES_PATH].splitlines()

    assert [line.split()[0] for line in lines if not line.startswith("#")] == ["x"] * 3


def test_the_unit_outlives_the_daemons_death_and_starts_before_slurm() -> None:
    unit = files.unit(DESIRED)

    for line in ("KillMode=process", "Before=slurmd.service", "Restart=on-failure", "ProtectSystem=strict"):
        assert line in unit.splitlines()
