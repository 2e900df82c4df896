#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drain a node in Slurm with our reason, or undrain it. Translates C(mpsfleet slurm drain) and C(… undrain)."""

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a node in Slurm, or undrain it, with respect for the drains of others
version_added: 0.1.0
description:
  - Runs C(mpsfleet slurm drain) or C(mpsfleet slurm undrain) where C(scontrol) is, usually delegated to the
    controller.
  - A drain bears the reason C(mpsfleet:) and a code. A drain by somebody else is never overwritten and never taken
    back; the module then fails with a sentence that names it.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
options:
  name:
    description:
      - The node's one literal name in Slurm (NodeName), never a list.
    type: str
    required: true
  state:
    description:
      - V(drained) keeps new jobs away from the node; running jobs go on.
      - V(undrained) gives the node back, where the drain is ours and the node is idle.
    type: str
    choices: [drained, undrained]
    required: true
  code:
    description:
      - Why the node is drained, V(reset) for a planned reset or the code of a finding.
    type: str
    default: reset
  wait:
    description:
      - Seconds to wait after the drain until the last job has left the node. The module fails where the node is not
        free by then; the drain stays.
      - Without it the module does not wait.
    type: int
  cluster:
    description:
      - The cluster's name. It is compared with Slurm's own before anything is written.
    type: str
  timeout:
    description:
      - Seconds after which the program is stopped, beyond those of O(wait).
    type: float
    default: 60
seealso:
  - module: mpsfleet.mps.mps_reset
"""

EXAMPLES = r"""
- name: Drain the node and wait until it is free
  mpsfleet.mps.slurm_node:
    name: "{{ mps_slurm_node_name }}"
    state: drained
    wait: 600
  become: true
  delegate_to: "{{ groups['slurm_master'][0] }}"

- name: Give the node back
  mpsfleet.mps.slurm_node:
    name: "{{ mps_slurm_node_name }}"
    state: undrained
  become: true
  delegate_to: "{{ groups['slurm_master'][0] }}"
"""

RETURN = r"""
action:
  description: What was done, V(drain), V(undrain) or V(none).
  returned: when Slurm was asked
  type: str
why:
  description: Why this was done, or nothing, in one sentence.
  returned: when Slurm was asked
  type: str
before:
  description: The node's state, reason and the reason's user before the change.
  returned: when Slurm was asked
  type: dict
after:
  description: The same after the change; null where nothing was changed.
  returned: when Slurm was asked
  type: dict
refused:
  description:
    - The precondition that does not hold. Null where all hold.
    - In check mode a refused V(undrained) is returned with a warning, since an earlier task may be meant to make the
      node fit for it.
  returned: when Slurm was asked
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import program


def words_for(parameters: dict, is_check: bool) -> tuple:
    """Return the program's words for the module's parameters."""
    name = parameters["name"]
    if parameters["state"] == "drained":
        words = ("slurm", "drain", name, "--code", parameters["code"])
        if parameters["wait"] is not None:
            words += ("--wait", str(parameters["wait"]))
    else:
        words = ("slurm", "undrain", name)
    if parameters["cluster"]:
        words += ("--cluster", parameters["cluster"])
    return words + ("--json",) + (("--dry-run",) if is_check else ())


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            name={"type": "str", "required": True},
            state={"type": "str", "choices": ["drained", "undrained"], "required": True},
            code={"type": "str", "default": "reset"},
            wait={"type": "int"},
            cluster={"type": "str"},
            timeout={"type": "float", "default": 60},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    if module.params["name"].startswith("-"):
        module.fail_json(msg="{0!r} is an option, not the name of a node.".format(module.params["name"]))
    timeout = module.params["timeout"] + (module.params["wait"] or 0)
    try:
        answer = program.ask(module.params, words_for(module.params, module.check_mode), "", timeout, module.tmpdir)
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.fail_json(msg=str(error))
    result = {key: answer.values.get(key) for key in ("action", "why", "before", "after", "refused")}
    result["changed"] = bool(answer.values.get("changed"))
    problem = answer.values.get("failed")
    if result["refused"] and module.check_mode and module.params["state"] == "undrained":
        module.warn("As things are now this would be refused: {0}".format(result["refused"]))
    elif result["refused"]:
        problem = problem or result["refused"]
    if problem:
        module.fail_json(msg=problem, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
