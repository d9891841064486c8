#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_status
short_description: Show the state of the fleet on one screen
version_added: 0.1.0
description:
  - Shows the moves in flight with their figures, the hosts by state, what needs a person, and the age of the protection. The playbook C(status) uses
    it.
  - A move, stop or start of a domain that was done without this collection since it was seen last is written to the document of the domain and to the audit,
    and sent as a notice, as by M(kvmfleet.migration.protect). The module changes nothing else.
  - A host that does not answer, and a ledger that cannot be read, are findings. The rest is shown all the same, and the task does not fail.
  - Shows the result of the last M(kvmfleet.migration.fleet_check) on this control node.
  - What needs a person are silent hosts, domains that several hosts report as active without a move of them, records whose result is not proved or that nobody
    follows any more, moves without limits, hosts that were evacuated and must be recovered, hosts in service whose boot guard holds the boot, domains that were
    not started elsewhere after an evacuation, damaged documents, hosts whose protection is old, a fleet check or a drill that was not passed, and maintenance
    runs that are paused, were left by their process, or stopped on a host that failed and was not maintained, put into service or discarded since.
  - Of a host that was not asked, the ledger's moves are shown, and that their present state is not known.
options:
  fleet:
    description: Inventory names of the hosts of the play; if empty, the hosts in the ledger.
    type: list
    elements: str
    default: []
  protect_max_hours:
    description: A protection that is this number of hours old, or older, needs a person.
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
  - The playbook gives the answers of the hosts to this module internally. People start the playbook.
seealso:
  - module: kvmfleet.migration.migration_info
  - module: kvmfleet.migration.metrics
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Show what the ledger says of the fleet
  kvmfleet.migration.fleet_status:
    fleet: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: seen
"""

RETURN = r"""
lines:
  description: The screen, line by line. What needs a person comes first.
  returned: success
  type: list
  elements: str
  sample:
    - 3 hosts, 0 silent. 1 move in flight. Nothing needs a person.
    - IN FLIGHT
    - '  kvm1 -> kvm2  web1  running  62 %  312 MiB left  940 MiB/s  dirty 210 MiB/s  pause <= 95 ms  eta 8 s'
    - HOSTS
    - '  enabled: kvm1, kvm2, kvm3'
    - PROTECTION
    - '  12 domains saved from 3 hosts. The oldest: kvm2, 3 h ago'
attention:
  description: What needs a person, each with what to do.
  returned: success
  type: list
  elements: str
  sample: ['kvm1 is fenced, and 2 evacuated domains must be cleaned up on it. When it is repaired: kvmfleet.migration.recover -e target=kvm1']
foreign_acts:
  description:
    - What others have done to domains since they were seen last, and was written now; in check mode, what would be written. C(act) is C(moved), C(stopped) or
      C(started).
  returned: success
  type: list
  elements: dict
  sample:
    - {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, act: moved, msg: Domain web1 was moved from kvm2 to kvm1 without this collection.}
moves:
  description:
    - The moves in flight, without samples and history. C(host) is the host that reports the move, null if only the ledger has it; C(watched) states whether a
      watcher enforces its limits, null if that is not known; C(line) is the line for people.
  returned: success
  type: list
  elements: dict
  sample: [{id: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10, status: running, host: kvm1, watched: true, line: kvm1 -> kvm2  web1  running}]
hosts:
  description: The hosts by state in the ledger (C(enabled), C(maintenance), C(fenced)), and those that are C(not in the ledger) or C(silent).
  returned: success
  type: dict
  sample: {enabled: [kvm1, kvm2, kvm3], maintenance: [], fenced: [], not in the ledger: [], silent: []}
silent:
  description: The hosts that did not answer, each with the reason.
  returned: success
  type: dict
  sample: {}
maintenance:
  description: The open maintenance runs, one line each.
  returned: success
  type: list
  elements: str
  sample: ['7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01  running  begun 2026-11-21 01:00 UTC: 1 of 3 hosts done, kvm2 in progress: drain']
evacuated:
  description: The domains that were started after the death of their host, which was not cleaned yet, one line each with the timeline.
  returned: success
  type: list
  elements: str
  sample: ['kvm2 -> kvm3  web4  detection 20.1 s, evidence 6.0 s, start 0.3 s, verification 2.3 s: 28.7 s']
protected_domains:
  description: Number of domains whose definition is saved for an evacuation.
  returned: success
  type: int
  sample: 12
protected_hours:
  description: How many hours ago each host was protected; without the hosts that never were.
  returned: success
  type: dict
  sample: {kvm1: 1, kvm2: 3, kvm3: 1}
ledger:
  description: Folder or address of the ledger; null if it could not be opened.
  returned: success
  type: str
  sample: /root/.local/state/kvmfleet/ledger
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import fleet_status_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.seen_host import SEEN_PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Report the domains of the host; the action plugin of the same name does everything else on the control node."""
    module = AnsibleModule(argument_spec=fleet_status_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(SEEN_PHASES, module.params))


if __name__ == "__main__":
    main()
