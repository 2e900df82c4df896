"""Public cases about Ansible roles, by what the collection's own tasks say; and that no case is left out unseen.

Beside them: every key of node.toml is a variable of the role, and every variable is described where people look.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import yaml  # type: ignore[import-untyped]

from mpsfleet.node.desired import Desired, Share, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cases.conftest import Row

COLLECTION = Path(__file__).resolve().parents[2] / "ansible_collections" / "mpsfleet" / "mps"
ROLES = COLLECTION / "roles"
PROSE = {"source", "evidence", "about", "left_out", "not_shown"}
NOT_SHOWN: set[str] = set()  # cases that nothing here can show
IN_PART = {"A08", "C06", "D01", "D09", "D14", "D21", "J11", "J16"}  # `left_out` says which part, and why
IDS = (
    "A08 A20 C01 C02 C05 C06 D01 D02 D03 D04 D05 D07 D08 D09 D10 D11 D13 D14 D16 D18 D19 D20 D21 E02 E14 E22 E24 E26 G13 "
    "J01 J02 J03 J04 J05 J06 J07 J08 J10 J11 J12 J14 J15 J16 J17"
)
CHANGING = ("mpsfleet.mps.mps_node", "mpsfleet.mps.slurm_node", "mpsfleet.mps.mps_reset", "ansible.builtin.template")


# A value other than the default for each variable that node.toml is written from, as group_vars may hold it.
SET: dict[str, Any] = {
    "mps_control_bin": "/opt/nvidia/nvidia-cuda-mps-control",
    "mps_daemons": "gpu",
    "mps_gpus": [0, "A100"],
    "mps_ipc_dir": "/run/mps",
    "mps_log_dir": "/var/log/mps",
    "mps_active_thread_percentage": "50",
    "mps_pinned_memory_limit": "8G",
    "mps_client_priority": 1,
    "mps_multi_user": True,
    "mps_compute_mode": "exclusive_process",
    "mps_shares": [
        {
            "gpus": [1],
            "active_thread_percentage": 25,
            "pinned_memory_limit": "4G",
            "client_priority": 0,
            "multi_user": False,
        },
    ],
    "mps_gpus_expected": 2,
    "mps_audit_minutes": 15,
    "mps_audit_by_nhc": "yes",
    "mps_login_profile": True,
    "mps_slurm_enabled": False,
    "mps_slurm_node_name": "n1",
    "mps_slurm_cluster": "lab",
    "mps_publish": False,
    "mps_own_reset": True,
    "mps_own_drain": True,
    "mps_query_timeout_s": 3,
    "mps_nvidia_smi_timeout_s": 5,
}
ASKED = Desired(
    daemons="gpu",
    control_binary="/opt/nvidia/nvidia-cuda-mps-control",
    pipe_directory="/run/mps",
    log_directory="/var/log/mps",
    active_thread_percentage=50.0,
    memory_limit_mib=8192,
    client_priority=1,
    multi_user=True,
    shares=(Share((1,), 25.0, 4096, 0, multi_user=False),),
    mps_gpus=(0, "A100"),
    compute_mode="exclusive_process",
    gpus_expected=2,
    audit_minutes=15,
    nhc=True,
    profile=True,
    slurm_enabled=False,
    node_name="n1",
    cluster="lab",
    publish=False,
    own_reset=True,
    own_drain=True,
    query_timeout_s=3.0,
    nvidia_smi_timeout_s=5.0,
)


def read(path: str) -> Any:
    return yaml.safe_load((ROLES / path).read_text(encoding="utf-8"))


def is_true(value: object) -> bool:
    """Read a value as Ansible's filter `bool` does."""
    return str(value).lower() in ("yes", "on", "1", "true")


def rendered(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any]) -> str:
    """Return the node.toml that the role writes from these variables."""
    monkeypatch.syspath_prepend(str(COLLECTION.parents[2]))
    toml = importlib.import_module("ansible_collections.mpsfleet.mps.plugins.plugin_utils.toml")
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701
    environment.filters.update({"mpsfleet.mps.toml_value": toml.toml_value, "bool": is_true})
    text = (ROLES / "mps" / "templates" / "node.toml.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(variables)


def test_every_key_of_node_toml_is_a_variable_of_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {**read("mps/defaults/main.yml"), "mps_slurm_node_name": "n1"}

    assert parse(rendered(monkeypatch, plain)) == (Desired(node_name="n1"), ())
    assert parse(rendered(monkeypatch, {**plain, **SET})) == (ASKED, ())
    same = {field for field, one, other in zip(Desired._fields, ASKED, Desired()) if one == other}
    assert same == {"mode"}  # of which there is one


def test_a_variable_that_is_left_empty_is_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    optional = (
        "daemons",
        "gpus",
        "pinned_memory_limit",
        "client_priority",
        "multi_user",
        "compute_mode",
        "shares",
        "gpus_expected",
    )
    more = ("audit_minutes", "slurm_cluster", "publish", "own_reset", "own_drain")
    plain = {**read("mps/defaults/main.yml"), "mps_slurm_node_name": "n1"}
    for empty in ("", None):
        found = rendered(monkeypatch, {**plain, **{f"mps_{each}": empty for each in (*optional, *more)}})
        assert parse(found) == (Desired(node_name="n1"), ())


@pytest.mark.parametrize("role", ["mps", "mps_slurm"])
def test_every_variable_of_a_role_is_described_and_every_described_one_is_used(role: str) -> None:
    entries = read(f"{role}/meta/argument_specs.yml")["argument_specs"].values()
    described = {name: option for entry in entries for name, option in entry["options"].items()}
    defaults = read(f"{role}/defaults/main.yml")
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (ROLES / role).glob("t*/*"))
    used = set(re.findall(r"\bmps_\w+", texts))
    without_default = {"mps_gpus_expected"} if role == "mps" else set()
    assert set(described) - without_default == set(defaults)
    assert set(described) <= used | {"mps_root"}  # which the action plugins read
    for name, each in described.items():
        written = defaults.get(name)
        if "default" in each and not isinstance(written, str):
            assert each["default"] == written, name


def test_the_roles_page_has_a_row_for_each_variable_that_node_toml_is_written_from() -> None:
    page = (ROLES / "mps" / "README.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(mps_\w+)` \|", page, re.MULTILINE))
    assert set(SET) <= rows <= set(read("mps/meta/argument_specs.yml")["argument_specs"]["main"]["options"])


def test_every_file_of_tasks_that_a_text_names_is_there() -> None:
    texts = (*COLLECTION.glob("*.md"), *ROLES.glob("*/README.md"), *(COLLECTION.parents[2] / "docs").rglob("*.md"))
    named = {each for path in texts for each in re.findall(r"tasks_from: (\w+\.yml)", path.read_text(encoding="utf-8"))}
    assert {"quiesce.yml", "unquiesce.yml"} <= named
    assert [each for each in named if not (ROLES / "mps" / "tasks" / each).exists()] == []


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
        if name == roles.get("but"):
            continue
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
