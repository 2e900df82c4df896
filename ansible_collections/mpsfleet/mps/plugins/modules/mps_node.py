#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deploy MPS on a GPU node, keep it stopped for a while, or take it away.

Translates C(mpsfleet node apply), C(… remove), C(… quiesce) and C(… unquiesce).
"""

DOCUMENTATION = r"""
module: mps_node
short_description: Deploy NVIDIA MPS on a GPU node, stop it for work on the driver, or remove it
version_added: 0.1.0
description:
  - Runs C(mpsfleet node apply) or C(mpsfleet node remove) on the node, which own every file that MPS needs there; or
    C(mpsfleet node quiesce) or C(mpsfleet node unquiesce), before and after work on the driver.
  - The program installs itself; it is sent along where the node has none, or another version.
  - The module fails where the node is not well afterwards, and where the program refuses.
  - A refusal changes nothing, but for one. Where a daemon has to be stopped and the node is in use, that daemon runs on
    as it is, all the rest is done, and RV(waiting) names its unit.
  - A node without a GPU is skipped.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
attributes:
  diff_mode:
    support: full
options:
  state:
    description:
      - V(applied) makes the node what its C(node.toml) asks for; V(removed) takes away all that V(applied) put there.
      - V(quiesced) stops the daemons of a node that is drained and empty, and keeps them stopped over reboots too.
      - V(unquiesced) ends that. It asks nvidia-smi first, and leaves the node quiet where the driver does not work;
        then it starts the daemons and verifies them.
    type: str
    choices: [applied, removed, quiesced, unquiesced]
    default: applied
  config:
    description:
      - The text of C(/etc/mpsfleet/node.toml). It is validated before it replaces the old one.
      - Without it the node's own file stays as it is.
    type: str
  is_drained_for:
    description:
      - Whether the caller will drain the node where daemons have to be stopped. In check mode RV(waiting) is then a
        warning, and no failure; and a refusal of V(removed) or V(quiesced) is told in RV(refused) without a warning.
    type: bool
    default: false
  timeout:
    description:
      - Seconds after which the program is stopped. The next run takes up where it was.
    type: float
    default: 300
"""

EXAMPLES = r"""
- name: Deploy MPS
  mpsfleet.mps.mps_node:
    config: |
      schema = 1
      [mps]
      active_thread_percentage = 50
  become: true

- name: Take MPS away
  mpsfleet.mps.mps_node:
    state: removed
  become: true

- name: Stop MPS on the drained node, for work on the driver
  mpsfleet.mps.mps_node:
    state: quiesced
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode, in order.
  returned: always
  type: list
  elements: dict
  contains:
    what:
      description: The file, unit or daemon.
      type: str
    action:
      description: What is done to it, such as V(create), V(replace), V(remove), V(start), V(stop) or V(enable).
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
    - The precondition that does not hold. Null where all hold.
    - Nothing was changed then, unless RV(waiting) names units; what was is in RV(changes).
    - In check mode the refusal of O(state=removed) and O(state=quiesced) is returned with a warning, since the drain
      that is missing may be one that an earlier task would have made.
  returned: always
  type: str
waiting:
  description: The units whose daemon has to be stopped and was not, since the node is in use.
  returned: always
  type: list
  elements: str
msg:
  description: Why the module failed, or why the node was skipped.
  returned: when it failed or was skipped
  type: str
report:
  description: The audit after the change, as M(mpsfleet.mps.mps_audit) returns it; null where none was made.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import acting, program

VERBS = {"applied": "apply", "removed": "remove", "quiesced": "quiesce", "unquiesced": "unquiesce"}
NEED_A_FREE_NODE = ("removed", "quiesced")


def words_for(parameters: dict, is_check: bool) -> tuple:
    """Return the program's words for the module's parameters."""
    words = ("node", VERBS[parameters["state"]], "--json")
    if is_check:
        words += ("--dry-run",)
    if parameters["state"] == "applied" and parameters["config"] is not None:
        words += ("--config", "-")
    return words


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            state={"type": "str", "choices": list(VERBS), "default": "applied"},
            config={"type": "str"},
            is_drained_for={"type": "bool", "default": False},
            timeout={"type": "float", "default": 300},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    state = module.params["state"]
    words = words_for(module.params, module.check_mode)
    try:
        answer = program.ask(
            module.params, words, module.params["config"] or "", module.params["timeout"], module.tmpdir
        )
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.fail_json(msg=str(error))
    result = acting.acting_result(
        answer.values,
        is_judged=state != "removed" and not module.check_mode,
        is_refusal_told=module.check_mode and state in NEED_A_FREE_NODE,
        is_drained_for=module.check_mode and module.params["is_drained_for"],
    )
    for message in result["messages"]:
        module.warn(message)
    result["diff"] = acting.diffs(answer.values.get("changes") or [])
    if result.get("failed"):
        module.fail_json(**result)
    if result["waiting"]:
        module.warn("To be stopped, for which the node is drained first: {0}".format(", ".join(result["waiting"])))
    elif result["refused"] and not module.params["is_drained_for"]:
        module.warn("As things are now this would be refused: {0}".format(result["refused"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
