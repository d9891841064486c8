#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_plan
short_description: Plan a drain, or check a saved plan
version_added: 0.1.0
description:
  - Makes one plan for all hosts that are drained together, from the facts that M(kvmfleet.migration.host_facts) gathered in this run, and from the ledger. It
    asks no host. The plan is shown line by line.
  - With O(check_saved), it compares a saved plan with the current state of the hosts, and fails with C(conflict) if the plan no longer matches. All
    differences are listed.
  - P(kvmfleet.migration.drain_host#role) uses this module, with one task for all hosts of the play.
options:
  sources:
    description: Inventory names of the hosts to drain.
    type: list
    elements: str
    required: true
  candidates:
    description: Inventory names of the hosts that may accept domains.
    type: list
    elements: str
    required: true
  options:
    description: Options of M(kvmfleet.migration.live_migrate) for every move. With O(check_saved), options that differ from those of the plan are a difference.
    type: dict
    default: {}
  parallel:
    description:
      - Maximum number of moves of one source that run at the same time, or V(auto), see O(kvmfleet.migration.live_migrate#module:parallel).
      - With O(check_saved), the saved plan decides.
    type: str
    default: auto
  n_plus_one:
    description:
      - Whether to refuse a plan after which the candidates could not lose one more host.
      - A plan that would use up the reserve of C(kvmfleet_scheduler.failover_hosts) is refused in any case. The drained hosts are among the hosts that this
        reserve is for.
    type: bool
    default: false
  strategies:
    description:
      - What to do with domains whose policy says nothing about drains, and whose profile and host neither. The first strategy that is possible is used.
      - Each is V(migrate), V(save), V(shutdown) or V(leave), see O(kvmfleet.migration.domain_policy#module:drain). The default is V(migrate).
    type: list
    elements: str
  shut_off:
    description:
      - What to do with domains that are off. With V(leave), they stay; with V(move), their definitions move to other hosts.
      - With V(move), the definitions of domains that the drain shuts down move too. The default is V(leave).
    type: str
    choices: [leave, move]
  restart:
    description: Whether domains that are shut down are started on another host. The default is V(false).
    type: bool
  save_folder:
    description: Folder for the memory of domains with the strategy V(save), on storage that source and destination share.
    type: str
  check_saved:
    description: Whether to check the saved plan in O(file) or O(plan) instead of making a new one.
    type: bool
    default: false
  plan:
    description: A saved plan, as an object, as the text of its file, or as the line that P(kvmfleet.migration.drain_text#filter) returns.
    type: raw
  file:
    description:
      - File on the control node. A new plan is written to it as JSON, readable only by its owner.
      - With O(check_saved), the plan is read from it.
    type: str
  only:
    description: Whether the plan is only shown, and not carried out by this run. Mutually exclusive with O(check_saved).
    type: bool
    default: false
  publish_as:
    description: Name of a custom statistic of the run that gets the plan as one line of text.
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
  idempotent:
    support: none
    details: A new plan contains its time, so O(file) is written each time.
seealso:
  - module: kvmfleet.migration.drain_verify
  - plugin: kvmfleet.migration.plan_drain
    plugin_type: filter
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Plan the drain of kvm1
  hosts: all
  gather_facts: false
  tasks:
    - name: Gather facts of all hosts
      kvmfleet.migration.host_facts:

    - name: Show where its domains would go
      kvmfleet.migration.drain_plan:
        sources: [kvm1]
        candidates: "{{ groups['all'] | difference(['kvm1']) }}"
      run_once: true
"""

RETURN = r"""
plan:
  description: The plan, in the form that P(kvmfleet.migration.plan_drain#filter) describes.
  returned: success
  type: dict
  sample: {schema: 2, sources: [kvm1], moves: []}
shares:
  description: The part of the plan that each source carries out, by host.
  returned: success
  type: dict
  contains:
    cold_moves:
      description: The C(moves) for M(kvmfleet.migration.cold_migrate), including unsettled moves of an earlier run.
      type: list
      elements: dict
      sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, destination: kvm2, method: save, start: true}]
    moves:
      description: The C(moves) for M(kvmfleet.migration.live_migrate), including unsettled moves of an earlier run.
      type: list
      elements: dict
      sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, destination: kvm2}]
    shutdowns:
      description: UUIDs of the domains to shut down. If no host is found for a domain, no domain of its host is shut down.
      type: list
      elements: str
      sample: []
    ends:
      description: Hosts that are asked afterwards where the domains are. The first source asks the destinations.
      type: list
      elements: str
      sample: [kvm1, kvm2]
  sample: {kvm1: {moves: [], shutdowns: [], ends: [kvm1]}}
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import drain_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=drain_plan_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
