#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drill_run
short_description: Cut the power of a host on purpose, and judge what became of its guests
version_added: 0.2.0
description:
  - The playbook C(drill) carries out a drill with this module. Do not use it in other playbooks.
  - A drill is a maintenance run (M(kvmfleet.migration.maintenance_run)) of one host, whose power is cut by its fence agents. Its guests have to run elsewhere
    in time. Then the host is switched on and recovered, and the verdict is written into the document of the run.
  - No host is asked by it, except for the fence agents of O(host).
options:
  step:
    description:
      - V(check) refuses the drill (C(unsafe)) unless the fleet can lose O(host) now, and names all reasons. It changes nothing.
      - V(cut) switches O(host) off by its fence agents (C(kvmfleet_fencing)). The run records it before the agent is called. If the process is killed then, it
        is not repeated unless the host still runs the same boot. Right before the agent is called, everything that V(check) needs is required again, with a
        check of the fleet that is not older than five minutes, and with the same guests. Otherwise the power is not cut, and the verdict says why.
      - V(problem) records O(problem), for the verdict.
      - V(watch) returns which guests were not started elsewhere yet, by the ledger.
      - V(switch_on) switches O(host) on by its fence agents, if this drill has cut its power.
      - V(judge) writes the verdict.
    type: str
    choices: [check, cut, problem, watch, switch_on, judge]
    required: true
  host:
    description: Inventory name of the host.
    type: str
    required: true
  fleet:
    description: Inventory names of all hosts of the fleet, with O(step=check) and O(step=cut). All of them have to be in service.
    type: list
    elements: str
    default: []
  accept_lost:
    description: Names of guests that no other host could start, and that may stay off until O(host) returns, with O(step=check).
    type: list
    elements: str
    default: []
  accept_unguarded:
    description: Accept that no boot guard holds the automatic starts of O(host) at its next boot, with O(step=check) and O(step=cut).
    type: bool
    default: false
  protect_max_hours:
    description: From how many hours on the protection of O(host) is too old, with O(step=check) and O(step=cut).
    type: int
    default: 24
  bring_home:
    description: >-
      Whether the guests have to run on O(host) again, with O(step=judge). With O(step=check) and O(step=cut), the drill is refused then for a guest whose
      home is another host.
    type: bool
    default: true
  problem:
    description: What went wrong, with O(step=problem).
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.maintenance_run
  - module: kvmfleet.migration.fleet_check
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Return which guests of the drill do not run elsewhere yet
  kvmfleet.migration.drill_run:
    step: watch
    host: kvm3
  run_once: true
  register: drill
"""

RETURN = r"""
guests:
  description: The names of the guests on the host, by UUID.
  returned: success with O(step=check)
  type: dict
  sample: {5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11: web1}
lines:
  description: What the drill would do, or the run as text.
  returned: success with O(step=check) and O(step=judge)
  type: list
  elements: str
  sample: ['1 guest has to run elsewhere then: web1.']
cut_at:
  description: When the fence agent was about to be called; null if that was never so.
  returned: success with O(step=cut), O(step=watch) and O(step=switch_on)
  type: str
  sample: '2026-11-21T03:00:00.000Z'
is_cut:
  description: Whether the power is cut; false if it must not be cut now, and if the host was switched on again before an interrupted drill continued.
  returned: success with O(step=cut)
  type: bool
  sample: true
waiting:
  description: The guests that were not started elsewhere yet.
  returned: success with O(step=watch)
  type: list
  elements: str
  sample: [web1]
waits_for:
  description: What the drill waits for; null if nothing, or if the time for the guests is over.
  returned: success with O(step=watch)
  type: str
  sample: web1 to run elsewhere
verdict:
  description: The drill with its verdict.
  returned: success with O(step=judge)
  type: dict
  sample: {passed: true, median_seconds: 21.0, longest_seconds: 28.7, limit_seconds: 90, reasons: []}
text:
  description: The verdict on one line.
  returned: success with O(step=judge)
  type: str
  sample: 'kvm3 at 2026-11-21 03:00 UTC: passed: 1 of 1 guests ran elsewhere, median 21.0 s, longest 21.0 s, limit 90 s'
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: unsafe
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import drill_run_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=drill_run_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
