#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reset MPS on a drained GPU node. Translates C(mpsfleet node reset)."""

DOCUMENTATION = r"""
module: mps_reset
short_description: Reset NVIDIA MPS on a drained GPU node
version_added: 0.1.0
description:
  - Runs C(mpsfleet node reset) on the node. It stops the control daemon with the least force that works, cleans its
    directories safely, starts it and verifies that root and ordinary users reach it.
  - The program refuses, and changes nothing, unless the node is drained by mpsfleet, idle, and free of jobs. With
    O(gpus) jobs may run on the node's other GPUs.
  - A node without a GPU is skipped.
  - The module fails where the node is not well afterwards.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
options:
  any_drain:
    description:
      - Accept a drain by somebody else. The drain itself is left as it is.
    type: bool
    default: false
  gpus:
    description:
      - The GPUs whose daemons are reset, by nvidia-smi's index, on a node with a daemon for each GPU. Empty is all of
        the node.
    type: list
    elements: int
    default: []
  others:
    description:
      - End root's control daemons on other pipe directories as well, which hold the same GPUs.
    type: bool
    default: false
  is_drained_for:
    description:
      - Whether the caller will drain the node. A refusal in check mode is then told in RV(refused) without a warning.
    type: bool
    default: false
  timeout:
    description:
      - Seconds after which the program is stopped. The next run takes up where it was.
    type: float
    default: 300
seealso:
  - module: mpsfleet.mps.slurm_node
"""

EXAMPLES = r"""
- name: Reset MPS on the drained node
  mpsfleet.mps.mps_reset:
  become: true

- name: Reset the daemon of one GPU, while jobs run on the others
  mpsfleet.mps.mps_reset:
    gpus: [2]
  become: true
"""

RETURN = r"""
changes:
  description: What was done, or would be in check mode, in order.
  returned: always
  type: list
  elements: dict
  contains:
    what:
      description: The file, unit or daemon.
      type: str
    action:
      description: What is done to it, such as V(stop), V(remove) or V(start).
      type: str
    detail:
      description: One line more.
      type: str
messages:
  description: What else the program has to say.
  returned: always
  type: list
  elements: str
refused:
  description:
    - The precondition that does not hold; nothing was changed then. Null where all hold.
    - In check mode a refusal is returned with a warning, since the drain that is missing may be one that an earlier
      task would have made.
  returned: always
  type: str
msg:
  description: Why the module failed, or why the node was skipped.
  returned: when it failed or was skipped
  type: str
report:
  description: The audit after the reset, as M(mpsfleet.mps.mps_audit) returns it; null where none was made.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import acting, program


def words_for(parameters: dict, is_check: bool) -> tuple:
    """Return the program's words for the module's parameters."""
    words = ("node", "reset", "--json")
    if is_check:
        words += ("--dry-run",)
    if parameters["any_drain"]:
        words += ("--any-drain",)
    for each in parameters["gpus"]:
        words += ("--gpu", str(each))
    if parameters["others"]:
        words += ("--others",)
    return words


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            any_drain={"type": "bool", "default": False},
            gpus={"type": "list", "elements": "int", "default": []},
            others={"type": "bool", "default": False},
            is_drained_for={"type": "bool", "default": False},
            timeout={"type": "float", "default": 300},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    words = words_for(module.params, module.check_mode)
    try:
        answer = program.ask(module.params, words, "", module.params["timeout"], module.tmpdir)
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.fail_json(msg=str(error))
    result = acting.acting_result(answer.values, is_judged=not module.check_mode, is_refusal_told=module.check_mode)
    del result["waiting"]  # a reset stops all or nothing
    if result.get("failed"):
        module.fail_json(**result)
    if result["refused"] and not module.params["is_drained_for"]:
        module.warn("As things are now this would be refused: {0}".format(result["refused"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
