#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduler_check
short_description: Ask whether a domain may move to a host, and why not
version_added: 0.1.0
description:
  - Judges one destination, or several candidates, for a domain by all rules of the scheduler, as M(kvmfleet.migration.live_migrate) does before each move.
  - Every rule that refuses a host is returned with its reason, also those after the first. Changes nothing, and writes no record.
  - What is judged is what the hosts answer now, together with the moves that the ledger knows to be on their way. What only a host itself can tell,
    its mounts for example, is taken from M(kvmfleet.migration.host_facts) of that host where they were gathered within the last 60 seconds. What stays unknown
    is a warning.
options:
  name:
    description:
      - Name of the domain, which has to be on the host that the task runs on.
      - Exactly one of O(name), O(uuid) and O(request) is needed.
    type: str
  uuid:
    description: UUID of the domain.
    type: str
  request:
    description:
      - What a domain needs, as RV(request) of an earlier check returned it, as it stands in a record of the ledger, or as C(request) of a domain in
        C(kvmfleet_host).
      - C(memory_mib) and C(vcpus) are the least. C(uuid) and C(name) are kept in it where the domain exists.
    type: dict
  destination:
    description:
      - Inventory name of the one host to judge. A name that is not in the inventory is taken as an address.
      - Excludes O(candidates).
    type: str
  candidates:
    description:
      - The hosts to judge.
      - Without it and O(destination), these are the other hosts of the inventory group C(kvmfleet_hosts), or of all where that group is missing.
    type: list
    elements: str
  destination_uri:
    description:
      - Libvirt URI of the one destination, as the host that the task runs on reaches it.
      - By default the destination's inventory variable C(kvmfleet_libvirt_uri), else one built from O(transport) and the destination's C(ansible_host) or name.
      - Excludes O(candidates).
    type: str
  transport:
    description: How libvirt reaches the candidates. By default the variable C(kvmfleet_transport), else V(ssh).
    type: str
    choices: [ssh, tls, tcp]
  copy_storage:
    description:
      - What the move would do with disks that both hosts do not share, as in M(kvmfleet.migration.live_migrate). What would be copied needs room there.
      - With a local O(uri), root, and a domain that is active, it is found out by the same test of both hosts as before a move. Else every disk that is
        written to and not known to be shared is counted, with a warning.
    type: str
    choices: [none, auto, full, incremental]
    default: none
  scheduler:
    description:
      - Settings in the form of the inventory variable C(kvmfleet_scheduler), for this check alone. They stand over those of every candidate.
      - Known are C(cpu_allocation_ratio) (4.0), C(ram_allocation_ratio) (1.0), C(disk_allocation_ratio) (1.0), C(reserved_memory_mib) (512),
        C(reserved_cpus) (0), C(labels), C(limits) (C(domains), C(moves_in), C(moves_out), C(moves_total)) and C(weights)
        (C(free_memory), C(free_cpu), C(soft_groups), C(moves)). At a limit of moves a move waits for its turn, which is a warning here.
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
  - Needs no root, only a user who may connect to libvirt on this host and on the candidates.
  - A candidate that does not answer is a verdict like any other, of the filter C(up).
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

- name: Is there room for one more like it?
  kvmfleet.migration.scheduler_check:
    request:
      memory_mib: 4096
      vcpus: 2
    candidates: [kvm2, kvm3]
"""

RETURN = r"""
verdicts:
  description: One for each candidate, those that passed first, the best of them first.
  returned: when the hosts were asked; also when none passes
  type: list
  elements: dict
  contains:
    host:
      description: The candidate.
      type: str
      sample: kvm2
    passed:
      description: Whether the domain may go there.
      type: bool
      sample: false
    failures:
      description: Every rule that refuses, by its name, with the reason.
      type: list
      elements: dict
      sample: [{filter: enabled, reason: "It is in maintenance (new disks)."}]
    warnings:
      description: What could not be told, and what to look at before the move.
      type: list
      elements: str
      sample: []
    weight:
      description: How much the host is wanted, against the others that passed; V(0) for one that did not.
      type: float
      sample: 1.87
selected:
  description: The best host that passed.
  returned: success
  type: str
  sample: kvm3
request:
  description: What the domain needs, for O(request) of a later check.
  returned: when the hosts were asked; also when none passes
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, memory_mib: 2048, vcpus: 2, arch: x86_64, machine: pc-q35-7.2}
error_code:
  description: A stable word for what went wrong; V(conflict) when no candidate passes.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._scheduler_check import PHASES


def main() -> None:
    """Ask this host and the candidates; the action plugin of the same name judges what they answer."""
    module = AnsibleModule(argument_spec={**scheduler_check_spec(), **internal_spec()}, supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
