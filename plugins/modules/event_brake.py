#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: event_brake
short_description: Limit the number of hosts on which reactions to events act
version_added: 0.1.0
description:
  - Rate-limits automatic reactions. A playbook runs this module before it acts. The module takes a slot for a host, and fails if no slot is free in the time
    window, or if someone has disarmed all reactions.
  - If more hosts are silent at once than the reaction may act on, nothing is done for any of them, because the cause is then rather a switch. The first run
    that finds this out sends one notice (C(brake.held)), also if several control nodes run this module.
  - Its state is a document of the ledger, which all control nodes of the fleet share. It persists across restarts, and is shared by concurrent runs.
  - A host that has a slot keeps it, so that an interrupted run can be repeated. A reaction that failed keeps its slot, too.
  - If the state cannot be read, no reaction may act.
options:
  host:
    description:
      - The host on which the reaction acts. The module does not connect to it.
      - Required unless O(state) is V(armed) or V(disarmed).
    type: str
  reaction:
    description: The kind of reaction. Each kind is counted separately.
    type: str
    default: evacuate
  hosts:
    description: Number of different hosts on which the reaction may act within the window.
    type: int
    default: 1
  window_minutes:
    description: How many minutes a slot counts; at most 31 days.
    type: int
    default: 60
  silent:
    description:
      - The hosts that are silent at this moment, as the event C(host_gone) names them. If these and O(host) are more than O(hosts), the module fails and no
        slot is taken. Hosts that are C(fenced) or in C(maintenance) according to the ledger do not count. A host that has a slot keeps it.
    type: list
    elements: str
  isolated:
    description:
      - What is known about a host that does not answer, but is not dead. No slot is taken; one notice (C(host.isolated)) is sent within the window.
    type: str
  folder:
    description:
      - Folder on the control node in which a file C(disarmed) disarms all reactions of this control node at once, whatever its contents. The default is
        C(kvmfleet/events) in the XDG state directory.
      - Slots that an earlier version has left in this folder are moved into the ledger.
    type: path
  state:
    description:
      - V(taken) takes a slot for the host. Check mode only tests whether this is possible.
      - V(checked) tests whether a slot is free, and takes none. Outside of check mode, it notes that too many hosts are silent at once, and sends the notice.
      - V(released) releases the slot of the host. Only a person should do this.
      - V(disarmed) disarms all reactions on all control nodes, and V(armed) arms them again.
      - V(released), V(armed) and V(disarmed) act on the ledger of the fleet, and fail if it is not known. They create no ledger unless C(kvmfleet_ledger) names
        it, and the hosts of the inventory must not have a C(kvmfleet_ledger) that the host of this task lacks.
    type: str
    choices: [taken, checked, released, armed, disarmed]
    default: taken
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.evacuate
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Act on two hosts in a day, and not on a third
  kvmfleet.migration.event_brake:
    host: kvm1
    hosts: 2
    window_minutes: 1440

- name: It was a test, and does not count
  kvmfleet.migration.event_brake:
    host: kvm1
    state: released

- name: No reaction acts any more, on any control node
  kvmfleet.migration.event_brake:
    state: disarmed
    ledger: etcd://10.0.0.21:2379,10.0.0.22:2379,10.0.0.23:2379/kvmfleet
"""

RETURN = r"""
places:
  description: The slots of this reaction that count in the window after the task; all slots if O(state) is V(armed) or V(disarmed).
  returned: success
  type: list
  elements: dict
  contains:
    reaction:
      description: The kind of reaction.
      type: str
      sample: evacuate
    host:
      description: The host on which it acted.
      type: str
      sample: kvm1
    at:
      description: The time at which the slot was taken.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
armed:
  description: Whether reactions may act, as far as the ledger and the folder of this control node say.
  returned: success
  type: bool
  sample: true
ledger:
  description: Folder or address of the ledger; null in check mode if the task would create it.
  returned: success
  type: str
  sample: /root/.local/state/kvmfleet/ledger
error_code:
  description:
    - Stable code of the error. It is V(conflict) if no slot is free or too many hosts are silent, V(forbidden) if reactions are disarmed, V(unsafe) if the
      state cannot be read, V(not_found) if the ledger of the fleet is not known.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=event_brake_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
