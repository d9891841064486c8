#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Gather what the collection needs to know of a libvirt host
version_added: 0.1.0
description:
  - Returns identity, capacity and every domain of a libvirt host as the fact C(kvmfleet_host). Changes nothing.
  - Domains are listed in any state, paused ones and those that are still being received included.
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
attributes:
  async:
    support: full
  diff_mode:
    support: none
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
notes:
  - Needs no root, only a user who may connect to libvirt.
  - With a remote O(uri) the facts are those of that host, and RV(ansible_facts.kvmfleet_host.host_id) and
    RV(ansible_facts.kvmfleet_host.machine_id) are null, for they are files. What only the host's own files tell of its traits is unverified then.
seealso:
  - module: kvmfleet.migration.host
  - module: kvmfleet.migration.domain_policy
  - plugin: kvmfleet.migration.plan_drain
    plugin_type: filter
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Gather the facts of all libvirt hosts
  hosts: kvmfleet_hosts
  gather_facts: false
  tasks:
    - name: Ask each host
      kvmfleet.migration.host_facts:

    - name: Show which domains run there
      ansible.builtin.debug:
        msg: "{{ ansible_facts.kvmfleet_host.domains | selectattr('active') | map(attribute='name') }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: success
  type: dict
  contains:
    kvmfleet_host:
      description: What is known of the host.
      type: dict
      contains:
        gathered_at:
          description: When, by the host's own clock.
          type: str
          sample: '2026-11-21T03:00:00.000Z'
        name:
          description: Always null here. The control node knows the host's inventory name.
          type: str
          sample: null
        host_uuid:
          description: Libvirt's UUID of the host.
          type: str
          sample: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01
        host_id:
          description: The collection's own ID of the host, from C(/var/lib/kvmfleet/host-id); null where it has none yet.
          type: str
          sample: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
        machine_id:
          description: The operating system's ID.
          type: str
          sample: 4c0f2f0a9d6e4b0c8a3d1e5f7a9b0c2d
        hostname:
          description: The host's own name.
          type: str
          sample: kvm1
        versions:
          description: Numbers of libvirt and of the hypervisor as libvirt counts, for example V(9000000) for 9.0.0.
          type: dict
          sample: {libvirt: 9000000, hypervisor: 7002022}
        memory:
          description: The host's memory in bytes. Free is what the kernel could give at once, caches not counted.
          type: dict
          sample: {total_bytes: 25281986560, free_bytes: 22548578304}
        cpus:
          description: Number of active CPUs.
          type: int
          sample: 8
        traits:
          description:
            - What the host can do for a move, found by probes. C(COMPUTE_MIGRATE_AUTO_CONVERGE) needs a QEMU that can; C(COMPUTE_MIGRATE_POST_COPY)
              also a userfaultfd that QEMU's user may use.
          type: list
          elements: str
          sample: [COMPUTE_MIGRATE_AUTO_CONVERGE, COMPUTE_MIGRATE_POST_COPY]
        unverified:
          description: Traits that could not be told, because the host was asked from afar or its files may not be read.
          type: list
          elements: str
          sample: []
        missing_traits:
          description: Traits that the host does not have, with the reason.
          type: dict
          sample: {}
        domains:
          description:
            - Every domain, by name.
            - C(policy) is what the domain itself says of its moves, and C(policy_problems) names what is wrong in it. C(request) is what it needs
              of a host, without what its profile may add.
          type: list
          elements: dict
          sample:
            - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
              name: web1
              state: running
              reason: booted
              active: true
              persistent: true
              autostart: false
              job: none
              memory_mib: 512
              vcpus: 1
              disks: [{target: vda, kind: file, source: /srv/images/web1.qcow2, readonly: false, shareable: false}]
              policy: {post_copy: false}
              policy_problems: {}
              request: {memory_mib: 512, vcpus: 1, traits: [], labels: [], group: null}
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: unreachable
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run


def host_facts(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Return the facts of the host."""
    host = open_host(check_uri(module.params["uri"], "uri"))
    try:
        facts, warnings = gather(host)
    finally:
        host.close()
    for warning in warnings:
        module.warn(warning)
    return {"changed": False, "ansible_facts": {"kvmfleet_host": facts}}


def main() -> None:
    """Gather the facts of one host."""
    run(AnsibleModule(argument_spec=libvirt_spec(), supports_check_mode=True), host_facts)


if __name__ == "__main__":
    main()
