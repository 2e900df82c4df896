# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of `mps_verdict`: gather what was registered for every host, have it judged, tell a person.

It reads hostvars itself. As arguments of a plain module the reports would be templated, shipped and logged as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.audits import SCHEMA, host_entry
from ansible_collections.mpsfleet.mps.plugins.plugin_utils.carried_program import run_module
from ansible_collections.mpsfleet.mps.plugins.plugin_utils.outcome import local_answer, printed_lines, registered_result
from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable
from ansible_collections.mpsfleet.mps.plugins.plugin_utils.triggers import is_wanted

if TYPE_CHECKING:
    from ansible.playbook.play import Play

POLICY = (
    "max_drained",
    "max_drained_partition",
    "max_drained_hour",
    "drain_after",
    "undrain_after",
    "strikes",
    "ledger",
)
ARGUMENTS = {
    "audit_result": {"type": "str", "default": "mps_audit_result"},
    "trigger_drain": {"type": "raw", "default": False},
    "cluster": {"type": "str"},
    "trigger_undrain": {"type": "raw", "default": False},
    **{name: {"type": "str"} for name in POLICY},
    "timeout": {"type": "float", "default": 120},
}
TRIGGERS = ("trigger_drain", "trigger_undrain")
CONTROLLERS = "slurm_master"
EACH_HOST_STRATEGIES = ("free", "host_pinned")  # and what others derive from them, such as mitogen_free
COLORS = {
    "ok": constants.COLOR_OK,
    "warn": constants.COLOR_WARN,
    "unknown": constants.COLOR_UNREACHABLE,
    "critical": constants.COLOR_ERROR,
}


class ActionModule(ActionBase):
    """Judge the whole play at once."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _result, arguments = self.validate_argument_spec(ARGUMENTS)
        self._refuse_what_cannot_judge_all()
        wanted = {name: _is_wanted(name, arguments[name]) for name in TRIGGERS}
        hosts, problems, held_back = _entries(variables, arguments["audit_result"])
        allowed = dict.fromkeys(TRIGGERS, False) if held_back else wanted
        answer = self._answer(hosts, {**arguments, **allowed}, variables)
        if any(wanted.values()) and held_back:
            answer["lines"].append(f"nothing is changed, since mps_enabled is false for {', '.join(held_back)}")
        for line in printed_lines(answer, problems):
            Display().display(line, color=_color(line))
        return registered_result(answer, problems)

    def _refuse_what_cannot_judge_all(self) -> None:
        play = _play_of(self._task)
        strategy = play.strategy.rsplit(".", 1)[-1]
        if strategy.endswith(EACH_HOST_STRATEGIES):
            message = f"mps_verdict cannot run under strategy {strategy}, which does not honour run_once; use linear."
            raise AnsibleActionFail(message)
        if play.serial:
            message = "mps_verdict judges all hosts at once; take serial out of its play, or give it a play of its own."
            raise AnsibleActionFail(message)
        if not self._task.run_once:
            message = "mps_verdict judges all hosts at once; give its task run_once: true."
            raise AnsibleActionFail(message)

    def _answer(
        self, hosts: list[dict[str, Any]], arguments: dict[str, Any], variables: dict[str, Any]
    ) -> dict[str, Any]:
        controllers = variables.get("groups", {}).get(CONTROLLERS) or ()
        controller = self._task.delegate_to
        if not controllers:
            return local_answer(hosts, f"the inventory has no host in the group {CONTROLLERS}")
        if controller not in controllers:
            message = f"mps_verdict must be delegated to a host of the group {CONTROLLERS}, and not to {controller}."
            raise AnsibleActionFail(message)
        needed = {
            **{name: arguments[name] for name in (*TRIGGERS, "cluster", *POLICY, "timeout")},
            "reports": json.dumps({"schema": SCHEMA, "hosts": hosts}),
        }
        try:
            result = run_module(self, "mpsfleet.mps.mps_verdict", needed, variables, is_sent_at_once=True)
        except AnsibleConnectionFailure as error:
            return local_answer(hosts, f"the controller {controller} cannot be reached: {error}")
        except AnsibleError as error:
            return local_answer(hosts, f"on {controller}: {error}")
        answer = result.get("answer")
        if not isinstance(answer, dict):
            said = result.get("msg") or "it gave no answer"
            return local_answer(hosts, f"on {controller}: {said}")
        return answer


def _color(line: str) -> str | None:
    """Return the colour of a line `HOSTS: VERDICT: sentence`; None for all other lines."""
    pieces = line.split(": ", 2)
    return COLORS.get(pieces[1]) if len(pieces) > 1 else None


def _is_wanted(name: str, value: Any) -> bool:
    try:
        return is_wanted(name, value)
    except ValueError as error:
        raise AnsibleActionFail(str(error)) from error


def _play_of(task: Any) -> Play:
    """Return the play of a task: its outermost parent is a block, which knows it."""
    parent = task._parent
    while not hasattr(parent, "_play"):
        parent = parent._parent
    return parent._play


def _entries(variables: dict[str, Any], audit_result: str) -> tuple[list[dict[str, Any]], dict[str, str], list[str]]:
    """Return the reports' entry of each host of the play, the hosts' problems, and the hosts that mps_enabled excludes.

    Reports are read untemplated: they are data, and templating a thousand of them takes seconds.
    """
    hostvars = variables["hostvars"]
    entries = []
    problems = {}
    held_back = []
    for host in variables["ansible_play_hosts_all"]:
        raw = hostvars.raw_get(host)
        node = str(_variable(hostvars, host, raw, "mps_slurm_node_name") or host.split(".")[0])
        registered = raw.get(audit_result)
        cluster = _variable(hostvars, host, raw, "mps_slurm_cluster")
        entries.append(host_entry(host, node, registered, str(cluster or "")))
        if isinstance(registered, Mapping) and registered.get("problem"):
            problems[host] = printable(registered["problem"], 400)
        if str(_variable(hostvars, host, raw, "mps_enabled")).lower() in ("false", "no", "0"):
            held_back.append(host)
    return entries, problems, held_back


def _variable(hostvars: Any, host: str, raw: Mapping[str, Any], name: str) -> Any:
    value = raw.get(name)
    return hostvars[host][name] if isinstance(value, str) and "{" in value else value
