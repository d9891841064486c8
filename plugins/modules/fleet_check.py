#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_check
short_description: Check which hosts the fleet can lose, and which guest can run where
version_added: 0.1.0
description:
  - Judges for each host, and for each set of O(hosts_lost) hosts, whether all active guests on them have a place on the other hosts at the same time, by the
    rules of an evacuation. Guests without a place are named, with the reasons of each host that refuses them.
  - The verdict is C(can), C(cannot) or C(unknown). C(can) and C(cannot) are proved. A host that did not answer, a fact that is not known, and a search that
    was given up in a large and nearly full fleet make a verdict C(unknown).
  - Lists for each guest the hosts that can run it, and what prevents it on the others, whatever else runs there now. libvirt compares the CPU of each guest
    with each host.
  - Computes the CPU that all hosts can give a guest, and names the guests that use more than that.
  - Reports what differs between hosts (MTUs, VLANs, bridges, clocks), hosts that did not answer, hosts whose protection is old or missing, hosts of another
    ledger, and fence devices that would fail.
  - It changes nothing. The result of a check of the whole fleet is kept on the control node for M(kvmfleet.migration.fleet_status),
    M(kvmfleet.migration.report) and M(kvmfleet.migration.metrics).
options:
  fleet:
    description: Inventory names of the hosts to check; if empty, the group C(kvmfleet_hosts), or all hosts if there is no such group.
    type: list
    elements: str
    default: []
  hosts_lost:
    description:
      - How many hosts may be lost at the same time, V(1) to V(4). The number of sets grows steeply with it. 100 hosts have 4,950 pairs.
      - The default is C(kvmfleet_scheduler.failover_hosts) of the inventory, and V(1) if that is not set.
    type: int
  lost:
    description:
      - Judge only the sets of O(hosts_lost) hosts that include all of these, at most 4 more than these. Nothing else is judged then, and the result is not
        kept.
      - The role C(rolling_maintenance) asks this before each host.
    type: list
    elements: str
    default: []
  accept_fresh:
    description: Resources that an evacuation may replace by new ones, so that no other host must see them; see
      O(kvmfleet.migration.evacuate#module:accept_fresh).
    type: list
    elements: str
    choices: [nvram, tpm]
    default: []
  ignore:
    description:
      - Kinds of findings that are reported, and do not count for RV(met).
      - V(capacity) is a loss without a place for all guests, V(reach) a guest that only its own host can run, V(cpu) a guest that uses more than all hosts
        have, V(network) another MTU, VLAN or bridge, V(protection) an old or missing protection, or one under another ledger, V(fencing) a fence device that
        reports no power state, or reports a host that answers as off, V(clock) another time, and V(silent) a host that did not answer, that another host
        cannot ask, that can ask no other one, or that only the ledger has.
    type: list
    elements: str
    choices: [capacity, reach, cpu, network, protection, fencing, clock, silent]
    default: []
  max_clock_skew_seconds:
    description: How many seconds the clocks of two hosts may differ. The time that an answer takes is never counted as a difference.
    type: int
    default: 2
  protect_max_hours:
    description: A protection that is this number of hours old, or older, is a finding.
    type: int
    default: 24
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
  - kvmfleet.migration._ledger
  - kvmfleet.migration._libvirt
attributes:
  diff_mode:
    support: none
notes:
  - Requires the facts that M(kvmfleet.migration.host_facts) gathered in this run. The playbook C(fleet_check) gathers them, and asks each host for its clock
    and for libvirt's comparison of CPUs. Without the answers, the CPUs are compared by the facts alone.
  - Whether a guest on a host without shared storage can be started elsewhere is known only from M(kvmfleet.migration.protect) and from the names of stores.
  - The common CPU is computed by the host with the oldest libvirt, and is limited to the CPU models that its libvirt knows. libvirt 11.6 and newer can ignore
    the host that computes it (C(IGNORE_HOST)). The module does not use this, because the host is part of the fleet.
seealso:
  - module: kvmfleet.migration.scheduler_check
  - module: kvmfleet.migration.drain_plan
  - module: kvmfleet.migration.protect
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Check whether the fleet could lose any two hosts
  hosts: all
  gather_facts: false
  tasks:
    - name: Gather facts of all hosts
      kvmfleet.migration.host_facts:

    - name: Judge the fleet
      kvmfleet.migration.fleet_check:
        hosts_lost: 2
      run_once: true
      register: checked

    - name: Show the verdict
      ansible.builtin.debug:
        msg: "{{ checked.lines }}"
      run_once: true
"""

RETURN = r"""
met:
  description: Whether every set of O(hosts_lost) hosts can be lost, and nothing that is not in O(ignore) needs a person.
  returned: success
  type: bool
  sample: false
hosts_lost:
  description: As O(hosts_lost).
  returned: success
  type: int
  sample: 1
lost:
  description: As O(lost).
  returned: success
  type: list
  elements: str
  sample: []
sets:
  description: The number of sets of O(hosts_lost) hosts by verdict.
  returned: success
  type: dict
  sample: {can: 2, unknown: 0, cannot: 1}
hosts:
  description:
    - The verdict on each host. C(alone) is about the loss of this host. C(with_others) is the worst verdict on the sets of O(hosts_lost) hosts that include it.
  returned: success
  type: dict
  sample: {kvm1: {alone: cannot, with_others: cannot}, kvm2: {alone: can, with_others: can}, kvm3: {alone: can, with_others: can}}
losses:
  description:
    - At most 10 losses that are not C(can), the worst first. Single hosts come first, then sets of hosts that can all be lost alone.
    - C(guests) are at most 50 guests without a place. Each entry of C(refused) has hosts that refuse the guest for the same C(filters), and the reason of the
      first of them. C(reason) states why a verdict is C(unknown) whatever the guests are.
  returned: success
  type: list
  elements: dict
  sample:
    - hosts: [kvm1]
      verdict: cannot
      missing_mib: 4096
      reason: ''
      guests:
        - name: db1
          uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
          host: kvm1
          memory_mib: 4096
          refused: [{hosts: [kvm2, kvm3], filters: [cpu_model], reason: "According to libvirt's comparison, it cannot run db1: its CPU lacks avx2."}]
guests:
  description:
    - Where guests can run, those with equal requirements together. C(on) are the hosts that they run on, C(hosts) those that can run them, of C(of) hosts that
      answered. C(refused) are the others.
    - C(one_way) are those of C(hosts) from which the guests could not move back, because of the versions of QEMU and libvirt. C(unsure) are those of
      C(hosts) about which something is not known.
  returned: success
  type: list
  elements: dict
  sample: [{guests: [web1, web2], 'on': [kvm1], hosts: [kvm1, kvm2, kvm3], of: 3, one_way: [], refused: [], unsure: []}]
cpus:
  description:
    - For each platform that guests use, the best CPU that all hosts can give a guest. C(xml) is the CPU for a definition; null with C(problem) if there is
      none. C(hosts) were compared; libvirt does not describe the CPU of C(unknown). C(computed_by) is the host that computed it.
    - C(exceeded_by) are the guests that use more, with the features.
  returned: success
  type: list
  elements: dict
  sample:
    - arch: x86_64
      virt_type: kvm
      model: EPYC
      xml: <cpu mode="custom" match="exact"><model fallback="forbid">EPYC</model></cpu>
      hosts: [kvm1, kvm2, kvm3]
      unknown: []
      computed_by: kvm1
      exceeded_by: [{guests: [db1], features: [avx2]}]
      problem: null
findings:
  description: What needs a person, with the kind as in O(ignore), and the hosts.
  returned: success
  type: list
  elements: dict
  sample: [{kind: network, hosts: [kvm3], msg: 'The MTU of br0 differs: 9000 on kvm1, kvm2; 1500 on kvm3.'}]
lines:
  description: The check line by line.
  returned: success
  type: list
  elements: str
  sample: [The fleet can lose any host. Nothing needs a person.]
at:
  description: When this was.
  returned: success
  type: str
  sample: '2026-11-21T03:00:00.000Z'
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import fleet_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peer_logins import PEER_PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.fleet_cpus import FLEET_PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Answer the questions about this host; the action plugin of the same name does everything else on the control node."""
    module = AnsibleModule(argument_spec=fleet_check_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase({**FLEET_PHASES, **PEER_PHASES}, module.params))


if __name__ == "__main__":
    main()
