#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recover_plan
short_description: Decide the next step of the recovery of a host
version_added: 0.1.0
description:
  - Makes the decisions of a recovery, from the facts that M(kvmfleet.migration.host_facts) gathered in this run, and from the ledger. It asks no host, and
    starts and moves nothing.
  - P(kvmfleet.migration.recover_host#role) uses this module, with one task for each decision. It gathers the facts of the whole fleet again before each of
    them.
options:
  step:
    description:
      - V(options) only checks O(start) and O(parallel), and needs neither facts nor a ledger.
      - V(check) fails for a host that the ledger does not know, or that was given up as discarded, and with C(unsafe) if a domain or an image of the host is
        in use twice. It also stores in the ledger which domains were displaced from the host, as M(kvmfleet.migration.displaced_domains) does.
      - V(start) decides which of the domains in O(to_start) may be started on the host, and finds those that ran before the host went down and stay off.
        If the ledger places one on no host, and another host may have it too, the ledger places it on this host.
      - V(bring_home) decides which of the domains in O(displaced) can move back to the host.
    type: str
    choices: [options, check, start, bring_home]
    required: true
  name:
    description: Name of the host in the ledger. The default is the host on which the task runs.
    type: str
  fleet:
    description: Inventory names of all hosts on which a domain of this host may run. A host without facts counts as one that did not answer.
    type: list
    elements: str
    required: true
  to_start:
    description: Domains that are to be started on the host again, as M(kvmfleet.migration.boot_guard) returns them.
    type: list
    elements: dict
    default: []
  start:
    description:
      - V(autostart) starts the domains in O(to_start), and lists in RV(stayed_off) other domains of the host that ran before it went down.
      - V(as_recorded) starts these, too, in the state that they had, if M(kvmfleet.migration.protect) has saved the host.
      - V(none) starts nothing.
      - V(true) is the same as V(autostart), V(false) the same as V(none).
    type: raw
    default: autostart
    version_added: 0.2.0
  accept_silent:
    description:
      - Names of hosts that do not answer and on which, as you confirm, no domain of this host runs. A host whose document in the ledger cannot be read is named
        by its ID.
    type: list
    elements: str
    default: []
  displaced:
    description: Domains that were displaced from the host, as RV(displaced) lists them.
    type: list
    elements: dict
    default: []
  options:
    description: Options of M(kvmfleet.migration.live_migrate) for every move back.
    type: dict
    default: {}
  parallel:
    description: The value of O(kvmfleet.migration.live_migrate#module:parallel) for the moves back. V(step=options) checks it.
    type: str
    default: auto
    version_added: 0.2.0
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
  - module: kvmfleet.migration.recover_verify
  - module: kvmfleet.migration.boot_guard
  - module: kvmfleet.migration.displaced_domains
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See which domains can move back to kvm1
  hosts: all
  gather_facts: false
  tasks:
    - name: Gather facts of all hosts
      kvmfleet.migration.host_facts:

    - name: Check the host
      kvmfleet.migration.recover_plan:
        step: check
        fleet: "{{ groups['all'] }}"
      register: checked
      when: inventory_hostname == 'kvm1'

    - name: Decide what can move back
      kvmfleet.migration.recover_plan:
        step: bring_home
        fleet: "{{ groups['all'] }}"
        displaced: "{{ checked.displaced }}"
      when: inventory_hostname == 'kvm1'
"""

RETURN = r"""
start_mode:
  description: The value of O(start) that was meant; V(autostart), V(as_recorded) or V(none).
  returned: success with O(step=options)
  type: str
  sample: autostart
displaced:
  description: Domains that belong on this host and are not on it, in the form of RV(kvmfleet.migration.displaced_domains#module:displaced).
  returned: success with O(step=check)
  type: list
  elements: dict
  sample: []
returned:
  description: Domains that are back, in the form of RV(displaced).
  returned: success with O(step=check)
  type: list
  elements: dict
  sample: []
is_protected:
  description: Whether M(kvmfleet.migration.protect) has saved the host before.
  returned: success with O(step=check)
  type: bool
  sample: true
start:
  description: Domains that may be started on the host; C(uuid), C(name), C(reason). C(paused) is true for one that is to be started paused.
  returned: success with O(step=start)
  type: list
  elements: dict
  sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, reason: It is to be started again (autostart).}]
forget:
  description:
    - Domains that are on another host now, or that somebody has started since and switched off again, in the form of RV(start). Their notes on the host can be
      removed.
    - With O(start=none), also domains that are active on the host.
  returned: success with O(step=start)
  type: list
  elements: dict
  sample: []
refuse:
  description: Domains that may be on another host, that an unsettled record names, or whose document cannot be read, in the form of RV(start).
  returned: success with O(step=start)
  type: list
  elements: dict
  sample: []
stayed_off:
  description:
    - Domains that ran on the host before it went down, according to the ledger, and that are off and not in RV(start) or RV(refuse). The form is that of
      RV(start); C(reason) states how to start the domain.
    - A domain that was stopped since the boot of the host is not listed.
  returned: success with O(step=start)
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12
      name: db1
      reason: >-
        It was running before the host went down (saved at 2026-11-21T03:00:00.000Z), and is off. To start it, recover kvm1 again with
        recover_host_start=as_recorded, or run kvmfleet.migration.domain_start there.
moves:
  description: Domains that can move back, with the host on which each of them is active.
  returned: success with O(step=bring_home)
  type: list
  elements: dict
  sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, source: kvm2}]
shares:
  description: The C(moves) for M(kvmfleet.migration.live_migrate) by source. Empty in check mode if the maintenance of the host has not ended yet.
  returned: success with O(step=bring_home)
  type: dict
  sample: {kvm2: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, destination: kvm1}]}
skipped:
  description: Domains that cannot move back; C(uuid), C(name), C(reason).
  returned: success with O(step=bring_home)
  type: list
  elements: dict
  sample: []
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_found
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import recover_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=recover_plan_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
