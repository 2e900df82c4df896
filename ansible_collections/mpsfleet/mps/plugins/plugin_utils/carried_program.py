# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that the collection carries, and how an action plugin runs a module that needs it on the target.

The module runs first with the program's digest alone. Only where it answers that the target lacks that very program is
it run a second time, with the program among its arguments: one round trip, no copy task, and check mode works.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

PROGRAM = os.path.join(os.path.dirname(__file__), "..", "..", "files", "mpsfleet.pyz")
SHOW_INVOCATION = 3  # -vvv; below it Ansible prints no arguments, so registered results need not hold them


def carried_program(path: str = PROGRAM) -> bytes:
    """Return the carried zipapp. AnsibleActionFail where the collection has none, as in a bare checkout."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        message = (
            f"The collection mpsfleet.mps carries no program ({os.path.normpath(path)}: {error.strerror}). "
            "Install the built collection, or run `make collection` in a checkout."
        )
        raise AnsibleActionFail(message) from error


def packed(content: bytes) -> str:
    """Return the zipapp as a module's argument: zlib, then base64."""
    return base64.b64encode(zlib.compress(content)).decode("ascii")


def run_module(
    action: ActionBase,
    module: str,
    arguments: Mapping[str, Any],
    task_vars: dict[str, Any] | None,
    *,
    is_sent_at_once: bool = False,
) -> dict[str, Any]:
    """Run `module` on the action's target, with the carried program where the target lacks it; return its result.

    `is_sent_at_once` saves the first round trip where the program is likely to be missing (the controller).
    Raises what `ActionBase._execute_module` does, AnsibleConnectionFailure for an unreachable target among them.
    """
    content = carried_program()
    needed = dict(arguments, program_digest=hashlib.sha256(content).hexdigest())
    root = _root(action, task_vars or {})
    if root:
        needed["root"] = root
    if not is_sent_at_once:
        result = action._execute_module(module_name=module, module_args=dict(needed), task_vars=task_vars)
        if not result.get("program_missing"):
            return _without_invocation(result)
    needed["program"] = packed(content)
    return _without_invocation(action._execute_module(module_name=module, module_args=needed, task_vars=task_vars))


def tell_skipped(action: ActionBase, result: dict[str, Any], task_vars: Mapping[str, Any] | None) -> dict[str, Any]:
    """Show why a host was skipped, of which Ansible's own output says no word; return the result as it is."""
    if result.get("skipped") and result.get("msg"):
        host = (task_vars or {}).get("inventory_hostname", action._task.delegate_to)
        Display().display(printable(f"{host}: {result['msg']}"))
    return result


def _root(action: ActionBase, task_vars: Mapping[str, Any]) -> str:
    """Return mps_root of the host where the module runs, which for a delegated task is the delegate."""
    delegate = action._task.delegate_to
    hostvars = task_vars.get("hostvars") or {}
    variables = hostvars[delegate] if delegate and delegate in hostvars else task_vars
    return str(variables.get("mps_root") or "")


def _without_invocation(result: dict[str, Any]) -> dict[str, Any]:
    if Display().verbosity < SHOW_INVOCATION:
        result.pop("invocation", None)
    return result
