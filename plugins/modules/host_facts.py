#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Gather facts of a libvirt host
version_added: 0.1.0
description:
  - Returns identity, hardware, capacity, storage, networks and every domain of a libvirt host, with the requirements of each domain, as the fact
    C(kvmfleet_host). Changes nothing, except that O(load_seconds) stores readings of counters in C(/run/kvmfleet).
  - Domains are listed in any state, including paused and incoming ones.
options:
  dirty_rate_seconds:
    description:
      - Measure for this number of seconds, V(1) to V(60), how fast each running domain writes to its memory, all domains at once, and return it as
        C(dirty_rate_mib). V(0) measures nothing.
      - The other facts are gathered at the same time.
      - A domain with a job, such as a migration, is never measured. The value is null for a domain that cannot be measured.
      - The rate of a domain whose virtual processors hardly run is 0, without waiting for its measurement.
      - libvirt samples pages for this, so the figure counts pages that changed and not how often. During the measurement, a guest is slightly slower.
    type: int
    default: 0
  link_to:
    description:
      - Hosts to which the rate of the link is probed, as names of the inventory or as libvirt URIs. The rates are in C(links). Only the first 3 are probed.
      - A query of libvirt that changes nothing is padded to at most 3.75 MiB and sent a few times, 12.75 MiB in total, over the connection that libvirt on
        this host opens to the other one. A host that does not answer within 4 seconds is omitted; all together take at most 6.
      - Over SSH, the encryption can be slower than the link.
      - A host to which memory is sent over another network is not probed, that is one whose C(kvmfleet_migration_address) is not the address of its libvirt.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  load_seconds:
    description:
      - Return the load of the host and of each active domain, as the mean over about this number of seconds, up to V(86400). V(0) returns no load.
      - Each task with this option stores a reading of all counters on the host, in C(/run/kvmfleet/load). The mean is that since the stored reading whose age
        is closest to this time, and at least 5 seconds; C(load.interval_seconds) is its age. At most 32 readings are stored, at intervals of at least 30
        seconds.
      - The first task after a boot of the host has no reading to compare with. It returns only what the kernel itself averages over 300 seconds, which is the
        pressure.
      - In check mode, and for a user other than root, nothing is stored.
      - libvirt asks the QEMU of every active domain for this. If one of them hangs, the task takes up to 5 seconds longer.
    type: int
    default: 0
    version_added: 0.2.0
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
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
  - Facts that a task with C(async) returned are of unknown age, because the part on the control node does not see when they arrive.
  - Requires no right to act. A user without root, and without the right to use libvirt's read-write connection, gets the facts over libvirt's read-only
    connection. What libvirt withholds there, and what only root can read on the host, is in RV(ansible_facts.kvmfleet_host.unverified), and
    RV(ansible_facts.kvmfleet_host.unverified_reasons) states the reason.
  - With a remote O(uri), the facts are those of that host. Facts that only the host itself can determine (its files, mounts, bridges and network interfaces)
    are then null, and RV(ansible_facts.kvmfleet_host.unverified) names them.
  - A domain whose definition cannot be read is still listed, with its size, and its request states the problem in C(blockers); a warning names it.
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

- name: Report the mean load of the last hour, as far as readings are stored
  hosts: kvmfleet_hosts
  gather_facts: false
  tasks:
    - name: Ask each host
      kvmfleet.migration.host_facts:
        load_seconds: 3600

