"""Public cases about Ansible roles, by what the collection's own tasks say; and that no case is left out unseen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cases.conftest import Row

COLLECTION = Path(__file__).resolve().parents[2] / "ansible_collections" / "mpsfleet" / "mps"
ROLES = COLLECTION / "roles"
PROSE = {"source", "evidence", "about", "left_out", "not_shown"}
NOT_SHOWN: set[str] = set()  # cases that nothing here can show
IN_PART = {"A08", "C06", "D01", "D09", "D14", "D21", "E24", "J11", "J16"}  # `left_out` says which part, and why
IDS = (
    "A08 A20 C01 C02 C05 C06 D01 D02 D03 D04 D05 D07 D08 D09 D10 D11 D13 D14 D16 D18 D19 D20 D21 E02 E14 E22 E24 E26 G13 "
    "J01 J02 J03 J04 J05 J06 J07 J08 J10 J11 J12 J14 J15 J16 J17"
)
CHANGING = ("mpsfleet.mps.mps_node", "mpsfleet.mps.slurm_node", "mpsfleet.mps.mps_reset", "ansible.builtin.template")


def tasks_of(tasks: list[dict[str, Any]], asked: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Give each task with its conditions and those of the blocks it stands in."""
    for task in tasks:
        when = f"{asked} {task.get('when', '')}"
        yield task, when
        for key in ("block", "rescue", "always"):
            yield from tasks_of(task.get(key, []), when)


def plays() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give every file of tasks or plays of the collection."""
    for path in sorted(
        (*ROLES.glob("*/tasks/*.yml"), *ROLES.glob("*/handlers/*.yml"), *(COLLECTION / "playbooks").glob("*.yml"))
    ):
        yield str(path.relative_to(ROLES.parent)), yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_roles_keep_it(roles: Row) -> None:
    if "file" in roles:
        tasks = yaml.safe_load((ROLES / roles["file"]).read_text(encoding="utf-8"))
        changing = [
            (task, when) for task, when in tasks_of(tasks) if set(CHANGING) & set(task) and not task.get("check_mode")
        ]
        assert changing
        assert [task["name"] for task, when in changing if roles["every_change_asks"] not in when] == []
    for name, tasks in plays():
        keys = {key for task, _ in tasks_of(tasks) for key in task}
        assert not {f"ansible.builtin.{each}" for each in roles.get("lack", ())} & keys, name
        assert roles.get("no_key") not in keys, name
        assert "no_text" not in roles or roles["no_text"] not in str(tasks), name


def test_every_case_is_here_and_says_what_it_is(cases: dict[str, Row]) -> None:
    assert sorted(cases) == sorted(IDS.split())
    for case in cases.values():
        assert {"source", "evidence", "about"} <= set(case)
    assert {name for name, case in cases.items() if "not_shown" in case} == NOT_SHOWN
    assert {name for name, case in cases.items() if "left_out" in case} == IN_PART
    assert {name for name, case in cases.items() if not set(case) - PROSE} == NOT_SHOWN


def test_every_list_of_a_case_is_fed_to_a_test(cases: dict[str, Row]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    taken = {name for text in texts for name in re.findall(r"\bdef test_\w+\(\s*(\w+): (?:Row|str)\b", text)}
    assert {kind for case in cases.values() for kind in case} - PROSE <= taken
