#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_policy
short_description: Manage the migration policy of a domain
version_added: 0.1.0
description:
  - Reads, sets or removes the migration policy of a domain. The policy is stored in the metadata of the domain's XML, so it travels with the domain.
  - A move takes each value from the first of these that sets it, in this order. They are its task, the domain's own policy, the profile that the policy
    names, the variable C(kvmfleet_migration_policy) of the source host, and the built-in defaults.
  - V(false) for O(auto_converge) or O(post_copy), in the policy or in the profile, forbids that feature even if another source sets V(true), unless the task
    that moves the domain sets O(kvmfleet.migration.live_migrate#module:override_policy).
  - A move uses only one of the two features. If two sources request one each, the earlier one in this order counts, and the other feature is V(false).
  - A running domain that is defined persistently has the policy twice, and both are written. A transient domain has only the running definition, a domain
    that is shut off only the persistent one.
  - Without any field nothing is changed, and the policy is returned.
options:
  state:
    description:
      - With V(present), the given fields are set and the others are kept.
      - With V(absent), the whole policy is removed, including fields that a newer version of the collection has written.
    type: str
    choices: [present, absent]
    default: present
  auto_converge:
    description:
      - Whether the CPUs of the guest may be slowed down if it writes memory faster than the memory can be sent. V(false) forbids this permanently.
      - Cannot be V(true) together with O(post_copy).
      - The default is the value of the profile or the host, or V(false) without one.
    type: bool
  post_copy:
    description:
      - Whether the guest may switch over before all of its memory has arrived. V(false) forbids this permanently.
      - If a host dies in that phase, the memory of the guest is lost.
      - The default is the value of the profile or the host, or V(false) without one.
    type: bool
    aliases: [postcopy]
  timeout_seconds:
    description:
      - Absolute time limit of a move. V(0) means no limit.
      - The default is the value of the profile or the host, or 800 seconds for each GiB of memory, or C(timeout_seconds_per_gib) of the host instead of 800.
    type: int
    aliases: [timeout]
  on_timeout:
    description:
      - Action at the time limit. With V(abort), the guest continues to run on the source; with V(force_complete), the move is made to finish.
      - The default is the value of the profile or the host, or V(abort) without one.
    type: str
    choices: [abort, force_complete]
  downtime_ms:
    description:
      - Longest downtime of the guest at the end of a move in milliseconds, unless the move is forced.
      - The default is the value of the profile or the host, or 500 without one.
    type: int
    aliases: [downtime]
  force_pause_max_seconds:
    description:
      - Longest pause of the guest if a move is forced to finish. A pause that lasts longer than this and longer than three times its prediction is ended, and
        the guest continues to run on the source.
      - The default is the value of the profile or the host, or 30 without one.
    type: int
  priority:
    description:
      - Domains with a higher number are moved first when a host is drained, and started first when it is evacuated, from V(-1000) to V(1000).
      - The default is the value of the profile or the host, or 0 without one.
    type: int
  drain:
    description:
      - What a drain does with the domain. A list gives strategies in the order of preference, and the drain takes the first one that is possible.
      - With V(migrate), the domain is moved live. With V(save), its memory is saved in the folder that the drain names, and restored on another host.
      - With V(shutdown), the guest is asked to shut down. By an option of the drain, it is started on another host.
      - With V(leave), the domain stays, and its host is not safe to reboot. Nothing can follow V(leave) in a list.
      - The default is the value of the profile or the host, or that of the drain, or V(migrate) without one.
    type: list
    elements: str
    choices: [migrate, save, shutdown, leave]
  group:
    description: A group of domains that are kept together or apart.
    type: dict
    suboptions:
      name:
        description: Name of the group, the same in all of its domains.
        type: str
        required: true
      policy:
        description: Whether the domains are kept together on one host or apart; the soft forms are preferences.
        type: str
        required: true
        choices: [affinity, anti-affinity, soft-affinity, soft-anti-affinity]
      max_per_host:
        description: Number of domains of the group that one host may have, for the two forms that keep them apart. The default is one.
          With C(anti-affinity), the smallest number that a member on the host has counts.
        type: int
  labels:
    description:
      - Labels that a host must have to accept the domain.
      - Replaces the list in the policy. An empty list overrides that of the profile.
    type: list
    elements: str
  profile:
    description:
      - Name of an entry of the inventory variable C(kvmfleet_profiles), which has the same fields for all domains that name it.
      - The entry must exist, and must not contradict O(auto_converge) or O(post_copy) of the domain itself.
    type: str
  unset:
    description: Fields to remove from the policy.
    type: list
    elements: str
    choices: [auto_converge, post_copy, timeout_seconds, on_timeout, downtime_ms, force_pause_max_seconds, priority, drain, group, labels, profile]
    default: []
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._domain
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._internal
notes:
  - Does not require root, only a user who may connect to libvirt and change domains.
  - Nothing is written while the domain is being moved or has any other job (C(invalid_state)).
  - Invalid values that were written into the XML by hand are C(invalid_argument) for this module and for moves. Set or unset the field, or remove the policy.
seealso:
  - module: kvmfleet.migration.live_migrate
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Never let this database run before all of its memory has arrived
  kvmfleet.migration.domain_policy:
    name: db1
    post_copy: false
    timeout_seconds: 1800
    priority: 100

- name: Keep the web servers on different hosts
  kvmfleet.migration.domain_policy:
    name: "{{ item }}"
    group:
      name: web
      policy: anti-affinity
  loop: [web1, web2]

- name: Move this guest live if that is possible, and else shut it down
  kvmfleet.migration.domain_policy:
    name: batch1
    drain: [migrate, shutdown]

- name: Read what holds for a domain, and where each value comes from
  kvmfleet.migration.domain_policy:
    name: db1
  register: db1

- name: Leave the limit to the host's default again
  kvmfleet.migration.domain_policy:
    name: db1
    unset: [timeout_seconds]

- name: Remove the policy
  kvmfleet.migration.domain_policy:
    name: db1
    state: absent
"""

RETURN = r"""
domain:
  description: UUID and name of the domain.
  returned: success
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: db1}
policy:
  description: The domain's own values; for a running domain, those of the running definition.
  returned: success
  type: dict
  sample: {post_copy: false, timeout_seconds: 1800, priority: 100}
effective:
  description: The values that apply to a move whose task sets none, each with its source.
  returned: success
  type: dict
  sample: {post_copy: {value: false, source: domain}, downtime_ms: {value: 500, source: default}}
lines:
  description: The effective values for people, each with its source. Fields without a value are omitted.
  returned: success
  type: list
  elements: str
  sample: ['The next move of db1 takes:', 'downtime_ms: 500 (default)', 'post_copy: false (domain)']
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_state
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import domain_policy_spec, internal_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.policy import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec={**domain_policy_spec(), **internal_spec()}, supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
