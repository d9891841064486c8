#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuate_verify
short_description: State the result of an evacuation
version_added: 0.1.0
description:
  - Puts together what became of each domain that may have been on a dead host, from its plan and from the results of M(kvmfleet.migration.evacuate) on the
    survivors, and shows it. It asks no host. The task does not fail because of its findings.
  - A domain of the plan that no survivor reports as started or refused has failed with the survivor that was to start it.
  - P(kvmfleet.migration.evacuate_host#role) uses this module, with one task for all survivors.
options:
  plan:
    description: The plan, as M(kvmfleet.migration.evacuate_plan) returned it; if no plan was made, its assessment.
    type: dict
    required: true
  publish_as:
    description: Name of a custom statistic of the run that gets RV(result).
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
notes:
  - The role gives the results of the survivors to this module internally. Playbooks use the role.
seealso:
  - module: kvmfleet.migration.evacuate_plan
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Say which domains of a plan nobody has started
  kvmfleet.migration.evacuate_verify:
    plan: "{{ planned }}"
  run_once: true
  register: verified
"""

RETURN = r"""
result:
  description: The result of the evacuation, by dead host. P(kvmfleet.migration.evacuate_host#role) returns it as C(evacuate_host_result).
  returned: success
  type: dict
  sample: {kvm1: {evacuated: [], failed: [], not_selected: [], lost_until_return: [], unaccounted: [], evidence: []}}
problem:
  description: Which domains were not started, and why; empty if all were.
  returned: success
  type: str
  sample: ''
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import evacuate_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=evacuate_verify_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
