#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_verify
short_description: Verify the result of a drain
version_added: 0.1.0
description:
  - Judges each move and each host of a plan by the facts that M(kvmfleet.migration.host_facts) gathered of sources and destinations after the moves, and by
    the ledger. It asks no host. The task does not fail because of its findings.
  - A move counts as done if its record says so and both hosts agree. A host is safe to reboot if no domain is active on it in any state, no definition left
    on it would start a domain that is active elsewhere, and no unsettled record names it.
  - P(kvmfleet.migration.drain_host#role) uses this module, with one task for all hosts of the play.
options:
  plan:
    description: The plan, as M(kvmfleet.migration.drain_plan) returned it.
    type: dict
    required: true
  only:
    description: Whether the plan was only made, and not carried out. In this case nothing is shown.
    type: bool
    default: false
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
seealso:
  - module: kvmfleet.migration.drain_plan
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Judge whether the hosts of a plan can be rebooted
  kvmfleet.migration.drain_verify:
    plan: "{{ planned.plan }}"
  run_once: true
  register: verified
"""

RETURN = r"""
result:
  description: The result of the plan, by host. P(kvmfleet.migration.drain_host#role) returns it as C(drain_host_result).
  returned: success
  type: dict
  sample: {kvm1: {moved: [], failed: [], skipped: [], safe_to_reboot: true, blockers: []}}
problems:
  description: The reasons why the drain has failed, by host. Hosts that are drained are not included.
  returned: success
  type: dict
  sample: {}
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: unreachable
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import drain_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=drain_verify_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