- name: Measure how fast the guests write to their memory, and the link to two other hosts
  hosts: kvm1
  gather_facts: false
  tasks:
    - name: Ask the host, and measure for 2 seconds
      kvmfleet.migration.host_facts:
        dirty_rate_seconds: 2
        link_to: [kvm2, kvm3]
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: success
  type: dict
  contains:
    kvmfleet_host:
      description: The facts of the host.
      type: dict
      contains:
        gathered_at:
          description: When the facts were gathered, by the clock of the host. For information only; no rule compares it with another clock.
          type: str
          sample: '2026-11-21T03:00:00.000Z'
        received:
          description:
            - When the control node received the facts, on a monotonic clock. C(boot_id) identifies the boot of the control node from which C(seconds) count.
            - The age of facts is counted from here. Facts without it, or with another C(boot_id), are of unknown age. Operations that need fresh facts do not
              use them.
          returned: unless the task was run with C(async)
          type: dict
          sample: {boot_id: 3f0f8f8e-8f0c-4c1e-9d5e-0a6a3b7d1c11, seconds: 86400.5}
        name:
          description: Always null. The control node knows the inventory name of the host.
          type: str
          sample: null
        host_uuid:
          description: libvirt's UUID of the host. If the firmware has none, libvirt creates a new one at each start of its daemon.
          type: str
          sample: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01
        host_id:
          description:
            - The collection's own ID of the host, from C(/var/lib/kvmfleet/host-id), which identifies the host; null if it has none yet.
            - With a remote O(uri), it is read through libvirt's storage driver; null if the driver cannot read it.
          type: str
          sample: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
        machine_id:
          description: ID of the operating system.
          type: str
          sample: 4c0f2f0a9d6e4b0c8a3d1e5f7a9b0c2d
        boot_id:
          description: ID of the present boot of the host, by the kernel; null with a remote O(uri).
          type: str
          sample: 0b9c4a31-7d52-4f6e-8a0b-2c1d9e5f7a43
        ledger_id:
          description: ID of the ledger under which the host was protected; null if it never was, or with a remote O(uri).
          type: str
          sample: 7d0a1a0e-6d0b-4a55-8f3a-1f0e9d6c2b31
        hostname:
          description: Host name of the host.
          type: str
          sample: kvm1
        versions:
          description: Versions of libvirt and of the hypervisor as numbers of libvirt, for example V(9000000) for 9.0.0.
          type: dict
          sample: {libvirt: 9000000, hypervisor: 7002022}
        memory:
          description: Memory of the host in bytes. Free memory does not include caches.
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
            - The kinds of guests that can run on the host. C(cpu) is the best CPU that such a guest can get, with all features named; null for an
              architecture other than that of the host. Its C(description) is libvirt's XML of it.
            - C(firmware) is what such a guest can boot with, null for another architecture. C(loaders) are the firmware images that libvirt knows, and
              C(secure_boot) states whether one of them enforces secure boot. C(tpm_backends) has C(emulator) if the programs of an emulated TPM (swtpm) are
              installed; C(tpm_models) and C(tpm_versions) are those of TPMs that a guest can have. All three are missing where libvirt does not report TPMs.
          type: list
          elements: dict
          sample:
            - arch: x86_64
              virt_type: kvm
              emulator: /usr/bin/qemu-system-x86_64
              machines: [pc, pc-i440fx-7.2, pc-q35-7.2, q35]
              max_vcpus: 288
              cpu:
                model: EPYC
                vendor: AMD
                features: [aes, avx, avx2]
                usable_models: [EPYC, qemu64]
                description: <cpu><model fallback="forbid">EPYC</model><vendor>AMD</vendor></cpu>
              firmware:
                loaders: [/usr/share/OVMF/OVMF_CODE_4M.ms.fd, /usr/share/OVMF/OVMF_CODE_4M.fd]
                secure_boot: true
                tpm_backends: [passthrough, emulator]
                tpm_models: [tpm-tis, tpm-crb]
                tpm_versions: ['2.0']
        host_cpu:
          description: The CPU of the host, which C(host-passthrough) passes to guests.
          type: dict
          sample: {model: EPYC, vendor: AMD, features: [aes, avx, avx2], microcode: 16777317}
        pools:
          description: Storage pools of libvirt. C(volumes) has the paths of the volumes of an active pool of the type iscsi, scsi or mpath, by their names.
          type: list
          elements: dict
          sample:
            - {name: default, type: dir, active: true, path: /var/lib/libvirt/images, capacity_bytes: 107374182400, available_bytes: 96636764160}
        mounts:
          description:
            - File systems. C(store) is the name that a shared file system has on all hosts, null for a local one, and for one that the host serves to itself.
              Sizes are null if a server did not answer (then C(silent) is true), if this user may not enter the file system, or where one is mounted on demand
              (V(autofs)).
          type: list
          elements: dict
          sample:
            - {path: /srv/images, kind: nfs4, store: 'nfs4:nas:/export', capacity_bytes: 1099511627776, available_bytes: 549755813888}
        networks:
          description:
            - Virtual networks of libvirt, with the names of their port groups. C(default_portgroup) is the one of interfaces that name none, null if there is
              none. C(forward) is how a network connects guests with others, null for one that is isolated. C(vlan) has the VLAN tags of the network, null if
              it has none, and C(portgroup_vlans) those of its port groups that have tags of their own.
          type: list
          elements: dict
          sample: [{name: default, active: true, bridge: virbr0, portgroups: [], forward: nat, default_portgroup: null, vlan: null, portgroup_vlans: {}}]
        bridges:
          description: Network interfaces to which a guest can be connected, that is Linux bridges and those of Open vSwitch, by all of their names.
          type: list
          elements: str
          sample: [br0, virbr0]
        interfaces:
          description: All network interfaces, by all of their names.
          type: list
          elements: str
          sample: [br0, eth0, lo, virbr0]
        interface_details:
          description:
            - The network interfaces except those of guests. C(kind) is the kernel's word, empty for a plain interface; C(mtu) is in bytes. C(vlan) is the ID
              of a VLAN, and C(lower) the interface that it is on. C(controller) is the bridge or bond that the interface is a port of.
            - The VLANs that a bridge itself filters are not included.
          type: list
          elements: dict
          sample:
            - {name: br0, kind: bridge, mtu: 1500, vlan: null, lower: null, controller: null}
            - {name: eth0.20, kind: vlan, mtu: 1500, vlan: 20, lower: eth0, controller: br0}
        firmware_files:
          description:
            - The folders in which packages install the firmware of guests, and the folders below them, each with the names of its firmware images and templates
              of firmware variables. A folder that does not exist is empty.
            - Null if the host was reached through a remote URI.
          type: dict
          sample: {/usr/share/OVMF: [OVMF_CODE_4M.fd, OVMF_VARS_4M.fd], /usr/share/edk2: []}
        network_filters:
          description: The names of libvirt's network filters. Null if this libvirt has no driver for them.
          type: list
          elements: str
          sample: [clean-traffic, no-mac-spoofing]
        secrets:
          description:
            - The names of libvirt's secrets, that is the UUID of each, and its kind with its usage. Values of secrets are not read. Null if this libvirt has no
              driver for them.
          type: list
          elements: str
          sample: [0e1b6d5c-2f0a-4d3e-9d47-5f2f0c6d0a11, ceph client.libvirt]
        net_devices:
          description:
            - Network interfaces by the names of libvirt's node devices, in which an underscore replaces every character that is not a letter or digit.
            - These are available with a remote O(uri), too. A bridge that is among them is known to exist; one that is not may exist as well.
          type: list
          elements: str
          sample: [br0, eth0, lo, virbr0]
        devices:
          description: Devices of the host that can be assigned to a guest.
          type: list
          elements: dict
          sample: [{kind: pci, address: '0000:06:12.0', vendor: '0x8086', product: '0x1520'}]
        traits:
          description:
            - Capabilities of the host for moves, found by probes. C(COMPUTE_MIGRATE_AUTO_CONVERGE) requires a QEMU that supports it;
              C(COMPUTE_MIGRATE_POST_COPY) also requires a userfaultfd that QEMU's user may use.
          type: list
          elements: str
          sample: [COMPUTE_MIGRATE_AUTO_CONVERGE, COMPUTE_MIGRATE_POST_COPY]
        unverified:
          description:
            - Traits, and names of facts that are null, which could not be determined, because the host was queried remotely or does not let this user read
              them.
            - If the task does not run as root, the list also has parts of facts (V(platforms.cpu), V(mounts.capacity_bytes), V(domains.request.disks),
              V(domains.dirty_rate_mib)), V(cpu_comparison), which is libvirt's comparison of the CPU of a domain with the host, and V(paths), which is
              whether files exist on the host.
          type: list
          elements: str
          sample: []
        unverified_reasons:
          description: Why each entry of C(unverified) could not be determined.
          returned: if the task does not run as root
          type: dict
          sample: {remembered: "only root can read it on the host (/run/kvmfleet, /var/lib/kvmfleet/evacuations)"}
        missing_traits:
          description: Traits that the host does not have, with the reason.
          type: dict
          sample: {}
        remembered:
          description:
            - The last move of each domain that was started on this host since its boot, and the last evacuation of each domain that was started or defined on
              it, as the host remembers them. They are compared with the ledger.
            - Null if the user may not read them, or the host was reached through a remote URI.
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
        dirty_rate_seconds:
          description: For how long the dirty rates of the domains were measured.
          returned: if O(dirty_rate_seconds) is set
          type: int
          sample: 2
        links:
          description: Rate of the link to the hosts of O(link_to) in MiB/s, by their names as given. A host that could not be probed is missing.
          returned: if O(link_to) is set
          type: dict
          sample: {kvm2: 1103.5}
        load:
          description:
            - The load of the host. Null with a remote O(uri).
            - C(cpu_pressure), C(memory_pressure) and C(io_pressure) are the shares of time, 0 to 1, in which some task on the host waited for the resource.
              C(cpu_used_share) is the share of CPU time in use, and C(cpu_steal_share) the share that a hypervisor below the host gave to others.
            - C(memory_used_mib) is memory that is not available, and C(ksm_saved_mib) what the kernel saves because guests share equal pages. The bytes per
              second are those of physical network interfaces and disks, in both directions.
            - C(interval_seconds) is the length of the interval; 300 if there was no earlier reading to compare with.
            - C(unknown) states why a value is null, and RV(ansible_facts.kvmfleet_host.unverified) names those that a later task cannot determine either. A
              host whose kernel has no pressure stall information has no pressures; its CPU time remains.
          returned: if O(load_seconds) is not 0
          type: dict
          sample:
            cpu_pressure: 0.1312
            memory_pressure: 0.0
            io_pressure: 0.0041
            cpu_used_share: 0.6121
            memory_used_mib: 18211
            interval_seconds: 301.4
            cpu_steal_share: 0.0
            ksm_saved_mib: 0
            network_bytes_per_second: 1204311.25
            disk_bytes_per_second: 88211.0
            unknown: {}
        domains:
          description:
            - Every domain, by name.
            - C(load) is the load of an active domain over the interval of its host, missing if O(load_seconds) is 0. C(cpu_cores_used) is how many CPUs of the
              host it keeps busy, and C(cpu_cores_waiting) how many of its virtual CPUs wait for one, which the guest sees as steal. C(memory_used_mib) is
              memory of the host that it holds. C(available_in_guest_mib) is the memory that the guest itself could still use, if its definition sets a period
              for statistics of the balloon and the guest has reported within three periods. The pressures are those of its control group of version 2.
              C(unknown) states why a value is null, unless C(load.unknown) of the host does.
            - C(used_mib) is how many MiB of its memory an active domain has written since its start, which is what a migration sends. It is null if the user
              is not root, and missing for a domain that is not active and with a remote O(uri).
            - C(managed_save) states whether it has a managed-save image, from which its next start restores its memory.
            - C(policy) is the domain's own policy, and C(policy_problems) names its errors. C(dirty_rate_mib) is null unless O(dirty_rate_seconds) is set.
            - C(request) has the requirements of the domain, without additions from its profile. In it, C(cpu) is the CPU that an active guest really sees,
              except for what QEMU itself derives from several threads in a processor package (C(package_threads)); C(shows_threads) states whether this was
              included, null if it is not known. C(blockers) are sentences about features that libvirt or QEMU cannot move to any host. C(shared) of a disk
              states whether other hosts see its data too, null if this is not proved, and C(store) is the name of the disk there. C(boot_files) are the files
              that QEMU reads when it starts the domain.
            - In C(request), C(nvram) is the file of the firmware variables, and C(nvram_template) the file from which a host creates it. C(secure_boot) states
              whether the definition demands firmware that enforces secure boot, and C(tpm) whether the domain has an emulated TPM, with its C(tpm_model) and
              C(tpm_version). C(tpm_persistent) states whether the definition has libvirt keep the state of that TPM (C(persistent_state)). C(secrets) are the
              libvirt secrets that open its disks, its devices and the state of its TPM.
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
              managed_save: false
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
                pinning: {vcpus: {'0': [2, 3]}, emulator: [0, 1], iothreads: {'1': [1]}}
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
                secrets: []
                nvram: null
                nvram_template: null
                loader: null
                secure_boot: false
                boot_files: [{what: kernel, path: /srv/boot/vmlinuz}]
                tpm: false
                tpm_model: null
                tpm_version: null
                tpm_persistent: false
                traits: []
                labels: []
                group: null
                priority: 0
                drain: migrate
              dirty_rate_mib: null
              used_mib: 341
              load:
                cpu_cores_used: 0.8214
                memory_used_mib: 341
                available_in_guest_mib: null
                network_bytes_per_second: 10211.5
                disk_bytes_per_second: 0.0
                cpu_pressure: 0.0712
                memory_pressure: 0.0
                io_pressure: 0.0
                cpu_cores_waiting: 0.0311
                unknown: {available_in_guest_mib: "the definition of the domain sets no period for statistics of its balloon"}
