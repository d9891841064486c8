#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuate
short_description: Start domains of a dead host on this host, on evidence
version_added: 0.1.0
description:
  - Starts domains of a dead host on the host on which the task runs, from the definitions that M(kvmfleet.migration.protect) saved.
  - "Nothing is started without proof. All of these are required: evidence that the dead host is off; that it answers neither SSH, from the control node and
    from this host, nor libvirt; that no image of a domain is open for writing anywhere; that every host that answers was asked for the domains and has none
    of them active; that every other host on which a domain may be according to the ledger is off by evidence as well; and that the silence of all further
    hosts was accepted by name. A host that answers is never evacuated; no option overrides this."
  - A host that may hold a clean-shutdown token is refused with C(unsafe), because it could release itself when it returns. Revoke the token first, on a host
    that sees its shared storage (O(kvmfleet.migration.host#module:revoke_token)). This is checked again after the host was proved to be off.
  - Evidence is O(fencing), or the confirmation of a person (O(force_down)). Without either, the fence agent that the inventory variable C(kvmfleet_fencing)
    of the dead host names switches the host off. If the host has an agent, the agent is asked again directly before domains are started, whatever the
    evidence is.
  - A host that renews its lease in the etcd of the ledger after there was evidence is on, and nothing is started, whatever the evidence is. The task waits
    until the host has not renewed its lease for as long as a renewal takes; or, if it has renewed it since the task began, until the lease has ended. A
    lease that cannot be read prevents nothing.
  - The scheduler checks this host against the saved requests. A domain is not started if this host was not proved to see one of its disks while all hosts
    were healthy, or does not see it now. The check of a disk includes the backing and data files that its image needs. A volume has to be the same file or
    device in the pool of this host. A disk that libvirt may leave out (C(startupPolicy)) is checked if its path exists here, unless it is read-only.
  - Other resources of its host that a domain needs are checked like its disks. These are its firmware variables, the state of its emulated TPM, shared
    folders (9p, virtiofs), persistent memory, and a kernel, firmware or other boot file outside C(/usr). A domain for which only the dead host had one of
    these is in RV(lost_until_return), unless O(accept_fresh) accepts a new one.
  - Each domain has a record in the ledger. The record is C(pre-migrating) on disk before the domain is started, and C(done) when the host has it as
    requested. A domain that could not be started, and of which nothing is left on this host, is C(failed), and the others continue. A record whose result is
    unknown stays C(pre-migrating); when the same task is run again, it asks the host and settles the record. If the dead host is back in the meantime, the
    role P(kvmfleet.migration.recover_host#role) has this done, and nothing is started.
  - If this host calls a bridge, a folder of images, CPUs or a device by another name (C(kvmfleet_bridge_map) and the like), the definition is rewritten, and
    RV(evacuations[].rewritten) has the changes. Check mode shows them with C(--diff). A domain whose definition cannot be rewritten is not started.
  - If this host is refused for a domain, the record of the domain ends as C(conflict). The scheduler refuses it, or it was not proved to see a disk, or it has
    the domain or another one of that name already. If another record holds the domain, that record is left unchanged, and no second one is written.
  - A trait that the policy of a domain requires for its live migrations, such as that of C(post_copy), is not required for its start. If this host lacks it,
    a warning names trait, domain and host.
  - A record in C(done) prevents the release of the dead host when it returns, until M(kvmfleet.migration.evacuation_cleanup) has run there.
  - Requires root on the host, and a local O(uri).
options:
  source:
    description: The dead host, by its name in the ledger or its C(host_id).
    type: str
    required: true
  domains:
    description:
      - Names or UUIDs of the domains to start. The default is all domains that may be on the dead host according to the ledger, except those that it did not
        have any more when it was protected last, because they were deleted or moved by hand.
      - Domains that are left out are returned in RV(not_selected).
    type: list
    elements: str
  fencing:
    description:
      - Evidence that the dead host is off, as the step that fenced it wrote it. Required are C(host), C(action) (V(off), or V(status) if it was already off;
        a reboot is not off), C(status) (V(off)) and C(at) (RFC 3339). Optional are C(kind), C(host_id), C(agent), C(output), C(by), C(ttl_seconds) (300) and
        C(reason).
      - Evidence counts for C(ttl_seconds). That of the kind C(fence_agent) counts longer if the inventory names the agent, because the agent is asked again.
      - Evidence of the kind C(watchdog), as in RV(evidence), has the action C(reset) and C(lease_revision). The lease of the host is read again.
      - Documents about further silent hosts of the ledger count for those hosts.
      - Mutually exclusive with O(force_down).
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
    description:
      - Names of other hosts that do not answer, on which certainly none of the domains runs. This is recorded. A host whose document in the ledger cannot be
        read is named by its ID.
      - Not necessary for a host that is off according to its fence agents, its watchdog or O(fencing), nor for one that was given up with
        O(kvmfleet.migration.host#module:source_discarded).
      - A domain that may be on one of these hosts according to the ledger is not started without evidence that the host is off; the other domains are.
    type: list
    elements: str
    default: []
  accept_fresh:
    description:
      - Resources that a domain may get anew if only the dead host had them. V(nvram) are the variables of its firmware, which libvirt creates from their
        template; V(tpm) is the state of its emulated TPM, which is then empty.
      - Without this option, such a domain is in RV(lost_until_return). A new resource lacks the data that the domain stored there, such as boot entries,
        Secure Boot keys, and keys of encrypted disks.
      - If a file from an earlier placement of the domain is already at that path on this host, it is not new, and the domain is not started.
      - No option replaces shared folders, persistent memory, or boot files outside C(/usr) that only the dead host had.
    type: list
    elements: str
    choices: [nvram, tpm]
    default: []
    version_added: 0.2.0
  force:
    description:
      - Start domains on this host even if the scheduler refuses it. The records are marked C(FORCED_REBUILD).
      - It does not override missing evidence or a disk that is not proved to be shared.
    type: bool
    default: false
  state:
    description:
      - The state that domains get. V(as_recorded) is the last known state, running, paused or off; a domain that was off is only defined.
      - V(running) starts all of them, V(defined) starts none.
    type: str
    choices: [as_recorded, running, defined]
    default: as_recorded
  parallel:
    description: Number of domains that are started at the same time, from 1 to 64. Domains with the highest C(priority) in their policy come first, then the
      largest.
    type: int
    default: 4
  lock_wait_seconds:
    description:
      - How long to wait after fencing until the locks on images are gone, from 0 to 3600. The default depends on how long the storage keeps the locks of a
        dead host. It is 315 s for CephFS (its C(session_autoclose) of 300 s) and 105 s for all others (the lease of an NFSv4 server is 90 s). Locks that
        outlive their host, such as those of NFS 3, are not waited for.
      - A domain whose image is still locked after that is not started. The locks of disks that are marked shareable are not checked.
    type: int
  restart_limit:
    description:
      - A domain that was on several hosts when they died may be what kills them. With this option it is not started (C(unsafe)), and waits for a person, who
        starts it by a task without this option.
    type: dict
    version_added: 0.2.0
    suboptions:
      hosts:
        description: The number of hosts that died while the domain was on them, O(source) included, from 2 to 5.
        type: int
        required: true
      hours:
        description: The number of hours in which they died, from 1 to 720.
        type: int
        required: true
  detection:
    description:
      - How the death of O(source) was detected. It is only recorded, for the timeline of each domain in C(status) and in the report; it is no evidence, and
        nothing is decided by it.
      - A time that is not RFC 3339 with a time zone is refused (C(invalid_argument)). If a time is in the future, or the silence began after it was detected,
        the clock of the control node may have been set since. The detection is then not recorded, with a warning, and the evacuation continues.
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
        description: What has judged that, for people.
        type: str
        required: true
  accept_locked:
    description:
      - Confirmation of a person that images may be locked, for example if the storage keeps the locks of a dead host. It is recorded.
      - It applies to the images that it names, and only if a fence agent, or a tasks file (O(fencing)), has proved that the host is off. It does not apply
        with O(force_down).
      - It overrides only the check of this module. QEMU takes the same locks, and does not start a domain whose image the storage still keeps locked. Free
        the lock on the storage first; the guide on evacuation of this collection shows how (C(docs/guides/evacuation.md)).
    type: dict
    suboptions:
      images:
        description: Paths of images, as the definition that was saved names them. RV(failures) has these paths, too, if this host has others.
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
  _definitions:
    description:
      - Internal. Definitions that the action plugin sends to the host. Do not use it in playbooks.
    type: dict
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
notes:
  - In check mode nothing is fenced, and no agent is called. A host that has an agent counts as one that could be fenced.
  - The role P(kvmfleet.migration.evacuate_host#role) fences once and distributes the domains among all survivors.
  - The saved data may be old. RV(ages) states their age.
seealso:
  - module: kvmfleet.migration.protect
  - module: kvmfleet.migration.evacuate_plan
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

- name: Start one domain after a person has confirmed that the host is off
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
  description: The records of the domains. For domains that were named and had been evacuated before, these are the earlier records.
  returned: success, and on failure where there are any
  type: list
  elements: dict
  contains:
    rewritten:
      description:
        - What differs in the definition on this host, which has other names (C(kvmfleet_bridge_map) and the like). Missing if nothing does.
        - The place of each name, the name before and after, and the definition, V(persistent), or V(live) for a transient domain.
      type: list
      elements: dict
      sample:
        - {path: "devices[1]/interface[1]/source[1]/@bridge", before: br0, after: br-prod, definitions: [persistent]}
      version_added: 0.2.0
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
  description: The dead host, as the ledger describes it.
  returned: success, and on failure where it was found
  type: dict
  sample: {host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
not_selected:
  description: Domains that may be on the dead host and were not in O(domains), or have been missing from it since C(missing_since).
  returned: success
  type: list
  elements: dict
  sample: []
lost_until_return:
  description: Domains that cannot be started anywhere before their host returns, with C(reasons). This is a failure only if they were named.
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
  description: Domains of the ledger that should be on hosts that answer, and are on none of them. They are never started unless they are named.
  returned: success
  type: list
  elements: dict
  sample: []
missing_records:
  description:
    - Moves and evacuations that the ledger lacks, but that this host remembers, or another host whose facts are known. The form is that of
      RV(kvmfleet.migration.protect#module:missing_records).
    - A task that sees such a record neither moves nor starts its domain until a person has settled it.
  returned: success
  type: list
  elements: dict
  sample: []
ages:
  description: For each domain, by name, the age of its document in seconds.
  returned: success
  type: dict
  sample: {web1: 3600}
evidence:
  description:
    - The evidence that the host is off.
    - For a host with several levels of devices, it has the C(level) that succeeded, and the C(attempts) of all devices in the form of RV(attempts).
    - For a host that its watchdog has reset, its C(kind) is C(watchdog), its C(action) C(reset), and C(lease_revision) is that of the host's last lease.
  returned: when it was taken
  type: list
  elements: dict
  sample:
    - {kind: fence_agent, host: kvm1, host_id: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01, agent: fence_ipmilan, action: 'off', status: 'off',
       output: 'Status: OFF', at: '2026-11-21T03:10:00.000Z', by: root@control pid 4711, ttl_seconds: 300, reason: null}
failures:
  description: Reasons why domains were not started; C(domain), C(uuid), C(msg), C(error_code).
  returned: failure of single domains
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import evacuate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.evacuate import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, run_module, run_phase


def evacuate(module: AnsibleModule) -> Result:
    """Run the phase that the action plugin requests, with the definitions that it passes separately."""
    work, definitions = module.params["_work"] or {}, module.params["_definitions"] or {}
    orders = [{**order, "definition": definitions.get(order["uuid"])} for order in work.get("orders", ())]
    return run_phase(PHASES, {"uri": module.params["uri"], "_work": {**work, "orders": orders}})


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    run_module(AnsibleModule(argument_spec=evacuate_spec(), supports_check_mode=True), evacuate)


if __name__ == "__main__":
    main()
