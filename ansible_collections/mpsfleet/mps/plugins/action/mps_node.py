# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of `mps_node`: send the program where the node has none, or another version."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.carried_program import run_module, tell_skipped


class ActionModule(ActionBase):
    """Deploy to one node, stop its daemons for a while, or remove from it."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        return tell_skipped(self, run_module(self, "mpsfleet.mps.mps_node", self._task.args, task_vars), task_vars)
