# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of `slurm_node`: a Slurm controller out of reach fails the task, not the node it is for."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.carried_program import run_module


class ActionModule(ActionBase):
    """Drain or undrain one node, usually delegated to the controller.

    Ansible calls the host of a delegated task unreachable when the delegate is, and drops it from the play, past any
    rescue. Here the task fails instead.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        try:
            return run_module(self, "mpsfleet.mps.slurm_node", self._task.args, task_vars, is_sent_at_once=True)
        except AnsibleConnectionFailure as error:
            if not self._task.delegate_to:
                raise
            message = f"The Slurm controller {self._task.delegate_to} cannot be reached: {error}"
            return {"failed": True, "changed": False, "msg": message}
