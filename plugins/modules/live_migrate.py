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
  - Moves one running domain, or several in a sliding window, from the host on which the task runs to another libvirt host, without stopping them.
  - Every move has a record in the ledger. Its result is determined by asking both hosts, never by the return value of the migration call.
  - A process on the source host watches the move, so its limits hold even if the control node or the SSH session is lost. When the same task is run again, it
    follows a move that is in flight, or settles one that has ended in the meantime.
options:
  name:
    description:
      - Name of the domain to move.
      - Exactly one of O(name), O(uuid) and O(moves) is needed.
    type: str
    aliases: [domain, guest]
  uuid:
    description: UUID of the domain to move.
    type: str
  destination: &destination
    description:
      - Inventory name of the destination host. A name that is not in the inventory is used as an address.
      - All rules of the scheduler check the destination first, as M(kvmfleet.migration.scheduler_check) does. If a rule refuses it, nothing is moved, and the
        record ends as V(conflict) with all reasons. The same applies to a destination that is refused for another reason, because it does not answer, has
        another domain of that name, or cannot have the disks, or because a host lacks what the move requires.
      - Without this option, the scheduler chooses the best of the other hosts in the inventory group C(kvmfleet_hosts). It passes over hosts that would use up
        the reserve of C(kvmfleet_scheduler.failover_hosts).
    type: str
  destination_uri: &destination_uri
    description:
      - libvirt URI of the destination, as the source host reaches it.
      - The default is the destination's inventory variable C(kvmfleet_libvirt_uri). Without it, the URI is built from O(transport) and the destination's
        C(ansible_host) or name.
      - A URI with a program (C(command), C(netcat), the transport C(ext)), another URI (C(name)) or a password is refused.
    type: str
    aliases: [desturi]
  transport: &transport
    description: Transport from libvirt on the source to libvirt on the destination. The default is the variable C(kvmfleet_transport), or V(ssh) without it.
    type: str
    choices: [ssh, tls, tcp]
  migrate_uri: &migrate_uri
    description:
      - Address to which the memory is sent, for example V(tcp://10.0.0.2).
      - The default is V(tcp://) with the destination's variable C(kvmfleet_migration_address). Without it, libvirt chooses.
      - An address that would be used for several destinations is refused, because it is that of one host.
    type: str
    aliases: [migrateuri]
  timeout_seconds: &timeout_seconds
    description:
      - Absolute time limit of the move in seconds, counted from the start of its job. V(0) means no limit. The default is 800 seconds for each GiB of memory
        and of copied disks, or C(timeout_seconds_per_gib) of C(kvmfleet_migration_policy) of the source instead of 800, and at most a week.
    type: int
    aliases: [timeout]
  on_timeout: &on_timeout
    description:
      - Action at the time limit. With V(abort), the default, the guest continues to run on the source.
      - With V(force_complete), the move is made to finish, by post-copy if O(post_copy) permits it. Otherwise the bandwidth cap is lifted, then a downtime as
        long as the rest needs is allowed. Only after O(force_suspend_seconds) is the guest suspended until it runs on the destination.
    type: str
    choices: [abort, force_complete]
  force_suspend_seconds: &force_suspend_seconds
    description: How long forcing waits before it suspends the guest. The default is 10 seconds.
    type: int
  force_pause_max_seconds: &force_pause_max_seconds
    description:
      - A forced pause is aborted if it lasts longer than this and longer than three times its prediction. The guest then continues to run on the source.
      - The default is the value in the policy of the domain, its profile or its host, or 30 seconds without one.
    type: int
  link_mib: &link_mib
    description: Speed of the link between the hosts in MiB/s, for the prediction of the downtime. By default it is measured.
    type: int
  stall_seconds: &stall_seconds
    description: Abort the move if no byte was transferred for this number of seconds, by default 60. V(0) disables the check.
    type: int
  queue_timeout_seconds: &queue_timeout_seconds
    description:
      - How long the move waits for admission under C(kvmfleet_scheduler.limits), by default 3600 seconds. The time counts from the moment at which
        O(parallel) allows the move. V(0) means no limit.
      - After this time nothing was started, the guest is still on the source, and the record ends as V(cancelled) with the reason V(queue_timeout).
    type: int
  busy_wait_seconds: &busy_wait_seconds
    description:
      - How long the move waits for the end of another job of the domain, for example a backup or the copy of a disk, by default 0. QEMU cannot migrate a guest
        meanwhile. The time counts from the moment at which the source finds the job, and other moves of the task do not wait for this one.
      - After this time nothing was started, the guest is still on the source, and the record ends as V(cancelled) with the reason V(busy).
      - With V(0), a domain with such a job is refused with V(invalid_state), and the job is named.
    type: int
  downtime_ms: &downtime_ms
    description: Longest downtime of the guest at the end of the move. The default is 500 milliseconds.
    type: int
    aliases: [downtime]
  downtime_strategy: &downtime_strategy
    description:
      - How the allowed downtime rises from O(downtime_ms) divided by O(downtime_steps) to O(downtime_ms).
      - With V(adaptive), it stays low as long as each pass over the memory leaves clearly less to send than the one before. As soon as a pass does not, the
        downtime that the rest needs is allowed, at most what O(downtime_ms) can carry. With O(link_mib), this is computed for the link while
        O(bandwidth_mib) limits the move, which can then finish although its cap alone would prevent it.
      - With V(stepped), it rises over time, in O(downtime_steps) steps.
      - The default is V(adaptive), or V(stepped) if the task or a policy sets O(downtime_ms), O(downtime_steps) or O(downtime_delay_seconds_per_gib).
      - With both strategies, the whole of O(downtime_ms) is allowed after half of O(timeout_seconds).
    type: str
    choices: [stepped, adaptive]
  downtime_steps: &downtime_steps
    description: Number of steps in which the allowed downtime rises to O(downtime_ms), by default 10. V(adaptive) starts with the first of these steps.
    type: int
  downtime_delay_seconds_per_gib: &downtime_delay_seconds_per_gib
    description:
      - Seconds between two steps for each GiB of memory, by default 75. With O(timeout_seconds), the ramp takes at most half of that time.
      - Only used with O(downtime_strategy=stepped).
    type: int
  auto_converge: &auto_converge
    description:
      - Slow down the CPUs of the guest step by step if it writes memory faster than the memory can be sent. Mutually exclusive with O(post_copy).
      - The default is the value in the policy of the domain, its profile or its host, or V(false) without one. V(true) here switches off a default for
        O(post_copy).
    type: bool
  override_policy: &override_policy
    description:
      - Use the value of the task even if the domain's own policy, or the profile that it names, forbids auto-converge or post-copy. The record keeps this.
      - Refused with C(forbidden), before any host is asked, if an administrator has taken it away. This is done with the inventory variable
        C(kvmfleet_override_policy_allowed), or in the ledger with M(kvmfleet.migration.ledger_settings).
      - The default is V(false).
    type: bool
  post_copy: &post_copy
    description:
      - Permit the guest to switch over before all of its memory has moved, if the move is forced to finish.
      - After the switch-over, the guest needs both hosts and the link between them until the rest of its memory has arrived. Mutually exclusive with
        O(auto_converge).
      - The default is the value in the policy of the domain, its profile or its host, or V(false) without one. V(true) here switches off a default for
        O(auto_converge). If the host has both as defaults, post-copy is used where both hosts are known to support it, else auto-converge.
    type: bool
    aliases: [postcopy]
  bandwidth_mib: &bandwidth_mib
    description: Bandwidth cap of the memory transfer in MiB/s. V(0), the default, means no cap.
    type: int
    aliases: [bandwidth]
  post_copy_bandwidth_mib: &post_copy_bandwidth_mib
    description:
      - Bandwidth cap in MiB/s of the background transfer after the switch-over to post-copy. V(0), the default, means no cap.
      - Only used if O(post_copy) is permitted.
    type: int
    aliases: [postcopy_bandwidth]
  parallel_connections: &parallel_connections
    description:
      - Number of connections that carry the memory.
      - The default is one. On a link of more than 12 Gbit/s, according to O(link_mib), it is one for each 8 Gbit/s, at most one for each CPU of the hosts, and
        at most 8. It stays one if the guest is pinned to CPUs of its host, if O(bandwidth_mib) is below that, or if the hosts or other options do not permit
        several connections. The history of the record has the reason.
    type: int
  compression: &compression
    description: Compression of the memory transfer. V(zlib) and V(zstd) need O(parallel_connections), V(xbzrle) excludes it.
    type: str
    choices: [xbzrle, zlib, zstd]
  tls: &tls
    description: Encrypt the memory transfer, and disks that are copied, with the hosts' certificates for QEMU. The default is V(false).
    type: bool
  copy_storage: &copy_storage
    description:
      - How to treat disks that the hosts do not share. V(none), the default, copies nothing and refuses such a domain.
      - V(auto) copies the disks that are proved to be on separate storage, and moves the others as they are.
      - V(full) copies every disk to which the domain writes, and refuses a domain with a disk on shared storage.
      - V(incremental) sends only the top image of each disk. The target must exist, with the same backing chain as on the source, and must be named in
        O(copy_storage_overwrite). A target whose header names another base is refused (C(not_supported)).
      - The base of a disk (backing files, external data files) is treated like its image if it is not copied. For V(incremental), samples of the base are
        compared with the file that the target names on the destination; a different file is refused (C(unsafe)).
      - To prove whether a folder is the same storage on both hosts, each host creates a file with a new name in it, and the other host looks for this file.
        This is also done in check mode, and leaves nothing behind. A disk for which there is no proof is refused (C(unsafe)).
      - The same test is made for disks that are not copied and that are on shared storage. A destination whose file at that path is another one is refused.
      - V(all) and V(inc), the words of C(virsh migrate), mean V(full) and V(incremental).
      - Only image files in the formats raw and qcow2 are copied, to the same path. Targets are created at the destination. If the move fails, they are
        removed again; if it succeeds, the images on the source stay there.
    type: str
    choices: [none, auto, full, incremental, all, inc]
  copy_storage_overwrite: &copy_storage_overwrite
    description:
      - Targets (V(vda)) of disks whose existing file at the destination may be overwritten. A file that a domain there uses is never touched.
      - The file is removed and created again before the copy starts; it is not restored if the move fails.
    type: list
    elements: str
  unsafe: &unsafe
    description:
      - Move the domain even if a writable disk is on storage of a kind that hosts do not share, or seems to be another file or device at the destination.
        Use it only if you know that both hosts see the same data.
      - With O(copy_storage=auto), a disk for which nothing could be proved is then moved without a copy.
    type: bool
  one_way: &one_way
    description:
      - Whether the guest may move to a host from which it could not move back, because QEMU there is newer, or because its own host lacks the machine type, or
        would show it other threads of a processor. With V(false), the scheduler refuses such a host and names what would refuse the way back.
      - The default is V(true). The role C(rolling_maintenance) drains with V(false), unless it is told otherwise.
    type: bool
  force: &force
    description:
      - Move to O(destination), which is then required, even if the scheduler refuses it. Each rule that is bypassed is a warning and is kept in the history
        of the record, whose RV(migrations[].forced) is then V(FORCED_MIGRATE).
      - Some rules are never bypassed. The destination must not be the source, must answer, and must have the processor and the machine type that the domain
        runs on. Disks that the hosts may not share still need O(unsafe).
      - The default is V(false).
    type: bool
  moves:
    description:
      - Several moves. Options of a move override those of the task. Each domain may be listed once.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the domain. Exactly one of name and UUID is needed.
        type: str
        aliases: [domain, guest]
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
      busy_wait_seconds: *busy_wait_seconds
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
      one_way: *one_way
      force: *force
  parallel:
    description:
      - Maximum number of O(moves) that run at the same time, from 1 to 64.
      - With V(auto), the source decides how many run at once, and shares the link among them. O(link_mib) and O(bandwidth_mib) bound what it may use.
    type: str
    default: auto
  progress:
    description: Print a line on every change of phase, every 10 %, and at least every 10 seconds; or print nothing. Nothing is printed with C(no_log).
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
  - Requires root on the source host.
  - Nothing is moved if an argument is invalid, a domain is unknown or not running, or a destination does not answer or lacks capacity.
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

- name: Move a domain although the scheduler keeps the host free
  kvmfleet.migration.live_migrate:
    name: web1
    destination: kvm4
    force: true

- name: Move several, as many at a time as the link carries
  kvmfleet.migration.live_migrate:
    moves:
      - name: web1
        destination: kvm2
      - name: db1
        destination: kvm3

- name: Move several, at most two at a time
  kvmfleet.migration.live_migrate:
    moves:
      - name: web1
        destination: kvm2
      - name: web2
        destination: kvm3
        timeout_seconds: 300
    parallel: 2
"""

RETURN = r"""
migrations:
  description: The record of each move, in the order of the task.
  returned: when a move was begun, predicted, adopted, refused or found done; on failure too
  type: list
  elements: dict
  contains:
    id:
      description: ID of the record in the ledger. It is null in check mode, and if nothing had to be done and the ledger has no such move.
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    status:
      description: Status of the move. Any status except V(completed) at the end fails the task.
      type: str
      sample: completed
    forced:
      description: V(FORCED_MIGRATE) for a move with O(force), otherwise null.
      type: str
      sample: null
    filters_off:
      description: Filters of the scheduler that were switched off at the destination (C(kvmfleet_scheduler.filters)). Missing if there were none.
      type: list
      elements: str
      sample: [labels]
      version_added: 0.2.0
    rewritten:
      description:
        - What differs in the definition at the destination, which has other names there (C(kvmfleet_bridge_map) and the like). Missing if nothing does.
        - The place of each name, the name before and after, and the definitions in which it differs, V(live) and V(persistent).
      type: list
      elements: dict
      sample:
        - {path: "devices[1]/interface[1]/source[1]/@bridge", before: br0, after: br-prod, definitions: [live, persistent]}
      version_added: 0.2.0
    reason:
      description: Reason of the status, for V(cancelled), V(error) and some V(completed).
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
      description: Inventory name, host ID and libvirt's UUID of the destination.
      type: dict
      sample: {host: kvm2, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
    policy:
      description: Each field of the policy with its effective value and its source.
      type: dict
      sample: {timeout_seconds: {value: 600, source: task}}
    storage:
      description: The disks that the move copies, and whether this move created the target.
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
      description: At most 60 samples over the life of the job.
      type: list
      elements: dict
      sample: []
    result:
      description: Figures of the completed move, in milliseconds and bytes.
      type: dict
      sample: {elapsed_ms: 1423, downtime_ms: 96, predicted_downtime_ms: null, setup_ms: 2, bytes: 151238656, iterations: 3, mode: pre-copy, rung: null}
    predicted:
      description: What was predicted before the move, in seconds, milliseconds and bytes. Missing for moves that are not part of a drain.
      type: dict
      sample: {seconds: 2.0, low_seconds: 1.4, high_seconds: 2.8, downtime_ms: 96, bytes: 357564416}
      version_added: 0.2.0
    history:
      description: Every change of the record, with time, author and detail.
      type: list
      elements: dict
      sample: [{at: '2026-11-21T03:00:00.000Z', status: accepted, by: root@control, detail: ''}]
missing_records:
  description:
    - Moves and evacuations that the ledger lacks, but that the source remembers, or another host of the task whose facts are recent. The form is that of
      RV(kvmfleet.migration.protect#module:missing_records).
    - A task that sees such a record neither moves nor starts its domain until a person has settled it.
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
      description: Name of the domain, if it is known.
      type: str
      sample: web1
    uuid:
      description: UUID of the domain; null if the name is unknown.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    msg:
      description: What failed, the current state of the domain, and the next step.
      type: str
      sample: There is no domain 'web1' on kvm1.
    error_code:
      description: Stable code of the error.
      type: str
      sample: not_found
error_code:
  description: Stable error code of the first of RV(failures).
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import start_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.spare import prepare_moves


def main() -> None:
    """Run one phase of the move; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec={**live_migrate_spec(), **internal_spec()}, supports_check_mode=True)
    run_module(module, lambda module: run_phase({"prepare": prepare_moves, "start": start_moves}, module.params))


if __name__ == "__main__":
    main()
