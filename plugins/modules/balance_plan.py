#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: balance_plan
short_description: Plan moves that relieve busy hosts, or check a saved plan
version_added: 0.2.0
description:
  - Makes one plan for the whole fleet, from the facts that M(kvmfleet.migration.host_facts) gathered in this run with
    O(kvmfleet.migration.host_facts#module:load_seconds), and from the ledger. It asks no host. The plan is shown line by line.
  - A move is part of the plan if what it brings exceeds what it costs. It brings the pressure that its two hosts lose together, for O(horizon_seconds). It
    costs its predicted seconds, 1.5 times if the dirty rate of the domain was not measured and 4 times if the move depends on post-copy or auto-converge,
    and ten seconds for each second of the pause. The plan ends where the next move costs more than it brings.
  - Broken groups and overcommitted hosts come first, whether their moves pay for themselves or not.
  - All filters of the scheduler apply. A domain with the drain strategy V(leave) stays, and so does a domain that has moved within O(cooldown_seconds)
    according to the records in the ledger.
  - Moves that would use up the reserve of C(kvmfleet_scheduler.failover_hosts) are left out, the last ones first.
  - A host without pressure stall information is judged by its CPU time.
  - No plan is made if facts are too old or do not say how busy a host is, if clocks differ, if a host is in maintenance, or if fewer than two hosts take part.
  - With O(check_saved), it compares a saved plan with the current state of the hosts, and fails with C(conflict) if the plan no longer applies. All
    differences are listed.
  - P(kvmfleet.migration.balance#role) uses this module, with one task for all hosts of the play.
options:
  step:
    description:
      - V(plan) makes a plan or checks a saved one.
      - V(verify) judges the moves of O(plan) by facts that were gathered after them. The role uses it.
    type: str
    choices: [plan, verify]
    default: plan
  hosts:
    description: Inventory names of the hosts of the fleet. Domains move between those that are enabled and have answered.
    type: list
    elements: str
    required: true
  goal:
    description:
      - With V(pressure), domains leave hosts under pressure, that is hosts on which work waits for CPU, memory or I/O.
      - With V(even), all hosts are to be equally busy, whether they are under pressure or not. This takes more moves.
    type: str
    choices: [pressure, even]
    default: pressure
  max_moves:
    description: Maximum number of moves of the plan, V(0) to V(100000).
    type: int
    default: 20
  weights:
    description:
      - How much each resource counts, V(0) to V(10), with the keys V(cpu), V(memory), V(io) and V(vcpus). A resource that is not named has the weight 1.
      - How many virtual CPUs a host has promised causes no pressure, and counts for the goal V(even) alone.
    type: dict
    default: {}
  tolerated_pressure:
    description:
      - With the goal V(pressure), a host is relieved if its pressure on a resource is higher than this number from V(0) to V(1). No move raises that of its
        destination above it.
    type: float
    default: 0.1
  tolerated_unevenness:
    description:
      - With the goal V(even), the plan has no further moves once the score, divided by the number of hosts, is as low as this number from V(0) to V(10).
        A fleet whose score is that low is left as it is.
    type: float
    default: 0.0
  min_gain:
    description: The least gain of a move, that is by how much it lowers the score, a number from V(0) to V(1).
    type: float
    default: 0.02
  horizon_seconds:
    description: For how long the gain of a move is expected to last, V(60) to V(2592000).
    type: float
    default: 3600
  cooldown_seconds:
    description: For how long a domain stays on its host after a move, whoever asked for that move, V(0) to V(31536000).
    type: float
    default: 86400
  max_age_seconds:
    description: How long ago this control node may have received the facts, V(1) to V(86400).
    type: float
    default: 600
  maintenance_allowed:
    description: Whether a plan is made although hosts are in maintenance or fenced. They are left out.
    type: bool
    default: false
  take_over:
    description:
      - Whether you confirm that the process that carries out another balance of these hosts does not exist any more. This is needed only if it ran on another
        control node within the last day, and was killed.
    type: bool
    default: false
  run:
    description: The ID of the balance run that O(step=verify) closes in the ledger.
    type: str
  options:
    description: Options of M(kvmfleet.migration.live_migrate) for every move. With O(check_saved), options that differ from those of the plan are a difference.
    type: dict
    default: {}
  parallel:
    description: Maximum number of moves of one source that run at the same time, or V(auto), see O(kvmfleet.migration.live_migrate#module:parallel).
    type: str
    default: auto
  empty:
    description:
      - The plan also says which hosts could be emptied and switched off, up to this number, while the others could still lose any one of them. It moves
        nothing for this.
    type: int
    default: 0
  check_saved:
    description:
      - Whether to check the saved plan in O(file) or O(plan) instead of making a new one.
      - An option that is set to another value than its default, and than the plan has, is a difference.
    type: bool
    default: false
  plan:
    description: A saved plan, as an object, as the text of its file, or as the line of text that O(publish_as) publishes.
    type: raw
  file:
    description:
      - File on the control node. A new plan is written to it as JSON, readable only by its owner.
      - With O(check_saved), the plan is read from it.
    type: str
  only:
    description: Whether the plan is only shown, and not carried out by this run. Mutually exclusive with O(check_saved).
    type: bool
    default: false
  publish_as:
    description: Name of a custom statistic of the run that gets the plan as one line of text, or the result.
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
  idempotent:
    support: none
    details: A new plan contains its time, so O(file) is written each time.
seealso:
  - module: kvmfleet.migration.host_facts
  - module: kvmfleet.migration.load_timer
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Plan a balance
  hosts: all
  gather_facts: false
  tasks:
    - name: Gather facts of all hosts, with their load of the last hour
      kvmfleet.migration.host_facts:
        load_seconds: 3600
        dirty_rate_seconds: 1

    - name: Show which moves would relieve busy hosts
      kvmfleet.migration.balance_plan:
        hosts: "{{ ansible_play_hosts_all }}"
        max_moves: 5
      run_once: true
"""

RETURN = r"""
plan:
  description: The plan, in the form that P(kvmfleet.migration.plan_drain#filter) describes. C(balance) is what only the plan of a balance has.
  returned: if O(step) is V(plan)
  type: dict
  sample: {schema: 2, sources: [kvm1], moves: [], balance: {score_before: 0.0, score_after: 0.0}}
stages:
  description: What each host carries out in each stage, by host. A stage begins when the moves of the one before it have ended.
  returned: if O(step) is V(plan)
  type: list
  elements: dict
  sample: [{kvm1: {moves: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, destination: kvm2}], predicted: {}}}]
ends:
  description: The hosts between which domains move.
  returned: if O(step) is V(plan)
  type: list
  elements: str
  sample: [kvm1, kvm2]
run:
  description: The ID of the balance run in the ledger, which the plan begins. See P(kvmfleet.migration.ledger#lookup), term C(balance_runs).
  returned: if O(step) is V(plan), and the plan has moves that are to be carried out
  type: str
  sample: 9d2c3a52-1c5e-4a55-8f3a-1f0e9d6c2b31
result:
  description: Which domains have moved, and what failed, by the host that they have left or were to leave.
  returned: if O(step) is V(verify)
  type: dict
  sample: {moved: {kvm1: []}, failed: {kvm1: []}, problems: {}, score_before: 0.4112, score_after: 0.0}
failures:
  description: How many domains and hosts failed.
  returned: if O(step) is V(verify)
  type: int
  sample: 0
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import balance_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=balance_plan_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
