#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuate_plan
short_description: Assess and fence a dead host, and plan its evacuation
version_added: 0.1.0
description:
  - Makes the decisions of an evacuation by several hosts, the survivors, that start the domains of a dead host together. Each survivor then starts its share
    with M(kvmfleet.migration.evacuate), which checks everything again.
  - The requirements of M(kvmfleet.migration.evacuate) apply, too. It starts nothing.
  - P(kvmfleet.migration.evacuate_host#role) uses this module, with one task for each step, on one survivor for all of them.
options:
  step:
    description:
      - V(check) checks the request. It asks no host.
      - V(query) gathers the facts of the host on which the task runs, as M(kvmfleet.migration.host_facts) does, so it is run on all hosts of the play. On the
        first of them, it also asks for all that V(prove) judges before it fences. V(prove) then uses these answers if they are not older than 5 s, and if
        neither the ledger nor the inventory have changed meanwhile.
      - V(survivors) lists the hosts of the play that have answered V(query) or M(kvmfleet.migration.host_facts), and fails if there are none, or if a domain or
        an image is in use twice on them. A host that answered to a user who is not root is not among them, and is named in a warning. It asks no host.
      - V(probe) tries to connect to the dead host as Ansible does, and fails if it answers, or if it renews its lease in the etcd of the ledger meanwhile.
        O(source) is its name in the inventory. It asks no other host, and needs no ledger.
      - V(assess) looks up the dead host in the ledger, tries to connect to it, over SSH, libvirt, and as Ansible does, asks all other hosts for its domains,
        and returns which of them would be started. All of this happens at the same time; a port that does not answer has 5 s. It changes no host.
      - V(prove) does the same, switches the dead host off unless evidence is given, and waits for the locks that it still holds on images, and for its lease
        in the etcd of the ledger if the host has renewed that lately. If O(survivors) is
        given, and the facts of all of them are not older than 30 s, it also makes the plan, as V(plan) does. Otherwise there are no RV(shares).
      - V(plan) asks all other hosts again, takes the evidence of V(prove), and distributes the domains among O(survivors). It switches nothing off. Facts of
        the survivors must have been gathered after the evidence was taken. The plan is shown line by line.
      - If O(destination) is not one of O(survivors), it did not answer. V(assess), V(prove) and V(plan) then refuse all domains. Such a refusal, and that of a
        domain for which V(plan) finds no survivor, leaves a record with the status C(conflict), except in check mode.
    type: str
    choices: [check, query, survivors, probe, assess, prove, plan]
    required: true
  source:
    description: The dead host, by its name in the ledger or its C(host_id).
    type: str
    required: true
  fencing:
    description:
      - Evidence that the dead host is off, in the form of O(kvmfleet.migration.evacuate#module:fencing).
      - With O(step=plan), the evidence that O(step=prove) returned.
    type: list
    elements: dict
  force_down:
    description: Confirmation of a person that the dead host is off. It is recorded. An agent that reports otherwise, or a host that answers, overrides it.
    type: dict
    suboptions:
      reason:
        description: How the person knows this.
        type: str
        required: true
      by:
        description: The person who confirms it. The default is the user who runs the task.
        type: str
  accept_silent:
    description: Names of other hosts that do not answer, on which certainly none of the domains runs. This is recorded.
    type: list
    elements: str
    default: []
  accept_fresh:
    description: Resources that a domain may get anew if only the dead host had them; see O(kvmfleet.migration.evacuate#module:accept_fresh).
    type: list
    elements: str
    choices: [nvram, tpm]
    default: []
  domains:
    description: Evacuate only these domains, by name or UUID. The default is all that may be on the dead host.
    type: list
    elements: str
    version_added: 0.2.0
  destination:
    description: Inventory name of the survivor that starts all domains, except those whose start has begun on another one. By default they are distributed.
    type: str
    version_added: 0.2.0
  force:
    description: Let O(destination), which is required then, start domains although the scheduler refuses it; see O(kvmfleet.migration.evacuate#module:force).
    type: bool
    default: false
  state:
    description: The state that domains get; see O(kvmfleet.migration.evacuate#module:state).
    type: str
    choices: [as_recorded, running, defined]
    default: as_recorded
  parallel:
    description: Number of domains that each survivor starts at the same time, from 1 to 64.
    type: int
    default: 4
  lock_wait_seconds:
    description: How long to wait after fencing until the locks on images are gone. The default is that of
      O(kvmfleet.migration.evacuate#module:lock_wait_seconds).
    type: int
  restart_limit:
    description: How many hosts may die with a domain before it waits for a person; see O(kvmfleet.migration.evacuate#module:restart_limit).
    type: dict
    version_added: 0.2.0
    suboptions:
      hosts:
        description: The number of hosts, from 2 to 5.
        type: int
        required: true
      hours:
        description: The number of hours, from 1 to 720.
        type: int
        required: true
  detection:
    description: How the death of the host was detected; see O(kvmfleet.migration.evacuate#module:detection).
    type: dict
    version_added: 0.2.0
    suboptions:
      silent_since:
        description: When the host was heard from last.
        type: str
        required: true
      detected_at:
        description: When it was judged to be gone.
        type: str
        required: true
      by:
        description: What has judged that.
        type: str
        required: true
  accept_locked:
    description: Confirmation of a person that images may be locked; see O(kvmfleet.migration.evacuate#module:accept_locked).
    type: dict
    suboptions:
      images:
        description: Paths of images.
        type: list
        elements: str
        required: true
      reason:
        description: How the person knows that no process writes to them.
        type: str
        required: true
      by:
        description: The person who confirms it. The default is the user who runs the task.
        type: str
  survivors:
    description: Inventory names of the hosts that answered, among which the domains are distributed. The default is O(destination), or else the host on which
      the task runs.
    type: list
    elements: str
    default: []
  since:
    description: RV(since) of O(step=prove). Facts that were received later count, however long it took to gather them.
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
  idempotent:
    support: partial
    details: O(step=prove) takes evidence each time, and reports it as a change. Each refusal is recorded, which is not reported as a change.
notes:
  - In check mode nothing is fenced, and no agent is called. A host that has an agent counts as one that could be fenced.
seealso:
  - module: kvmfleet.migration.evacuate
  - module: kvmfleet.migration.evacuate_verify
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See which domains of kvm1 would be started
  kvmfleet.migration.evacuate_plan:
    source: kvm1
    step: assess

- name: See whether web1 alone could be started on kvm2
  kvmfleet.migration.evacuate_plan:
    source: kvm1
    domains: [web1]
    destination: kvm2
    step: assess
"""

RETURN = r"""
assess_first:
  description: Whether O(step=assess) has to come before O(step=prove), because tasks fence the host.
  returned: success with O(step=check)
  type: bool
  sample: false
ansible_facts:
  description: The facts of the host.
  returned: success with O(step=query)
  type: dict
  contains:
    kvmfleet_host:
      description: See RV(kvmfleet.migration.host_facts#module:ansible_facts.kvmfleet_host).
      type: dict
      sample: {host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01}
first_round:
  description: What the dead host and all other hosts have answered, for the later steps of the same play. It may change between releases.
  returned: success with O(step=query) on the first host of the play, unless the dead host has answered
  type: dict
  sample: {host: kvm2}
survivors:
  description: The hosts that share the work.
  returned: success with O(step=survivors)
  type: list
  elements: str
  sample: [kvm2, kvm3]
excluded:
  description: Hosts that answered and start no domain, with the reason. With O(step=plan), it is missing if there are none.
  returned: success with O(step=survivors) or O(step=plan)
  type: dict
  sample: {kvm4: 'the user is not root there, and only root can start domains'}
source:
  description: The dead host, as the ledger describes it.
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: dict
  sample: {host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
domains:
  description: The domains that would be started, with the state that they get (C(wanted_state)).
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, state: running, saved_at: '2026-11-21T03:00:00.000Z', wanted_state: running}]
refused:
  description: Domains that cannot be started; C(uuid), C(name), C(reason).
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
not_selected:
  description: Domains that may be on the host and that O(domains) does not name, in the form of RV(kvmfleet.migration.evacuate#module:not_selected).
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
lost_until_return:
  description: Domains that cannot be started anywhere before their host returns, with C(reasons).
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
unaccounted:
  description: Domains of the ledger that should be on hosts that answer, and are on none of them.
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
missing_records:
  description: Moves and evacuations that the ledger lacks and hosts remember, in the form of RV(kvmfleet.migration.protect#module:missing_records).
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
ages:
  description: For each domain, by name, the age of its document in seconds.
  returned: success with O(step=assess), O(step=prove) or O(step=plan)
  type: dict
  sample: {web1: 3600}
evidence:
  description: The evidence that the host is off, in the form of RV(kvmfleet.migration.evacuate#module:evidence).
  returned: success with O(step=prove) or O(step=plan)
  type: list
  elements: dict
  sample: []
since:
  description: The moment at which the evidence was there, by a clock of the control node.
  returned: success with O(step=prove)
  type: dict
  sample: {boot_id: 0f7c9f0e-3a55-4b7c-8d5d-3f0a5b9f0a11, seconds: 4711.5}
shares:
  description: The UUIDs of the domains that each survivor starts.
  returned: success with O(step=plan), and with O(step=prove) if it makes the plan
  type: dict
  sample: {kvm2: [5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11], kvm3: []}
uncovered:
  description:
    - Domains for which no survivor was found; C(uuid), C(name), C(reason), and C(reasons) by host.
    - C(record) is the ID of the record of the refusal. It is missing in check mode, and if another record holds the domain.
  returned: success with O(step=plan), and with O(step=prove) if it makes the plan
  type: list
  elements: dict
  sample: []
reason:
  description: V(fencing_impossible) if no fence agent could switch the host off. The ledger has this state of the host until there is evidence.
  returned: failure of the fencing
  type: str
  sample: fencing_impossible
attempts:
  description: What each device did, in order; C(level), C(device), C(agent), C(action), C(power), C(output), C(at).
  returned: failure of the fencing
  type: list
  elements: dict
  sample:
    - {level: 1, device: 1, agent: fence_ipmilan, action: 'off', power: unknown, output: 'status exited with 1', at: '2026-11-21T03:10:00.000Z'}
choices:
  description: What a person can do.
  returned: failure of the fencing
  type: list
  elements: str
  sample: [Repair the connection to its BMC and run this again]
error_code:
  description: Stable code of the error. Missing or contradictory evidence is C(unsafe).
  returned: failure
  type: str
  sample: unsafe
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import evacuate_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.evacuate import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=evacuate_plan_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
