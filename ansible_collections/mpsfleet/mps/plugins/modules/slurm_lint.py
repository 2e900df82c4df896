#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check slurm.conf and gres.conf where they lie. Translates C(mpsfleet slurm lint)."""

DOCUMENTATION = r"""
module: slurm_lint
short_description: Check slurm.conf and gres.conf for MPS, and show the lines that are wanted
version_added: 0.1.0
description:
  - Runs C(mpsfleet slurm lint) on the target, which checks both files against each other and, where the node has a
    record of its GPUs, against those.
  - Changes nothing, in or out of check mode.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
options:
  slurm_conf:
    description:
      - The file to read. Empty is C(slurm.conf) in the first of its usual places, such as C(/etc/slurm).
    type: str
  gres_conf:
    description:
      - The file to read. Empty is C(gres.conf) beside the other, where there is one.
    type: str
  node:
    description:
      - Only this node, by its name in Slurm. Without it all nodes are checked.
    type: str
  gpus:
    description:
      - The record of the GPUs of O(node), on the target. A file that is not there is not used.
    type: str
  pipe_directory:
    description:
      - The pipe directory of the daemons.
    type: str
  multi_user:
    description:
      - Whether the daemons serve several users at once.
    type: bool
    default: false
  want:
    description:
      - How GPUs are to be shared. The lines of C(slurm.conf) for that are returned in RV(changes).
    type: str
    choices: [mps, shard, none]
  shares:
    description:
      - With O(want), the shares of each GPU. Without it 100 for C(mps) and 4 for C(shard).
    type: int
  shared_gpus:
    description:
      - With O(want), how many GPUs of each node are shared, by the node's name in Slurm. A node that is not named, or
        whose number is 0, shares those that its gres.conf names, else all.
    type: dict
    default: {}
  fail_on:
    description:
      - From which verdict on the task fails. A verdict of C(unknown) fails with V(critical) too.
    type: str
    choices: [critical, warning, never]
    default: critical
  timeout:
    description:
      - Seconds after which the program is stopped.
    type: float
    default: 60
seealso:
  - module: mpsfleet.mps.mps_node
"""

EXAMPLES = r"""
- name: Check what Slurm is told about this node
  mpsfleet.mps.slurm_lint:
    node: "{{ mps_slurm_node_name }}"
    gpus: /etc/mpsfleet/gpus.json
"""

RETURN = r"""
verdict:
  description: The worst finding, V(ok), V(warn), V(unknown) or V(critical).
  returned: when the files were read
  type: str
findings:
  description: What was found, the worst first.
  returned: when the files were read
  type: list
  elements: dict
  contains:
    code:
      description: The rule.
      type: str
    severity:
      description: V(ok) for a note, V(warn), V(unknown) or V(critical).
      type: str
    file:
      description: The file.
      type: str
    line:
      description: The line, null for the file as a whole.
      type: int
    nodes:
      description: The nodes it is about, as a list that Slurm reads.
      type: str
    message:
      description: What is wrong.
      type: str
    remedy:
      description: What to do.
      type: str
changes:
  description: Lines of slurm.conf as they are and as they would be; null without O(want).
  returned: when the files were read
  type: list
  elements: dict
order:
  description: The order of a roll-out that drains no node; empty where there is nothing to change.
  returned: when the files were read
  type: list
  elements: str
lines:
  description: All of it for a person.
  returned: when the files were read
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import program

RETURNED = ("verdict", "findings", "changes", "order", "lines")
FAILS = {"critical": ("critical", "unknown"), "warning": ("critical", "unknown", "warn"), "never": ()}


def words_for(parameters: dict, has_gpus: bool) -> tuple:
    """Return the program's words for the module's parameters."""
    words = ("slurm", "lint", "--json")
    for name in ("slurm_conf", "gres_conf", "node", "pipe_directory", "want"):
        if parameters[name]:
            words += ("--" + name.replace("_", "-") + "=" + parameters[name],)
    if has_gpus:
        words += ("--gpus-json=" + parameters["gpus"],)
    if parameters["multi_user"]:
        words += ("--multi-user",)
    for count in sorted(set(parameters["shared_gpus"].values())):
        if int(count):
            nodes = sorted(name for name, each in parameters["shared_gpus"].items() if each == count)
            words += ("--shared={0}:{1}".format(int(count), ",".join(nodes)),)
    if parameters["shares"]:
        words += ("--shares={0}".format(parameters["shares"]),)
    return words


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            slurm_conf={"type": "str"},
            gres_conf={"type": "str"},
            node={"type": "str"},
            gpus={"type": "str"},
            pipe_directory={"type": "str"},
            multi_user={"type": "bool", "default": False},
            want={"type": "str", "choices": ["mps", "shard", "none"]},
            shares={"type": "int"},
            shared_gpus={"type": "dict", "default": {}},
            fail_on={"type": "str", "choices": ["critical", "warning", "never"], "default": "critical"},
            timeout={"type": "float", "default": 60},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    if not all(str(each).isdigit() for each in module.params["shared_gpus"].values()):
        module.fail_json(msg="shared_gpus takes a number for each node, of the GPUs that are shared.")
    gpus = module.params["gpus"]
    has_gpus = bool(gpus) and os.path.exists((module.params["root"] or "") + gpus)
    try:
        words = words_for(module.params, has_gpus)
        answer = program.ask(module.params, words, "", module.params["timeout"], module.tmpdir)
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.fail_json(msg=str(error))
    result = {key: answer.values.get(key) for key in RETURNED}
    if result["verdict"] in FAILS[module.params["fail_on"]]:
        module.fail_json(msg="\n".join(result["lines"] or ()), changed=False, **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
