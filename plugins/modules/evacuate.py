#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuate
short_description: Start a dead host's domains on this host, on evidence
version_added: 0.1.0
description:
  - Starts domains of a host that is dead on the host that the task runs on, from the definitions that M(kvmfleet.migration.protect) saved.
  - "Nothing is started on a guess. All of this is needed: evidence that the dead host is off; that it answers neither SSH, asked from the control node and
    from here, nor libvirt; that no image of a domain is open for writing anywhere; that every host that answers was asked for the domains and none has
    them active; that every other host that a domain may be on by the ledger is off by evidence as well; and that the silence of all further hosts was
    accepted by name. A host that answers is never evacuated, by no option."
  - A host that may hold a clean-shutdown token is refused with C(unsafe), because it could release itself when it returns. Revoke the token first, on a
    host that sees its shared storage (O(kvmfleet.migration.host#module:revoke_token)). This is checked again after the host was proved to be off.
  - Evidence is O(fencing), or a person's word (O(force_down)); without either the dead host is switched off by the fence agent that its inventory
    variable C(kvmfleet_fencing) names. Where it has an agent, that is asked again right before domains are started, whatever the evidence is.
  - This host is checked by the scheduler from the saved requests. A disk that this host was not proved to see while all was well, or does not see now,
    is not started on. A disk counts with the backing and data files that its image needs.
  - Whatever else of its host a domain needs is judged like its disks. That is its firmware variables, the state of its emulated TPM, shared folders (9p,
    virtiofs), persistent memory, and a kernel, firmware or other boot file outside C(/usr). A domain of which only the dead host had one of these is in
    RV(lost_until_return), unless O(accept_fresh) accepts a fresh one.
  - Each domain has a record in the ledger, which is C(pre-migrating) on disk before the domain is started, and C(done) when the host has it as wanted. A
    domain that could not be started, and of which nothing is left here, is C(failed), and the others go on. What could not be told stays
    C(pre-migrating); the same task again asks the host and settles it.
  - C(done) withholds the release of the dead host when it returns, until M(kvmfleet.migration.evacuation_cleanup) has run there.
  - Needs root on the host, and a local O(uri).
options:
  source:
    description: The dead host, by its name in the ledger or its C(host_id).
    type: str
    required: true
  domains:
    description:
      - Names or UUIDs of the domains to start. By default all that may be on the dead host by the ledger.
      - What is left out is returned in RV(not_selected).
    type: list
    elements: str
  fencing:
    description:
      - Evidence that the dead host is off, as the step that fenced it has written it. Needed are C(host), C(action) (V(off), or V(status) where it was off
        already; a reboot is not off), C(status) (V(off)) and C(at) (RFC 3339); also C(kind), C(host_id), C(agent), C(output), C(by), C(ttl_seconds) (300)
        and C(reason).
      - Documents about further silent hosts of the ledger count for those.
      - Not with O(force_down).
    type: list
    elements: dict
  force_down:
    description: A person's word that the dead host is off. It is recorded. An agent that says otherwise, or a host that answers, counts more.
    type: dict
    suboptions:
      reason:
        description: How the person knows.
        type: str
        required: true
      by:
        description: Who says it. By default who runs the task.
        type: str
  accept_silent:
    description: Names of other hosts of which it is certain, although they do not answer, that none of the domains runs there. It is recorded.
    type: list
    elements: str
    default: []
  accept_fresh:
    description:
      - What a domain may get afresh where only the dead host had it. V(nvram) are the variables of its firmware, which libvirt makes from their template;
        V(tpm) is the state of its emulated TPM, which is empty then.
      - Without it such a domain is in RV(lost_until_return). What it had kept there, boot entries, Secure Boot keys, keys of encrypted disks, is not in a fresh
        one.
      - A file that is at that path here already, from an earlier stay, is not fresh, and the domain is not started.
      - Shared folders, persistent memory, and boot files outside C(/usr) that only the dead host had are replaced by no option.
    type: list
    elements: str
    choices: [nvram, tpm]
    default: []
    version_added: 0.2.0
  force:
    description:
      - Start domains here although the scheduler refuses it. The records are marked C(FORCED_REBUILD).
      - It overrides no evidence, and no disk that is not proved.
    type: bool
    default: false
  state:
    description:
      - The state that domains get. With V(as_recorded) the one that was seen last, running, paused or off; one that was off is only defined.
      - V(running) starts them all, V(defined) starts none.
    type: str
    choices: [as_recorded, running, defined]
    default: as_recorded
  parallel:
    description: How many domains are started at the same time, from 1 to 64. The most important come first (C(priority) of their policy), then the largest.
    type: int
    default: 4
  lock_wait_seconds:
    description:
      - How long to wait, once the host is fenced, for locks on images to go, from 0 to 3600. By default as long as their storage keeps the locks of a dead
        host, 315 s for CephFS (its C(session_autoclose) of 300 s) and 105 s for all else (the lease of an NFSv4 server is 90 s). Locks that outlive
        their host, as those of NFS 3 do, are not waited for.
      - A domain whose image is locked after that is not started. A disk that is marked shareable is not judged by its lock.
    type: int
  accept_locked:
    description:
      - A person's word that images may be locked, as where the storage keeps the locks of a host that is gone. It is recorded.
      - It counts for the images that it names, and only where a fence agent, or a tasks file (O(fencing)), has proved that the host is off. With O(force_down)
        it does not.
      - It overrides this module's check only. QEMU takes the same locks, and does not start a domain whose image the storage still keeps locked.
        Free the lock on the storage first; the collection's guide on evacuation shows how (C(docs/guides/evacuation.md)).
    type: dict
    suboptions:
      images:
        description: Paths of images, as RV(failures) names them.
        type: list
        elements: str
        required: true
      reason:
        description: How the person knows that nobody writes them.
        type: str
        required: true
      by:
        description: Who says it. By default who runs the task.
        type: str
  _definitions:
    description:
      - Internal. Definitions on their way from the action plugin to the host. Not for playbooks.
    type: dict
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
notes:
  - In check mode nothing is fenced, and no agent is asked to; a host that has an agent counts as one that could be fenced.
  - The role P(kvmfleet.migration.evacuate_host#role) fences once and shares the domains out among all survivors.
  - What is saved may be old. RV(ages) says how old.
seealso:
  - module: kvmfleet.migration.protect
  - module: kvmfleet.migration.evacuation_cleanup
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See what would be started here, and what not
  kvmfleet.migration.evacuate:
    source: kvm1
  check_mode: true

- name: Fence the host by its agent and start all its domains here
  kvmfleet.migration.evacuate:
    source: kvm1

- name: Start one domain on a person's word
  kvmfleet.migration.evacuate:
    source: kvm1
    domains: [web1]
    force_down:
      reason: I have pulled both power cords
      by: Ada

- name: Take the evidence of a switched power strip
  kvmfleet.migration.evacuate:
    source: kvm1
    fencing:
      - host: kvm1
        action: "off"
        status: "off"
        at: "{{ strip.switched_at }}"
        output: "{{ strip.stdout }}"
"""

RETURN = r"""
evacuations:
  description: The records of the domains; of those that were named and had been evacuated before, the records of then.
  returned: success, and on failure where there are any
  type: list
  elements: dict
  sample:
    - id: 2f0f8f8e-8f0c-4c1e-9d5e-0a6a3b7d1c11
      type: evacuation
      status: done
      reason: null
      forced: null
      superseded_by: null
      wanted_state: running
      domain: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
      source: {host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
      destination: {host: kvm2, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
      before: {state: running, state_at: '2026-11-21T03:00:00.000Z', persistent: true, autostart: false, saved_at: '2026-11-21T03:00:00.000Z'}
source:
  description: The dead host, as it was found in the ledger.
  returned: success, and on failure where it was found
  type: dict
  sample: {host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
not_selected:
  description: Domains that may be on the dead host and were left out by O(domains).
  returned: success
  type: list
  elements: dict
  sample: []
lost_until_return:
  description: Domains that cannot be started anywhere before their host returns, with C(reasons). A failure only where they were named.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a13
      name: scratch
      state: running
      saved_at: '2026-11-21T03:00:00.000Z'
      reasons: [no other host was proved to see disk vda (/var/lib/libvirt/images/scratch.qcow2)]
unaccounted:
  description: Domains of the ledger that should be on hosts that answer, and are on none of them. They are never started unasked.
  returned: success
  type: list
  elements: dict
  sample: []
missing_records:
  description:
    - Moves and evacuations that this host remembers, or another one that told its facts, and the ledger does not, in the form of
      RV(kvmfleet.migration.protect#module:missing_records).
    - Their domains are neither moved nor started before a person has settled them.
  returned: success
  type: list
  elements: dict
  sample: []
ages:
  description: By name of each domain, how many seconds ago its document was written.
  returned: success
  type: dict
  sample: {web1: 3600}
evidence:
  description: What says that the host is off.
  returned: when it was taken
  type: list
  elements: dict
  sample:
    - {kind: fence_agent, host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, agent: fence_ipmilan, action: 'off', status: 'off',
       output: 'Status: OFF', at: '2026-11-21T03:10:00.000Z', by: root@control pid 4711, ttl_seconds: 300, reason: null}
failures:
  description: Why domains were not started; C(domain), C(uuid), C(msg), C(error_code).
  returned: failure of single domains
  type: list
  elements: dict
  sample: []
error_code:
  description: A stable word for what went wrong. Missing or contrary evidence is C(unsafe).
  returned: failure
  type: str
  sample: unsafe
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuate_spec import evacuate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.evacuate import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def evacuate(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Do what the action plugin asks for, with the definitions that came beside it."""
    work, definitions = module.params["_work"] or {}, module.params["_definitions"] or {}
    orders = [{**order, "definition": definitions.get(order["uuid"])} for order in work.get("orders", ())]
    return in_phase(PHASES, {**module.params, "_work": {**work, "orders": orders}})


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    run(AnsibleModule(argument_spec=evacuate_spec(), supports_check_mode=True), evacuate)


if __name__ == "__main__":
    main()