error_code:
  description: Stable code of the error. V(forbidden) if libvirt gives this user no connection at all.
  returned: failure
  type: str
  sample: unreachable
"""


import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_reader
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_text
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import new_module, run_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._time_limits import limit_questions

MAX_DIRTY_RATE_SECONDS = 60
MAX_LOAD_SECONDS = 86400


@limit_questions
def host_facts(module: AnsibleModule) -> t.Dict[str, Json]:
    """Return the facts of the host. Raises L(InvalidArgument) for a time out of range."""
    seconds, load_seconds = module.params["dirty_rate_seconds"], module.params["load_seconds"]
    if not 0 <= seconds <= MAX_DIRTY_RATE_SECONDS:
        raise InvalidArgument(f"dirty_rate_seconds is {seconds}.", f"Give 0 for no measuring, or 1 to {MAX_DIRTY_RATE_SECONDS}.")
    if not 0 <= load_seconds <= MAX_LOAD_SECONDS:
        raise InvalidArgument(f"load_seconds is {load_seconds}.", f"Give 0 for no load, or 1 to {MAX_LOAD_SECONDS}.")
    links = [check_uri(uri, "link_to") for uri in module.params["link_to"]]
    host = open_reader(check_uri(module.params["uri"], "uri"))
    try:
        facts, warnings = gather_facts(host, seconds, links, load_seconds=load_seconds, keeps_counters=not module.check_mode)
    finally:
        host.close()
    for warning in warnings:
        module.warn(printable_text(warning))
    return {"changed": False, "ansible_facts": {"kvmfleet_host": encode(facts)}}


def main() -> None:
    """Gather the facts of one host."""
    links = {"type": "list", "elements": "str", "default": []}
    seconds = {"dirty_rate_seconds": {"type": "int", "default": 0}, "load_seconds": {"type": "int", "default": 0}}
    spec = {**libvirt_spec(), **internal_spec(), **seconds, "link_to": links}
    run_module(new_module(AnsibleModule, argument_spec=spec, supports_check_mode=True), host_facts)


if __name__ == "__main__":
    main()
