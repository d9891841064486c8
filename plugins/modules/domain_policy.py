#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_policy
short_description: Say how a domain may be moved
version_added: 0.1.0
description:
  - Reads, sets or removes the migration policy of a domain. It is kept in the metadata of the domain's XML, so it travels with the domain.
  - A move takes each value from its task, else from the domain's own policy, else from the profile that the domain names, else from the variable
    C(kvmfleet_migration_policy) of the host it leaves, else from the built-in defaults.
  - A V(false) for O(auto_converge) or O(post_copy), here or in the profile, forbids that feature whatever else says V(true), unless the task that
    moves the domain sets O(kvmfleet.migration.live_migrate#module:override_policy).
  - A running domain that is defined persistently has the policy twice, and both are written. A transient one has the running definition alone, one
    that is shut off the persistent one.
  - Without any field nothing is changed, and the policy is returned.
options:
  state:
    description:
      - With V(present) the fields that are given are set and the others stay.
      - With V(absent) the whole policy is removed, also what a newer version of the collection has written into it.
    type: str
    choices: [present, absent]
    default: present
  auto_converge:
    description:
      - Whether the guest's CPUs may be slowed down when it writes memory faster than it can be moved. V(false) forbids it for good.
      - Cannot be V(true) together with O(post_copy).
      - Without it what the profile or the host says holds, else V(false).
    type: bool
  post_copy:
    description:
      - Whether the guest may be switched over before all of its memory has arrived. V(false) forbids it for good.
      - A guest is lost when a host dies in that phase.
      - Without it what the profile or the host says holds, else V(false).
    type: bool
  timeout_seconds:
    description: Absolute limit of a move. V(0) is no limit. Without it that of the profile or the host, else 800 seconds for each GiB of memory.
    type: int
  on_timeout:
    description:
      - What happens at the limit. With V(abort) the guest goes on running on the source, with V(force_complete) the move is made to end.
      - Without it what the profile or the host says, else V(abort).
    type: str
    choices: [abort, force_complete]
  downtime_ms:
    description: Longest pause of the guest at the end of a move. Without it that of the profile or the host, else 500.
    type: int
  priority:
    description:
      - Domains with a higher number are moved first when a host is drained, and started first when it is evacuated, from V(-1000) to V(1000).
      - Without it that of the profile or the host, else 0.
    type: int
  drain:
    description:
      - What a drain does with the domain. With V(leave) it stays, and its host is not safe to reboot.
      - Without it what the profile or the host says, else V(migrate).
    type: str
    choices: [migrate, shutdown, leave]
  group:
    description: The group whose domains are to be kept together or apart.
    type: dict
    suboptions:
      name:
        description: Name of the group, the same in all its domains.
        type: str
        required: true
      policy:
        description: Together on one host or apart; the soft forms are wishes.
        type: str
        required: true
        choices: [affinity, anti-affinity, soft-affinity, soft-anti-affinity]
      max_per_host:
        description: How many domains of the group one host may have, for the two forms that keep apart. By default one.
        type: int
  labels:
    description:
      - Labels that a host must carry to take the domain.
      - Replaces the list that the domain has. An empty list overrides that of the profile.
    type: list
    elements: str
  profile:
    description:
      - Name of an entry of the inventory variable C(kvmfleet_profiles), which holds the same fields for all domains that name it.
      - It must be there, and may not say otherwise on O(auto_converge) or O(post_copy) than the domain itself.
    type: str
  unset:
    description: Fields to take out of the policy.
    type: list
    elements: str
    choices: [auto_converge, post_copy, timeout_seconds, on_timeout, downtime_ms, priority, drain, group, labels, profile]
    default: []
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._domain
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._internal
notes:
  - Needs no root, only a user who may connect to libvirt and change domains.
  - Nothing is written while the domain is being moved or has any other job (C(invalid_state)).
  - Wrong values that were written into the XML by hand are C(invalid_argument) here and for moves. Set or unset the field, or remove the policy.
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
  description: UUID and name.
  returned: success
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: db1}
policy:
  description: The domain's own values, those of the running domain where it runs.
  returned: success
  type: dict
  sample: {post_copy: false, timeout_seconds: 1800, priority: 100}
effective:
  description: What holds for a move whose task says nothing, each value with its source.
  returned: success
  type: dict
  sample: {post_copy: {value: false, source: domain}, downtime_ms: {value: 500, source: default}}
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: invalid_state
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.spec import domain_policy_spec


def main() -> None:
    """Run one phase; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec={**domain_policy_spec(), **internal_spec()}, supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
