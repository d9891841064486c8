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
  - Returns identity, hardware, capacity, surroundings and every domain of a libvirt host, with what each domain needs, as the fact
    C(kvmfleet_host). Changes nothing.
  - Domains are listed in any state, paused ones and those that are still being received included.
options:
  dirty_rate_seconds:
    description:
      - Measure for this many seconds, V(1) to V(60), how fast each running domain writes to its memory, all domains at once, and return it as
        C(dirty_rate_mib). V(0) measures nothing.
      - Domains with a job are never measured, a migration least of all, and a domain that cannot be measured is left null.
      - Libvirt samples pages for it, so that the figure counts pages that changed and not how often. While it measures, a guest is a little slower.
    type: int
    default: 0
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
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
  - Facts that a task with C(async) returned are of unknown age, for the control node's part does not see when they arrive.
  - Needs no root, only a user who may connect to libvirt.
  - With a remote O(uri) the facts are those of that host. What only the host itself can tell (its files, mounts, bridges and network interfaces) is
    null then, and RV(ansible_facts.kvmfleet_host.unverified) names it.
  - A domain whose definition cannot be read is listed all the same, with its size, and its request says under C(blockers) what is wrong; a warning names it.
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

- name: Measure how fast the guests write to their memory
  hosts: kvmfleet_hosts
  gather_facts: false
  tasks:
    - name: Ask each host, and measure for 2 seconds
      kvmfleet.migration.host_facts:
        dirty_rate_seconds: 2
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
          description: When, by the host's own clock. It is there to be read; no rule compares it with another clock.
          type: str
          sample: '2026-11-21T03:00:00.000Z'
        received:
          description:
            - When the control node received the facts, on a clock that nobody sets. C(boot_id) names the start of the control node from which C(seconds) count.
            - The age of facts is counted from here. Facts without it, or of another C(boot_id), are of unknown age. What needs fresh ones does not use them.
          returned: unless the task was run with C(async)
          type: dict
          sample: {boot_id: 3f0f8f8e-8f0c-4c1e-9d5e-0a6a3b7d1c11, seconds: 86400.5}
        name:
          description: Always null here. The control node knows the host's inventory name.
          type: str
          sample: null
        host_uuid:
          description: Libvirt's UUID of the host. Where the firmware has none, libvirt makes another one at each start of its daemon.
          type: str
          sample: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01
        host_id:
          description:
            - The collection's own ID of the host, from C(/var/lib/kvmfleet/host-id), by which hosts are told apart; null where it has none yet.
            - With a remote O(uri) it is read through libvirt's storage driver; null where that cannot read it.
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
        arch:
          description: Architecture of the host.
          type: str
          sample: x86_64
        cpu_ids:
          description: Numbers of the CPUs that are online.
          type: list
          elements: int
          sample: [0, 1, 2, 3, 4, 5, 6, 7]
        numa_cells:
          description: NUMA cells, with their CPUs and their huge pages. Pages of the normal size are not in C(pages).
          type: list
          elements: dict
          sample: [{id: 0, total_mib: 24110, free_mib: 21503, cpus: [0, 1, 2, 3, 4, 5, 6, 7], pages: [{size_kib: 2048, total: 512, free: 512}]}]
        platforms:
          description:
            - What kinds of guests can run here. C(cpu) is the most that such a guest can be given, with all features named; null for another
              architecture than the host's own.
          type: list
          elements: dict
          sample:
            - arch: x86_64
              virt_type: kvm
              emulator: /usr/bin/qemu-system-x86_64
              machines: [pc, pc-i440fx-7.2, pc-q35-7.2, q35]
              max_vcpus: 288
              cpu: {model: EPYC, vendor: AMD, features: [aes, avx, avx2], usable_models: [EPYC, qemu64]}
        host_cpu:
          description: The host's own CPU, which C(host-passthrough) hands on.
          type: dict
          sample: {model: EPYC, vendor: AMD, features: [aes, avx, avx2], microcode: 16777317}
        pools:
          description: Storage pools of libvirt.
          type: list
          elements: dict
          sample:
            - {name: default, type: dir, active: true, path: /var/lib/libvirt/images, capacity_bytes: 107374182400, available_bytes: 96636764160}
        mounts:
          description:
            - File systems. C(store) is the name that a file system of several hosts has on all of them, null for one of this host alone. Sizes are null
              where a server did not answer.
          type: list
          elements: dict
          sample:
            - {path: /srv/images, kind: nfs4, store: 'nfs4:nas:/export', capacity_bytes: 1099511627776, available_bytes: 549755813888}
        networks:
          description: Virtual networks of libvirt.
          type: list
          elements: dict
          sample: [{name: default, active: true, bridge: virbr0}]
        bridges:
          description: Network interfaces that a guest can be plugged into, Linux bridges and those of Open vSwitch.
          type: list
          elements: str
          sample: [br0, virbr0]
        interfaces:
          description: All network interfaces.
          type: list
          elements: str
          sample: [br0, eth0, lo, virbr0]
        net_devices:
          description:
            - Network interfaces by the names of libvirt's node devices, in which an underscore stands for every sign that is no letter or digit.
            - Told from afar, too, so that a bridge which is among them is known to be there. One that is not may be there all the same.
          type: list
          elements: str
          sample: [br0, eth0, lo, virbr0]
        devices:
          description: Devices of the host that could be handed to a guest.
          type: list
          elements: dict
          sample: [{kind: pci, address: '0000:06:12.0', vendor: '0x8086', product: '0x1520'}]
        traits:
          description:
            - What the host can do for a move, found by probes. C(COMPUTE_MIGRATE_AUTO_CONVERGE) needs a QEMU that can; C(COMPUTE_MIGRATE_POST_COPY)
              also a userfaultfd that QEMU's user may use.
          type: list
          elements: str
          sample: [COMPUTE_MIGRATE_AUTO_CONVERGE, COMPUTE_MIGRATE_POST_COPY]
        unverified:
          description:
            - Traits, and names of facts that are null, which could not be told, because the host was asked from afar or does not let this user
              read it.
          type: list
          elements: str
          sample: []
        missing_traits:
          description: Traits that the host does not have, with the reason.
          type: dict
          sample: {}
        remembered:
          description:
            - The last move of each domain that was begun here since the host's boot, and the last evacuation of each domain that was started or defined
              here, as this host remembers them, to be compared with the ledger.
            - Null where the user may not read it, or the host was reached through a remote URI.
          type: list
          elements: dict
          sample:
            - id: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
              generation: 7
              type: live-migration
              status: completed
              updated_at: '2026-11-21T03:00:00.000Z'
              domain: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
              source: {host: kvm1, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
              destination: {host: kvm2, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
              ledger_id: 7d0a1a0e-6d0b-4a55-8f3a-1f0e9d6c2b31
        domains:
          description:
            - Every domain, by name.
            - C(policy) is what the domain itself says of its moves, and C(policy_problems) names what is wrong in it. C(dirty_rate_mib) is null
              unless O(dirty_rate_seconds) asked for it.
            - C(request) is what it needs of a host, without what its profile may add. In it, C(cpu) is what an active guest really sees, but for
              what QEMU itself makes of several threads in a processor package (C(package_threads)); C(shows_threads) is whether that was among it, null
              where it is not known. C(blockers) are sentences on what libvirt or QEMU refuse to move, wherever to; C(shared) of a disk says
              whether other hosts see its bytes too, null where that is not proved, and C(store) is their name there. C(boot_files) are the files
              that QEMU reads when it starts the domain.
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
              request:
                memory_mib: 512
                vcpus: 1
                arch: x86_64
                virt_type: kvm
                machine: pc-q35-7.2
                hypervisor: 7002022
                cpu:
                  mode: custom
                  model: EPYC
                  features: {aes: require}
                  xml: "<cpu mode='custom' check='full'><model>EPYC</model></cpu>"
                  package_threads: 1
                  shows_threads: false
                pinning: {vcpus: {'0': [2, 3]}, emulator: [0, 1]}
                numa: {mode: strict, nodeset: [0], cells: []}
                hugepages: [{size_kib: 2048, mib: 512}]
                devices: []
                blockers: []
                disks:
                  - target: vda
                    device: disk
                    kind: file
                    source: /srv/images/web1.qcow2
                    format: qcow2
                    readonly: false
                    shareable: false
                    shared: true
                    store: 'nfs4:nas:/export/web1.qcow2'
                    optional: false
                    bytes: 2147483648
                    files:
                      - role: backing
                        kind: file
                        source: /srv/images/debian12.qcow2
                        shared: true
                        store: 'nfs4:nas:/export/debian12.qcow2'
                    files_problem: null
                networks: [{type: bridge, source: br0}]
                nvram: null
                loader: null
                boot_files: [{what: kernel, path: /srv/boot/vmlinuz}]
                tpm: false
                traits: []
                labels: []
                group: null
                priority: 0
                drain: migrate
              dirty_rate_mib: null
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: unreachable
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.facts_host import open_facts_host as open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import new_module, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._patience import patient
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable_text

MAX_DIRTY_RATE_SECONDS = 60


@patient
def host_facts(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Return the facts of the host. Raises L(InvalidArgument) for a measuring time that libvirt does not know."""
    seconds = module.params["dirty_rate_seconds"]
    if not 0 <= seconds <= MAX_DIRTY_RATE_SECONDS:
        raise InvalidArgument(f"dirty_rate_seconds is {seconds}.", f"Give 0 for no measuring, or 1 to {MAX_DIRTY_RATE_SECONDS}.")
    host = open_host(check_uri(module.params["uri"], "uri"))
    try:
        facts, warnings = gather(host, seconds)
    finally:
        host.close()
    for warning in warnings:
        module.warn(printable_text(warning))
    return {"changed": False, "ansible_facts": {"kvmfleet_host": facts}}


def main() -> None:
    """Gather the facts of one host."""
    spec = {**libvirt_spec(), "dirty_rate_seconds": {"type": "int", "default": 0}}
    run(new_module(AnsibleModule, argument_spec=spec, supports_check_mode=True), host_facts)


if __name__ == "__main__":
    main()
