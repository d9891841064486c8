#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: event_brake
short_description: Let reactions to events act on few hosts only
version_added: 0.1.0
description:
  - Stands in playbooks that act by themselves, before they act. It takes a place for a host, and fails where no place is left in the window of time, or
    where somebody has disarmed all reactions.
  - What it knows is in a folder on the control node, written durably and under a lock. It holds over restarts, and between runs at the same time.
  - A host that has a place keeps it, so that a run that was broken off can be repeated. A reaction that failed keeps its place, too.
  - A file C(disarmed) in the folder disarms all reactions at once, whatever is in it.
  - A state file that cannot be read lets nothing act.
options:
  host:
    description: The host that is to be acted on. It is not asked.
    type: str
    required: true
  reaction:
    description: What is to be done. Reactions are counted each by itself.
    type: str
    default: evacuate
  hosts:
    description: On how many different hosts the reaction may act within the window.
    type: int
    default: 1
  window_minutes:
    description: How long a place counts; at most 31 days.
    type: int
    default: 60
  folder:
    description:
      - The brake's folder on the control node. By default C(kvmfleet/events) in the XDG state directory. All that react for one fleet need the same.
    type: path
  state:
    description:
      - V(taken) takes a place for the host. In check mode it is only seen whether it could.
      - V(released) gives its place back; to be said by a person.
    type: str
    choices: [taken, released]
    default: taken
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
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
"""

RETURN = r"""
places:
  description: The places of this reaction that count in the window afterwards.
  returned: success
  type: list
  elements: dict
  contains:
    reaction:
      description: What was done.
      type: str
      sample: evacuate
    host:
      description: On which host.
      type: str
      sample: kvm1
    at:
      description: When.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
error_code:
  description:
    - A stable word for what went wrong. V(conflict) where no place is left, V(forbidden) where reactions are disarmed, V(unsafe) where the state file
      cannot be read.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._event_brake_spec import event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=event_brake_spec(), supports_check_mode=True)
    run(module, lambda dummy: in_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
