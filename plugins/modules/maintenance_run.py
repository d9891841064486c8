#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_run
short_description: Show, pause, resume and stop the maintenance of many hosts
version_added: 0.1.0
description:
  - A maintenance run is the document of the ledger that describes a night of maintenance. It has the hosts in order, the step of each, the limits,
    the process that carries it out, and who paused or stopped it.
  - With V(shown), V(paused), V(resumed) and V(stopped), a person controls a run from another terminal, from AWX, or from another control node.
  - With the other values of O(state), the playbook C(rolling_maintenance) carries it out. Do not use them in other playbooks.
  - No host is asked.
options:
  state:
    description:
      - V(shown) shows the open runs, or the one that O(run) names, and changes nothing.
      - V(paused) holds the run before the next step of any host. The step in progress is finished first.
      - V(resumed) lets it continue, also after its canary.
      - V(stopped) begins no further host. Hosts in progress are finished. If the process of the run is gone, the run is closed at once, and hosts
        that it had begun stay as they are.
      - V(checked) finds the run that O(hosts) continue, and checks the limits of a new one.
      - V(started) begins or continues the run.
      - V(next) decides which of O(hosts) may begin now.
      - V(step) begins O(step) of O(host), and ends the step before it. With O(boot_id), the host is about to be rebooted, which is refused if it is in service
        in the ledger, or if guests run there by its facts.
      - V(fenced) switches O(host) off and on with its fence agent (C(kvmfleet_fencing)), in its step C(reboot). It is refused while the host is not in
        maintenance, or a guest may run there, also one that libvirt may have started at the boot of the host. The run records it before the agent is
        called. If the process is killed then, it is not repeated, unless the host still runs the boot O(boot_id) that was to end. A host that was left off
        is only switched on.
      - V(done) and V(failed) end O(host).
      - V(left) closes the run at the end of the playbook. A paused run stays open without a process.
    type: str
    choices: [shown, paused, resumed, stopped, checked, started, next, step, fenced, done, failed, left]
    default: shown
  run:
    description:
      - ID of the run. Can be omitted if the ledger has only one open run.
      - With V(checked) and V(started), the run to continue, also one that was stopped.
    type: str
  reason:
    description: Why it is paused, resumed or stopped, for people who read it later. It is stored with the person and the time.
    type: str
  process_is_gone:
    description:
      - Confirm that the process that holds the run does not exist any more, where this cannot be verified, as from another control node.
      - It is ignored while the process is known to run.
    type: bool
    default: false
  hosts:
    description: Inventory names of the hosts, in order.
    type: list
    elements: str
    default: []
  lost_hosts:
    description:
      - With V(next), hosts that this process took through their steps until Ansible ended them, for example because they became unreachable.
      - Those that are still in progress are recorded as failed first.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  planned:
    description: With V(started), what was found out about each host, by its name, with C(has_work), C(keep_maintenance) and C(predicted_seconds).
    type: dict
    default: {}
  max_unavailable:
    description: How many hosts of the run may be out of service at the same time. A host that failed after its drain began counts until it is back.
    type: int
    default: 1
  max_failures:
    description: How many hosts may fail before no further host is begun.
    type: int
    default: 0
  canary:
    description: Maintain the first host alone, and then wait for a person, or for O(canary_minutes).
    type: bool
    default: false
  canary_minutes:
    description: The number of minutes to wait after the first host. If it is not given, the run is paused until a person resumes it.
    type: int
  canary_alarm:
    description:
      - A command for the shell of the control node that is run about every 5 seconds while O(canary_minutes) pass. If it does not end with 0 within 60
        seconds, no further host is begun.
    type: str
  until:
    description:
      - The end of the window, with a time zone, for example V(2026-11-21T05:00:00Z). No host is begun that is not predicted to be back by then. Hosts in
        progress are finished.
    type: str
  expected_minutes:
    description:
      - The number of minutes that the maintenance of one host takes without its moves, for O(until).
      - The slowest host of the run so far is the lower bound of the prediction.
    type: int
  host:
    description: Inventory name of the host whose step begins or ends.
    type: str
  step:
    description: The step that begins.
    type: str
    choices: [check, before_drain, drain, maintain, reboot, verify, recover, cut, evacuate, switch_on]
  boot_id:
    description:
      - The boot of the host right before it is rebooted; with V(fenced), the one that it runs now.
      - With V(step), an empty one withdraws the recorded one. The host is not fenced before it was safe to reboot again.
    type: str
  error:
    description: Why the host failed.
    type: str
  drill:
    description:
      - With V(checked) and V(started), the run is a drill (playbook C(drill)) of the one host in O(hosts). No other run is open beside it.
      - The values of a drill that is continued are its own.
    type: dict
    version_added: 0.2.0
    suboptions:
      limit_seconds:
        description: How long after the cut of the power each guest has to run elsewhere.
        type: int
        default: 90
      deadline_seconds:
        description: How long after the cut the drill waits for guests, before it switches the host on again.
        type: int
        default: 300
      reaction:
        description: Whether the drill evacuates the host itself (V(run)), or waits for the automatic reaction of the fleet (V(wait)).
        type: str
        choices: [run, wait]
        default: run
      accept_lost:
        description: Names of guests that may stay off until the host returns.
        type: list
        elements: str
        default: []
      guests:
        description: The names of the guests that run on the host, by UUID.
        type: dict
        default: {}
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.host
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Show the open runs
  kvmfleet.migration.maintenance_run:
  delegate_to: localhost
  run_once: true
  register: maintenance

