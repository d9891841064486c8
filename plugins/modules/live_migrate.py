#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: live_migrate
short_description: Move running domains to another libvirt host
version_added: 0.1.0
description:
  - Moves one running domain, or several in a sliding window, from the host the task runs on to another libvirt host, while they go on running.
  - Every move has a record in the ledger. Its outcome is found by asking both hosts, never by how the migration call ended.
  - The move is watched by a process on the source host, so its limits hold also when the control node or the SSH session goes away. The same task
    run again follows a move that is in flight, or settles one that has ended meanwhile.
options:
  name:
    description:
      - Name of the domain to move.
      - Exactly one of O(name), O(uuid) and O(moves) is needed.
    type: str
  uuid:
    description: UUID of the domain to move.
    type: str
  destination: &destination
    description:
      - Inventory name of the host to move to. A name that is not in the inventory is taken as an address.
      - It is checked by all rules of the scheduler first, as M(kvmfleet.migration.scheduler_check) does. Where one refuses it nothing is moved, and the record
        ends as V(conflict) with all reasons.
      - Without it the scheduler chooses the best among the other hosts of the inventory group C(kvmfleet_hosts).
    type: str
  destination_uri: &destination_uri
    description:
      - Libvirt URI of the destination, as the source host reaches it.
      - By default the destination's inventory variable C(kvmfleet_libvirt_uri), else one built from O(transport) and the destination's
        C(ansible_host) or name.
      - One that names a program (C(command), C(netcat), the transport C(ext)), another URI (C(name)) or a password is refused.
    type: str
  transport: &transport
    description: How the source's libvirt reaches the destination's. By default the variable C(kvmfleet_transport), else V(ssh).
    type: str
    choices: [ssh, tls, tcp]
  migrate_uri: &migrate_uri
    description:
      - Where the memory is streamed to, for example V(tcp://10.0.0.2).
      - By default V(tcp://) and the destination's variable C(kvmfleet_migration_address), else libvirt chooses.
    type: str
  timeout_seconds: &timeout_seconds
    description:
      - Absolute limit of the move, counted from the start of its job. V(0) is no limit. By default 800 seconds for each GiB of memory.
    type: int
  on_timeout: &on_timeout
    description:
      - What happens at the limit. With V(abort), the default, the guest goes on running on the source.
      - With V(force_complete) the move is made to end, in post-copy where O(post_copy) permits it. Else the bandwidth cap is lifted, then a pause as long as
        the rest needs is allowed, and only after O(force_suspend_seconds) the guest is suspended until it runs on the destination.
    type: str
    choices: [abort, force_complete]
  force_suspend_seconds: &force_suspend_seconds
    description: How long forcing waits before it suspends the guest, 10 by default.
    type: int
  force_pause_max_seconds: &force_pause_max_seconds
    description:
      - A forced pause that lasts longer than this, 30 by default, and longer than three times its prediction, ends in an abort.
        The guest goes on running on the source.
    type: int
  link_mib: &link_mib
    description: What the link between the hosts carries in MiB/s, for the prediction of the pause. By default it is measured.
    type: int
  stall_seconds: &stall_seconds
    description: Abort when not a single byte was moved for so many seconds, 60 by default. V(0) is never.
    type: int
  queue_timeout_seconds: &queue_timeout_seconds
    description:
      - How long the move waits for its turn under C(kvmfleet_scheduler.limits), 3600 by default, counted from the moment at which O(parallel) has room for it.
        V(0) is no limit.
      - After it nothing was started, the guest runs where it was, and the record ends as V(cancelled), reason V(queue_timeout).
    type: int
  downtime_ms: &downtime_ms
    description: Longest pause of the guest at the end of the move, 500 by default.
    type: int
  downtime_strategy: &downtime_strategy
    description:
      - How the allowed pause grows from O(downtime_ms) divided by O(downtime_steps) to O(downtime_ms).
      - With V(adaptive) it stays small as long as each pass over the memory leaves clearly less to be sent than the one before. As soon as one does not, what
        the rest needs is allowed, at most what a pause of O(downtime_ms) can carry. With O(link_mib) that is reckoned for the link, and a move under
        O(bandwidth_mib) can end although its cap alone would not let it.
      - With V(stepped) it grows with the time, in O(downtime_steps) steps.
      - By default V(adaptive), and V(stepped) where O(downtime_ms), O(downtime_steps) or O(downtime_delay_seconds_per_gib) is given by the task or by a policy.
      - Under either of them the whole of O(downtime_ms) is allowed once half of O(timeout_seconds) is over.
    type: str
    choices: [stepped, adaptive]
  downtime_steps: &downtime_steps
    description: Number of steps in which the allowed pause grows to O(downtime_ms), 10 by default. The first of them is what V(adaptive) begins with.
    type: int
  downtime_delay_seconds_per_gib: &downtime_delay_seconds_per_gib
    description:
      - Seconds between two steps for each GiB of memory, 75 by default. With O(timeout_seconds) the ramp takes at most half of that time.
      - Means something only with O(downtime_strategy=stepped).
    type: int
  auto_converge: &auto_converge
    description:
      - Slow the guest's CPUs down step by step when it writes memory faster than it can be moved. Excludes O(post_copy).
      - By default what the domain's policy, its profile or its host says, else V(false).
    type: bool
  override_policy: &override_policy
    description:
      - Use the task's value also where the domain's own policy, or the profile it names, forbids auto-converge or post-copy. The record keeps it.
      - By default V(false).
    type: bool
  post_copy: &post_copy
    description:
      - Permit to switch the guest over before all of its memory has moved, when the move is forced to its end.
      - From the switch on the guest needs both hosts and the link between them until the rest has come over. Excludes O(auto_converge).
      - By default what the domain's policy, its profile or its host says, else V(false).
    type: bool
  bandwidth_mib: &bandwidth_mib
    description: Cap of the memory stream in MiB/s. V(0), the default, is no cap.
    type: int
  post_copy_bandwidth_mib: &post_copy_bandwidth_mib
    description:
      - Cap in MiB/s of what is fetched in the background once the guest was switched over by post-copy. V(0), the default, is no cap.
      - Means something only where O(post_copy) is permitted.
    type: int
  parallel_connections: &parallel_connections
    description: Number of connections that carry the memory. By default one.
    type: int
  compression: &compression
    description: How the memory is compressed. V(zlib) and V(zstd) need O(parallel_connections), V(xbzrle) excludes it.
    type: str
    choices: [xbzrle, zlib, zstd]
  tls: &tls
    description: Encrypt the memory stream, and disks that are copied, with the hosts' certificates for QEMU. By default V(false).
    type: bool
  copy_storage: &copy_storage
    description:
      - What is done with disks that both hosts do not share. V(none), the default, copies nothing and refuses such a domain.
      - V(auto) copies the disks that are proved to be on two separate stores, and moves the others as they are.
      - V(full) copies every disk that the domain writes to, and refuses a domain of which one is on a shared store.
      - V(incremental) sends only the top image of each disk. The target must be there, with the backing chain that it has on the source, and has to be
        named in O(copy_storage_overwrite).
      - What a disk is built on (backing files, external data files) counts like its image where it is not copied. For V(incremental) samples of the base are
        compared with what the destination has at that path; another file there is refused (C(unsafe)).
      - Whether a folder is one store on both hosts is proved by a new name that is put into it on one host and looked for on the other, both ways.
        That is done in check mode, too, and leaves nothing. A disk of which it cannot be proved is refused (C(unsafe)).
      - Only image files are copied, of the formats raw and qcow2, to the same path. Targets are made at the destination. Where the move fails they are
        removed again; where it succeeds, the images on the source are left there.
    type: str
    choices: [none, auto, full, incremental]
  copy_storage_overwrite: &copy_storage_overwrite
    description:
      - Disks, by target (V(vda)), whose file at the destination may be lost if there is one already. One that a domain there uses is never touched.
      - The file is removed and made anew before the copy begins; it is not brought back if the move fails.
    type: list
    elements: str
  unsafe: &unsafe
    description:
      - Move also when a writable disk is not on storage of a kind that hosts share. Only for a person who knows that both hosts see the same bytes.
      - With O(copy_storage=auto) a disk of which nothing could be proved is then moved without a copy.
    type: bool
  force: &force
    description:
      - Move to O(destination), which has to be named, although the scheduler refuses it. Each rule that is bypassed so is a warning and stands in the
        record's history, whose RV(migrations[].forced) is then V(FORCED_MIGRATE).
      - Never bypassed are that the destination is the source, does not answer, or has not the processor or the machine type that the domain runs on.
        Disks that the hosts may not share need O(unsafe) all the same.
    type: bool
  moves:
    description:
      - Several moves; options in here override those of the task. Each domain once.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the domain. Exactly one of name and UUID.
        type: str
      uuid:
        description: UUID of the domain.
        type: str
      destination: *destination
      destination_uri: *destination_uri
      transport: *transport
      migrate_uri: *migrate_uri
      timeout_seconds: *timeout_seconds
      on_timeout: *on_timeout
      force_suspend_seconds: *force_suspend_seconds
      force_pause_max_seconds: *force_pause_max_seconds
      link_mib: *link_mib
      stall_seconds: *stall_seconds
      queue_timeout_seconds: *queue_timeout_seconds
      downtime_ms: *downtime_ms
      downtime_steps: *downtime_steps
      downtime_delay_seconds_per_gib: *downtime_delay_seconds_per_gib
      downtime_strategy: *downtime_strategy
      auto_converge: *auto_converge
      override_policy: *override_policy
      post_copy: *post_copy
      bandwidth_mib: *bandwidth_mib
      post_copy_bandwidth_mib: *post_copy_bandwidth_mib
      parallel_connections: *parallel_connections
      compression: *compression
      tls: *tls
      copy_storage: *copy_storage
      copy_storage_overwrite: *copy_storage_overwrite
      unsafe: *unsafe
      force: *force
  parallel:
    description: How many of O(moves) run at the same time.
    type: int
    default: 4
  progress:
    description: Print a line on every change of phase, every 10 %, and at least every 10 seconds; or nothing. Never with C(no_log).
    type: str
    choices: [lines, none]
    default: lines
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
notes:
  - Needs root on the source host.
  - Nothing is moved when an argument is wrong, a domain is unknown or not running, or a destination does not answer or has no room.
seealso:
  - module: kvmfleet.migration.migration_info
  - module: kvmfleet.migration.scheduler_check
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Move a domain, wherever the scheduler finds room
  kvmfleet.migration.live_migrate:
    name: web1

- name: Move a busy domain within ten minutes, or leave it where it is
  kvmfleet.migration.live_migrate:
    name: db1
    destination: kvm2
    timeout_seconds: 600
    auto_converge: true

- name: Move a domain with its disks to a host that shares no storage
  kvmfleet.migration.live_migrate:
    name: web1
    destination: kvm2
    copy_storage: auto

- name: Move a domain although the host is kept free, on a person's word
  kvmfleet.migration.live_migrate:
    name: web1
    destination: kvm4
    force: true

- name: Move several, four at a time
  kvmfleet.migration.live_migrate:
    moves:
      - name: web1
        destination: kvm2
      - name: web2
        destination: kvm3
        timeout_seconds: 300
    parallel: 4
"""

RETURN = r"""
migrations:
  description: The record of each move, in the order of the task.
  returned: when a move was begun, predicted, adopted or found done; on failure too
  type: list
  elements: dict
  contains:
    id:
      description: The record's identifier in the ledger; null in check mode, and where nothing had to be done and the ledger knows no move.
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    status:
      description: Where the move stands. Anything but V(completed) at the end fails the task.
      type: str
      sample: completed
    forced:
      description: V(FORCED_MIGRATE) for a move with O(force), else null.
      type: str
      sample: null
    reason:
      description: Why, for V(cancelled), V(error) and some V(completed).
      type: str
      sample: timeout
    domain:
      description: UUID and name.
      type: dict
      sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
    source:
      description: Inventory name, host ID and libvirt's UUID of the source.
      type: dict
      sample: {host: kvm1, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
    destination:
      description: The same of the destination.
      type: dict
      sample: {host: kvm2, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
    policy:
      description: Each field with its effective value and where it came from.
      type: dict
      sample: {timeout_seconds: {value: 600, source: task}}
    storage:
      description: What is copied, where the move copies disks, and whether the target was made by this move.
      type: dict
      sample:
        mode: auto
        disks:
          - {target: vda, path: /var/lib/libvirt/images/web1.qcow2, format: qcow2, capacity_bytes: 16777216, bytes: 200704, action: create, made: true}
    progress:
      description: Last figures of the job, in bytes, bytes a second and percent.
      type: dict
      sample: {percent: 100, iteration: 3}
    samples:
      description: At most 60 readings over the life of the job.
      type: list
      elements: dict
      sample: []
    result:
      description: What the move took, in milliseconds and bytes.
      type: dict
      sample: {elapsed_ms: 1423, downtime_ms: 96, predicted_downtime_ms: null, setup_ms: 2, bytes: 151238656, iterations: 3, mode: pre-copy, rung: null}
    history:
      description: Every change, with time, author and detail.
      type: list
      elements: dict
      sample: [{at: '2026-11-21T03:00:00.000Z', status: accepted, by: root@control, detail: ''}]
missing_records:
  description:
    - Moves and evacuations that the source remembers, or another host of the task that told its facts lately, and the ledger does not, in the form of
      RV(kvmfleet.migration.protect#module:missing_records).
    - Their domains are neither moved nor started before a person has settled them.
  returned: when the moves were looked at
  type: list
  elements: dict
  sample: []
failures:
  description: The moves that failed, in the order of the task.
  returned: when at least one move failed
  type: list
  elements: dict
  contains:
    domain:
      description: Name of the domain, as far as it is known.
      type: str
      sample: web1
    uuid:
      description: UUID of the domain; null for a name that nobody knows.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    msg:
      description: What happened, what state the domain is in, and what to do next.
      type: str
      sample: There is no domain 'web1' on kvm1.
    error_code:
      description: A stable word for what went wrong.
      type: str
      sample: not_found
error_code:
  description: A stable word for what went wrong, of the first of RV(failures).
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_migrate import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Run one phase of the move; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec={**live_migrate_spec(), **internal_spec()}, supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
