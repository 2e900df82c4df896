# SPDX-License-Identifier: Apache-2.0

"""How often a module runs on a target, and what travels with it."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.mpsfleet.mps.plugins.module_utils.program import unpacked
from ansible_collections.mpsfleet.mps.plugins.plugin_utils import carried_program

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"the program"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Target:
    """An action whose target has the program, or lacks it; it keeps the arguments of every run."""

    class Task:
        """The action's task."""

        def __init__(self, delegate_to: str | None) -> None:
            self.delegate_to = delegate_to

    def __init__(self, is_installed: bool, delegate_to: str | None = None) -> None:
        self.is_installed = is_installed
        self._task = self.Task(delegate_to)
        self.runs: list[dict[str, Any]] = []

    def _execute_module(self, module_name: str, module_args: dict[str, Any], **_vars: Any) -> dict[str, Any]:
        self.runs.append(module_args)
        module_args["_ansible_check_mode"] = False  # as Ansible does: it writes into what it is given
        is_missing = not self.is_installed and "program" not in module_args
        return {"program_missing": True} if is_missing else {"module": module_name, "invocation": {"module_args": {}}}


@pytest.fixture(autouse=True)
def _carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_program, "carried_program", lambda: CONTENT)


def test_where_the_program_is_installed_the_module_runs_once_and_nothing_travels() -> None:
    target = Target(is_installed=True)

    result = carried_program.run_module(target, "m", {"config": "x"}, {})

    assert [sorted(each) for each in target.runs] == [["_ansible_check_mode", "config", "program_digest"]]
    assert target.runs[0]["program_digest"] == DIGEST
    assert result == {"module": "m"}


def test_where_it_is_missing_the_module_runs_again_with_the_program() -> None:
    target = Target(is_installed=False)

    result = carried_program.run_module(target, "m", {}, {})

    assert len(target.runs) == 2
    assert unpacked(target.runs[1]["program"], target.runs[1]["program_digest"]) == CONTENT
    assert result == {"module": "m"}


def test_sent_at_once_it_runs_once() -> None:
    target = Target(is_installed=False)

    carried_program.run_module(target, "m", {}, {}, is_sent_at_once=True)

    assert len(target.runs) == 1


def test_the_tasks_own_arguments_stay_as_they_are() -> None:
    arguments = {"config": "x"}

    carried_program.run_module(Target(is_installed=False), "m", arguments, {})

    assert arguments == {"config": "x"}


@pytest.mark.parametrize(("delegate", "root"), [(None, "/images/a"), ("ctl", "/images/ctl"), ("other", None)])
def test_the_root_is_that_of_the_host_where_the_module_runs(delegate: str | None, root: str | None) -> None:
    target = Target(is_installed=True, delegate_to=delegate)
    variables = {"mps_root": "/images/a", "hostvars": {"ctl": {"mps_root": "/images/ctl"}, "other": {}}}

    carried_program.run_module(target, "m", {}, variables)

    assert target.runs[0].get("root") == root


def test_a_program_is_packed_for_less_than_its_size() -> None:
    content = b"def main():\n    return 0\n" * 1000

    assert zlib.decompress(base64.b64decode(carried_program.packed(content))) == content
    assert len(carried_program.packed(content)) < len(content)


def test_a_checkout_without_the_program_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    with pytest.raises(AnsibleActionFail, match="make collection"):
        carried_program.carried_program(str(tmp_path / "mpsfleet.pyz"))
