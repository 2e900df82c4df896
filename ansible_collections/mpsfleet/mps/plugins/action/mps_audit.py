# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of `mps_audit`: send the program where it is missing, and let no sick node end the play."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.carried_program import carried_program, run_module

ARGUMENTS = {"config": {"type": "str"}, "timeout": {"type": "float", "default": 60}}


class ActionModule(ActionBase):
    """Audit one node.

    A module that fails (no Python, no right to become root, a crash) becomes `error`: a host that failed here would
    be missing where `mps_verdict` counts the nodes. An unreachable host stays unreachable; `ignore_unreachable` keeps
    it in the play.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(ARGUMENTS)
        carried_program()  # a collection without its program is the whole play's failure, not a node's
        try:
            result = run_module(self, "mpsfleet.mps.mps_audit", arguments, task_vars)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            return {"changed": False, "report": None, "error": f"The audit could not be run: {error}"}
        if result.get("failed"):
            return {"changed": False, "report": None, "error": f"The audit could not be run: {_said(result)}"}
        return result


def _said(result: dict[str, Any]) -> str:
    """Return why a module failed: its own words, and the last line of what the interpreter said where it crashed."""
    words = [str(result.get("msg") or "it gave no reason"), *str(result.get("module_stderr", "")).splitlines()[-1:]]
    return ": ".join(each.strip() for each in words if each.strip())