- name: Pause the only open run before its next step
  kvmfleet.migration.maintenance_run:
    state: paused
    reason: Latency alarm of the database
  delegate_to: localhost
  run_once: true

- name: Resume it
  kvmfleet.migration.maintenance_run:
    state: resumed
  delegate_to: localhost
  run_once: true

- name: Finish the hosts in progress, and begin no other
  kvmfleet.migration.maintenance_run:
    state: stopped
    reason: The window was shortened
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
run:
  description: The run with the state of each host (C(summary)); null if there is none yet.
  returned: with all states but V(shown), V(next), V(step), V(fenced), V(done) and V(failed)
  type: dict
  sample:
    id: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
    state: running
    summary: {kvm1: done, kvm2: 'in progress: drain', kvm3: not begun}
runs:
  description: The open runs, or the one that O(run) names.
  returned: with V(shown)
  type: list
  elements: dict
  sample: []
lines:
  description: The runs as text.
  returned: with V(shown), V(paused), V(resumed), V(stopped) and V(left)
  type: list
  elements: str
  sample: ['7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01  running  begun 2026-11-21 01:00 UTC: 1 of 3 hosts done']
is_continued:
  description: Whether an earlier run is continued.
  returned: with V(checked) and V(started)
  type: bool
  sample: false
options:
  description: The limits of the run.
  returned: with V(checked) and V(started)
  type: dict
  sample: {max_unavailable: 1, max_failures: 0, canary: false, canary_minutes: null, until: null, expected_seconds: null}
unchecked:
  description: The hosts for which it has to be checked that they can be maintained.
  returned: with V(checked) and V(started)
  type: list
  elements: str
  sample: [kvm1, kvm2]
admitted:
  description: The hosts that proceed now, each with the step where it begins or continues, and whether that step was begun before.
  returned: with V(next)
  type: dict
  sample: {kvm1: {step: check, is_repeated: false}}
deferred:
  description: The hosts that do not begin now, each with the reason.
  returned: with V(next)
  type: dict
  sample: {kvm2: 'kvm1 is out of service, and max_unavailable is 1'}
waits_for:
  description: Why nothing proceeds now although it may later; null if there is nothing to wait for.
  returned: with V(next) and V(step)
  type: str
  sample: paused by ann@control pid 4711 at 2026-11-21T02:00:00.000Z
boot_before:
  description: The boot of the host when the step was begun for the first time; null if that is not known.
  returned: with V(step)
  type: str
  sample: 2b2d4a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
fenced:
  description: That the host is fenced in the ledger, with the reason; null if it is not.
  returned: with V(step)
  type: str
  sample: kvm1 is fenced in the ledger (its memory is broken).
  version_added: 0.2.0
summary:
  description: The state of each host.
  returned: with V(next), V(done), V(failed) and V(left)
  type: dict
  sample: {kvm1: done, kvm2: not begun}
is_whole:
  description: Whether every host is done.
  returned: with V(left)
  type: bool
  sample: true
text:
  description: How the run ended, as sentences.
  returned: with V(left)
  type: str
  sample: The maintenance run 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01 is finished.
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import maintenance_run_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=maintenance_run_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
