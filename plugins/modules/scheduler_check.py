#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduler_check
short_description: Check whether a domain can move to a host, and why not
version_added: 0.1.0
description:
  - Checks one destination, or several candidates, for a domain against all rules of the scheduler, as M(kvmfleet.migration.live_migrate) does before each move.
  - Every rule that refuses a host is returned with its reason, not only the first one. Changes nothing, and writes no record.
  - The check uses the current answers of the hosts, together with the moves in progress in the ledger. Facts that only a host itself can determine, for
    example its mounts, are taken from M(kvmfleet.migration.host_facts) of that host if they were gathered within the last 60 seconds. Unknown facts are
    warnings.
  - If all hosts of the fleet are candidates and C(kvmfleet_scheduler.failover_hosts) is set, the best host that keeps this reserve is selected. The hosts
    before it have C(failover_hosts) among their failures, and the hosts after it are not judged by this rule.
options:
  name:
    description:
      - Name of the domain, which must be on the host on which the task runs.
      - Exactly one of O(name), O(uuid) and O(request) is needed.
    type: str
    aliases: [domain, guest]
  uuid:
    description: UUID of the domain.
    type: str
  request:
    description:
      - The requirements of a domain, as in RV(request) of an earlier check, in a record of the ledger, or in C(request) of a domain in C(kvmfleet_host).
      - C(memory_mib) and C(vcpus) are required. For an existing domain, it also contains C(uuid) and C(name).
    type: dict
  destination:
    description:
      - Inventory name of a single host to check. A name that is not in the inventory is used as an address.
      - Mutually exclusive with O(candidates).
    type: str
  candidates:
    description:
      - The hosts to check.
      - Without this option and O(destination), these are the other hosts of the inventory group C(kvmfleet_hosts), or of the whole inventory if that group
        does not exist.
    type: list
    elements: str
  destination_uri:
    description:
      - libvirt URI of the single destination, as the host on which the task runs reaches it.
      - The default is the destination's inventory variable C(kvmfleet_libvirt_uri). Without it, the URI is built from O(transport) and the destination's
        C(ansible_host) or name.
      - Mutually exclusive with O(candidates).
    type: str
    aliases: [desturi]
  transport:
    description: Transport from libvirt on this host to libvirt on the candidates. The default is the variable C(kvmfleet_transport), or V(ssh) without it.
    type: str
    choices: [ssh, tls, tcp]
  copy_storage:
    description:
      - How the move would treat disks that the hosts do not share, as in M(kvmfleet.migration.live_migrate). Disks that would be copied need space on the
        destination. V(all) and V(inc) mean V(full) and V(incremental).
      - With a local O(uri), root, and an active domain, this is determined by the same test on both hosts as before a move. Otherwise every disk to which the
        domain writes, and which is not known to be shared, is counted, with a warning.
    type: str
    choices: [none, auto, full, incremental, all, inc]
    default: none
  one_way:
    description: Whether the domain may move to a host from which it could not move back, as in M(kvmfleet.migration.live_migrate).
    type: bool
    default: true
  scheduler:
    description:
      - Settings in the form of the inventory variable C(kvmfleet_scheduler), for this check only. They override those of every candidate.
      - The keys are C(cpu_allocation_ratio) (4.0), C(ram_allocation_ratio) (1.0), C(disk_allocation_ratio) (1.0), C(reserved_memory_mib) (512),
        beside huge pages, C(reserved_cpus) (0), C(labels), C(limits) (C(domains), C(moves_in), C(moves_out), C(moves_total)) and C(weights) (C(free_memory),
        C(free_cpu), C(soft_groups), C(moves)). At a limit of moves, a move waits for admission, which is a warning of this module.
      - C(filters) is a dictionary that switches rules off and on by name. Rules that can be switched off are C(cpus), C(traits), C(networks), C(labels),
        C(max_domains), C(max_moves), C(affinity) and C(anti_affinity). All others protect data or the life of a guest. Switching one of them off is
        C(invalid_argument), and so is a name that is not a filter.
    type: dict
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
attributes:
  diff_mode:
    support: none
