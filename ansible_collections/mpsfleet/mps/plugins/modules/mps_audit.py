#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a GPU node how its MPS is. Reads only; translates C(mpsfleet node audit)."""

DOCUMENTATION = r"""
module: mps_audit
short_description: Audit NVIDIA MPS on a GPU node
version_added: 0.1.0
description:
  - Runs C(mpsfleet node audit) on the node and returns its report. Changes nothing.
  - The program is sent along where the node has none, or another version of it, so a node that was never
    deployed to can be audited too, also in check mode.
  - A sick node does not fail the task, nor does a node that could not be asked. M(mpsfleet.mps.mps_verdict) judges
    all nodes together.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
options:
  config:
    description:
      - The text of a C(node.toml) to judge the node against where it has no C(/etc/mpsfleet/node.toml) of its own.
    type: str
  timeout:
    description:
      - Seconds after which the audit is stopped. The program keeps limits of its own, which are far below.
    type: float
    default: 60
seealso:
  - module: mpsfleet.mps.mps_verdict
"""

EXAMPLES = r"""
- name: Ask each node
  mpsfleet.mps.mps_audit:
  become: true
  register: mps_audit_result
  ignore_unreachable: true
"""

RETURN = r"""
report:
  description: The node's report; null where it could not be asked.
  returned: always
  type: dict
  contains:
    schema:
      description: The version of the report's form.
      type: int
    verdict:
      description: V(ok), V(warn), V(unknown) or V(critical), the worst of the findings.
      type: str
    node:
      description: The node's own name in Slurm.
      type: str
    program:
      description: The version of the program that made the report.
      type: str
    findings:
      description: What was found, each with its code, severity, subject, message, origin, evidence and remedy.
      type: list
      elements: dict
error:
  description: Why there is no report, one sentence; null where there is one.
  returned: always
  type: str
config_source:
  description: What the node was judged against, its own C(node.toml) (V(node)) or the O(config) option (V(option)).
  returned: when the program ran
  type: str
sent:
  description: Whether the program was sent along, as the node has none or another version.
  returned: when the program ran
  type: bool
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import program

NODE_TOML = "/etc/mpsfleet/node.toml"


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            config={"type": "str"},
            timeout={"type": "float", "default": 60},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    config = module.params["config"]
    is_option = bool(config) and not os.path.lexists((module.params["root"] or "") + NODE_TOML)
    words = ("node", "audit", "--json") + (("--config", "-") if is_option else ())
    try:
        answer = program.ask(module.params, words, config if is_option else "", module.params["timeout"], module.tmpdir)
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.exit_json(changed=False, report=None, error=str(error))
    module.exit_json(
        changed=False,
        report=answer.values,
        error=None,
        config_source="option" if is_option else "node",
        sent=answer.sent,
    )


if __name__ == "__main__":
    main()
