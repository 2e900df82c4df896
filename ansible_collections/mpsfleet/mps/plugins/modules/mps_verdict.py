#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge the audits of all nodes together. Translates C(mpsfleet slurm verdict)."""

DOCUMENTATION = r"""
module: mps_verdict
short_description: Judge the audits of all nodes, tell Slurm, and fail where a node is not well
version_added: 0.1.0
description:
  - Takes what M(mpsfleet.mps.mps_audit) registered for every host of the play, also for hosts that were unreachable,
    and gives it to C(mpsfleet slurm verdict) on the controller, which compares it with Slurm and, where
    O(trigger_drain) says so, drains the nodes on which jobs would fail.
  - Prints one line for each group of hosts with the same finding, and fails where a host is critical or unknown.
  - Use it with C(run_once) and C(delegate_to) as in the example. The audits are judged also where the inventory has no
    group C(slurm_master) or the controller cannot be reached; then nothing is drained and the task fails.
  - A host's name in Slurm is its variable C(mps_slurm_node_name), or else its inventory name up to the first dot.
  - Where C(mps_enabled) is false for any of the hosts, nothing is drained.
author:
  - mpsfleet authors (!UNKNOWN)
extends_documentation_fragment:
  - mpsfleet.mps.program
options:
  audit_result:
    description:
      - The name under which the audits were registered. Such a result may also hold C(problem), a sentence on what was
        asked for and not done on the host; then the task fails and tells it.
    type: str
    default: mps_audit_result
  trigger_drain:
    description:
      - Whether to drain the nodes on which jobs would fail. V(true), V(yes), V(1), V(false), V(no), V(0), or the
        empty string, as strings or otherwise; all else is an error.
    type: raw
    default: false
  cluster:
    description:
      - The cluster's name. It is compared with Slurm's own before anything is written.
    type: str
  max_drained:
    description:
      - The budget of drains, a number of nodes or a percentage (V(10), V(25%)) of the cluster's nodes with GPUs. Where
        so many are drained by mpsfleet, no further one is, and the lines say so. Recovery is not bound by it.
      - By default V(25%), and at least 3 nodes.
    type: str
  max_drained_partition:
    description:
      - The same for each partition. By default V(50%), and at least 3 nodes.
    type: str
  max_drained_hour:
    description:
      - How many of the cluster's nodes with GPUs may be drained within an hour. By default V(25%), and at least 3.
    type: str
  trigger_undrain:
    description:
      - Whether to give back the nodes that mpsfleet drained for a finding, that are free, and that were found well
        O(undrain_after) times in a row. As O(trigger_drain).
    type: raw
    default: false
  drain_after:
    description:
      - How many audits in a row must find a node failing before it is drained. By default one, and two for what one
        look can see wrongly.
    type: str
  undrain_after:
    description:
      - How many audits in a row must find a node well before it is given back. By default 2.
    type: str
  strikes:
    description:
      - With its so-manieth drain in a week a node is left to a person, with the reason V(flapping). V(0) is never. By
        default 3.
    type: str
  ledger:
    description:
      - The controller's directory where it is kept what was drained, when and why. By default C(mpsfleet) in
        slurmctld's C(StateSaveLocation), or else V(/var/lib/mpsfleet).
    type: str
  reports:
    description:
      - The reports as JSON. Set by the action plugin; leave it out.
    type: str
  timeout:
    description:
      - Seconds after which the program is stopped.
    type: float
    default: 120
notes:
  - The strategies P(ansible.builtin.free#strategy) and P(ansible.builtin.host_pinned#strategy) do not honour
    C(run_once), so the task refuses to run under them.
seealso:
  - module: mpsfleet.mps.mps_audit
"""

EXAMPLES = r"""
- name: Audit MPS
  hosts: gpu_nodes
  gather_facts: false
  become: true
  tasks:
    - name: Ask each node
      mpsfleet.mps.mps_audit:
      register: mps_audit_result
      ignore_unreachable: true

    - name: Judge the fleet
      mpsfleet.mps.mps_verdict:
        trigger_drain: "{{ trigger_drain | default(false) }}"
      run_once: true
      delegate_to: "{{ (groups['slurm_master'] | default([], true) + ['localhost']) | first }}"
"""

RETURN = r"""
verdict:
  description: The worst verdict of all hosts and of Slurm, V(ok), V(warn), V(unknown) or V(critical).
  returned: always
  type: str
counts:
  description: How many hosts have which verdict.
  returned: always
  type: dict
hosts:
  description: The hosts that are not V(ok), and those with a problem.
  returned: always
  type: list
  elements: dict
  contains:
    host:
      description: The host's name in the inventory.
      type: str
    node:
      description: The host's name in Slurm.
      type: str
    verdict:
      description: The host's verdict.
      type: str
    message:
      description: Why, in one sentence.
      type: str
    state:
      description: The node's state in Slurm, null where Slurm was not asked.
      type: str
    reason:
      description: The reason that Slurm has for the state.
      type: str
    problem:
      description: What was asked for and not done on the host, from the registered C(problem); null for nothing.
      type: str
    decision:
      description: What was decided for the node in Slurm, with the reason, why, and whether it was done.
      type: dict
slurm:
  description: Whether Slurm was asked, its cluster, and the error where it could not be asked.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.mpsfleet.mps.plugins.module_utils import program

POLICY = (
    "max_drained",
    "max_drained_partition",
    "max_drained_hour",
    "drain_after",
    "undrain_after",
    "strikes",
    "ledger",
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            program.ARGUMENTS,
            audit_result={"type": "str", "default": "mps_audit_result"},
            trigger_drain={"type": "raw", "default": False},
            cluster={"type": "str"},
            trigger_undrain={"type": "raw", "default": False},
            **{name: {"type": "str"} for name in POLICY},
            reports={"type": "str"},
            timeout={"type": "float", "default": 120},
        ),
        supports_check_mode=True,
        no_log=True,
    )
    words = ("slurm", "verdict", "--reports", "-", "--json")
    for name in ("trigger_drain", "trigger_undrain"):
        if module.params[name] is True:
            words += (f"--{name.replace('_', '-')}",)
    for name in ("cluster", *POLICY):
        if module.params[name]:
            words += (f"--{name.replace('_', '-')}", module.params[name])
    if module.check_mode:
        words += ("--dry-run",)
    reports = module.params["reports"]
    if not reports:
        module.fail_json(msg="reports is missing: this module is to be called through its action plugin.")
    try:
        answer = program.ask(module.params, words, reports, module.params["timeout"], module.tmpdir)
    except program.ProgramMissing:
        module.exit_json(changed=False, program_missing=True)
    except program.ProgramError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(answer.values.get("changed")), answer=answer.values)


if __name__ == "__main__":
    main()