notes:
  - Requires no right to act. A user without root, and without the right to use libvirt's read-write connection, gets the answer over the read-only
    connections of this host and of the candidates. What libvirt withholds there, and what only root can read, is not checked. Each verdict has a warning that
    names it, and RV(unverified_reasons) lists it. The facts that root has gathered with M(kvmfleet.migration.host_facts) within the last 60 seconds fill gaps.
  - A candidate that does not answer gets a verdict like any other, by the filter C(up).
  - A ledger that does not exist yet is read as an empty one.
seealso:
  - module: kvmfleet.migration.live_migrate
  - module: kvmfleet.migration.host_facts
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Where could web1 go?
  kvmfleet.migration.scheduler_check:
    name: web1
  register: places

- name: Show why the others are out
  ansible.builtin.debug:
    msg: "{{ item.host }}: {{ item.failures | map(attribute='reason') | join(' ') }}"
  loop: "{{ places.verdicts | rejectattr('passed') }}"
  loop_control:
    label: "{{ item.host }}"

- name: May it go to kvm2, if that host keeps 8 GiB for itself?
  kvmfleet.migration.scheduler_check:
    name: web1
    destination: kvm2
    scheduler:
      reserved_memory_mib: 8192

- name: May it go to kvm2, apart from the labels that its policy requires?
  kvmfleet.migration.scheduler_check:
    name: web1
    destination: kvm2
    scheduler:
      filters:
        labels: false

- name: Is there room for one more like it?
  kvmfleet.migration.scheduler_check:
    request:
      memory_mib: 4096
      vcpus: 2
    candidates: [kvm2, kvm3]
"""

RETURN = r"""
verdicts:
  description: One verdict for each candidate. Candidates that passed come first, in the order of their weight.
  returned: when the hosts were asked; also when none passes
  type: list
  elements: dict
  contains:
    host:
      description: The candidate.
      type: str
      sample: kvm2
    passed:
      description: Whether the domain can move there.
      type: bool
      sample: false
    failures:
      description: Every rule that refuses the candidate, by name, with the reason.
      type: list
      elements: dict
      sample: [{filter: enabled, reason: "It is in maintenance (new disks)."}]
    warnings:
      description:
        - Facts that are unknown, and what to check before the move, also a job of the domain that a move would wait for, for example a backup.
        - Without root, also what was not checked on the candidate and on this host.
      type: list
      elements: str
      sample: []
    weight:
      description: Weight of the host relative to the others that passed; V(0) for a host that did not.
      type: float
      sample: 1.87
    filters_off:
      description: The rules that did not judge the candidate, because C(kvmfleet_scheduler.filters) or O(scheduler) switches them off.
      type: list
      elements: str
      sample: []
      version_added: 0.2.0
selected:
  description: The best host that passed.
  returned: success
  type: str
  sample: kvm3
lines:
  description: The verdicts for people. The hosts that can accept the domain, best first, all reasons against the others, warnings, and filters that were off.
  returned: success
  type: list
  elements: str
  sample: [web1 can go to kvm3., 'kvm2: no. It is in maintenance (new disks).']
request:
  description: The requirements of the domain, for O(request) of a later check.
  returned: when the hosts were asked; also when none passes
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, memory_mib: 2048, vcpus: 2, arch: x86_64, machine: pc-q35-7.2}
unverified_reasons:
  description:
    - What is unknown about each host without the rights of root, with the reason, by the name of the host. The names are those of
      RV(kvmfleet.migration.host_facts#module:ansible_facts.kvmfleet_host.unverified).
  returned: when the hosts were asked, and the task does not run as root
  type: dict
  sample: {kvm2: {cpu_comparison: "libvirt withholds it on its read-only connection, the only one that this user may have"}}
error_code:
  description: Stable code of the error; V(conflict) if no candidate passes, V(forbidden) if libvirt gives this user no connection at all.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey_phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Ask this host and the candidates; the action plugin of the same name judges what they answer."""
    module = AnsibleModule(argument_spec={**scheduler_check_spec(), **internal_spec()}, supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
