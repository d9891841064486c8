#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cold_migrate
short_description: Move domains to another libvirt host without sending their memory live
version_added: 0.1.0
description:
  - Moves one domain, or several, from the host on which the task runs to another libvirt host. The guest is off, or is paused or shut down for the move.
  - Definition, autostart, metadata, firmware variables and the state of an emulated TPM move. The disks must be on storage that both hosts share.
  - Every move has a record in the ledger, of the type V(cold-migration). Its result is determined by asking both hosts. At each moment one of them is the
    owner of the domain. When a task was killed, the same task settles the move when it is run again, and so does M(kvmfleet.migration.host) with C(settle).
    The move is then finished or undone, and no second copy is started.
  - A definition of a domain that is off, and that may be on other hosts according to the ledger, may be left over, for example from C(virsh migrate). It is
    refused (C(conflict)).
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
      - The rules of the scheduler check the destination first, as for M(kvmfleet.migration.live_migrate). For a guest that is off after the move, these are
        only the rules C(not_source), C(up), C(enabled), C(machine_type), C(storage), C(boot_files), C(firmware), C(tpm), C(resource_maps) and C(labels),
        unless it has a managed-save image. If a rule refuses it, nothing is moved, and the record ends as V(conflict) with all reasons.
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
  method: &method
    description:
      - How the guest is treated. Each move needs a method, its own or that of the task.
      - V(offline) moves the definition of a domain that is shut off. A managed-save image moves with it. For this the domain is started paused on the source,
        moved live and saved at the destination, which is judged and reserved as for a guest that runs. The guest itself does not run in between, and its next
        start resumes it as before. With a disk that can be written, this needs QEMU 10.0 on both hosts; otherwise, the domain is refused (C(not_supported)).
        Start it paused then, and use V(save).
      - V(save) saves the memory of a guest that runs or is paused to O(save_folder), and restores it at the destination. The guest is paused for as long as
        this takes, and loses nothing. If it cannot be restored there, it is restored on the source.
      - V(shutdown) asks the guest to shut down, waits until it is off, and moves its definition. A domain that is off already is moved too. The destination is
        judged and reserved by what the guest needs at its next start, which differs from what it has now if its definition was changed while it ran.
    type: str
    choices: [offline, save, shutdown]
  start: &start
    description: Start the guest at the destination after it was shut down. Only used with O(method=shutdown). The default is V(false).
    type: bool
  shutdown_wait_seconds: &shutdown_wait_seconds
    description:
      - How long to wait until the guest is off, by default 300 seconds. It is never forced off; after this time, the move fails with C(timeout), and the guest
        may still go off.
      - Only used with O(method=shutdown).
    type: int
  save_folder: &save_folder
    description:
      - The folder for the memory of the guest, on storage that both hosts mount at the same path. It needs as much space as the guest has memory.
      - To prove that it is one folder on both hosts, each host creates a file with a new name in it, and the other host looks for this file. This is also done
        in check mode, and leaves nothing behind. Without this proof, the move is refused (C(unsafe)).
      - Required by O(method=save), and only used with it.
    type: str
  unsafe: &unsafe
    description: Move the domain even if a disk is on storage of a kind that hosts do not share. Use it only if you know that both hosts see the same data.
    type: bool
  force: &force
    description:
      - Move to O(destination), which is then required, even if the scheduler refuses it. Each rule that is bypassed is a warning and is kept in the history
        of the record, whose RV(migrations[].forced) is then V(FORCED_MIGRATE).
      - Some rules are never bypassed, as in M(kvmfleet.migration.live_migrate).
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
      method: *method
      start: *start
      shutdown_wait_seconds: *shutdown_wait_seconds
      save_folder: *save_folder
      unsafe: *unsafe
      force: *force
  progress:
    description: Print a line when a move begins and ends; or print nothing. Nothing is printed with C(no_log).
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
  - Nothing is moved if an argument is invalid, a domain is unknown or in a state that the method cannot move, a disk is only on the source, or a destination
    does not answer or lacks what the domain needs.
  - A transient domain has no definition that could move, and is refused (C(not_supported)); M(kvmfleet.migration.live_migrate) moves it. A domain with
    snapshots or checkpoints is refused with the reason, and so is one with a managed-save image that libvirt cannot read, or with a symbolic link in place of
    its firmware variables or of a file of its TPM.
  - A domain with a job (a backup, the copy of a disk) is refused with C(invalid_state). One that runs on another image than its definition names does not move
    by O(method=shutdown). If its definition is changed while it shuts down or is saved, the move is undone with C(conflict).
  - A domain gets the names that the destination uses (C(kvmfleet_bridge_map) and the like), by the same rules as in
    M(kvmfleet.migration.live_migrate). Its definition, and the one in its saved memory, are rewritten on the hosts. The names of O(save_folder) and of the
    state of a TPM stay the same.
  - The source keeps the definition, the firmware variables and the state of the TPM of a domain that has moved, in RV(migrations[].cold.kept).
seealso:
  - module: kvmfleet.migration.live_migrate
  - module: kvmfleet.migration.migration_info
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Move the definition of a domain that is shut off
  kvmfleet.migration.cold_migrate:
    name: archive1
    destination: kvm2
    method: offline

- name: Move a guest that cannot be moved live, with a pause of seconds
  kvmfleet.migration.cold_migrate:
    name: db1
    destination: kvm2
    method: save
    save_folder: /srv/images/saved

- name: Shut down some guests, and start one of them at its destination
  kvmfleet.migration.cold_migrate:
    method: shutdown
    shutdown_wait_seconds: 120
    moves:
      - {name: web1, destination: kvm2, start: true}
      - {name: batch1, destination: kvm3}
"""

RETURN = r"""
migrations:
  description: The record of each move, as the ledger has it; in check mode as it would be.
  returned: when the moves were looked at
  type: list
  elements: dict
  contains:
    id:
      description: ID of the record. Null for a prediction, and for a domain that was already at the destination.
      type: str
      sample: 2c0a4f3e-8d5b-4b3f-a1d7-4f9f5f1e2b10
    type:
      description: V(cold-migration).
      type: str
      sample: cold-migration
    status:
      description:
        - V(completed) if the domain is at the destination, and no definition of it is left on the source.
        - V(failed) if the move was undone, so that the domain is on the source as before. V(conflict) if the destination was refused.
        - V(error) if a host did not answer, so that the result is not proved. V(running) if the source was not heard of again. Run the task again to settle it.
      type: str
      sample: completed
    method:
      description: The method of the move.
      type: str
      sample: save
    forced:
      description: V(FORCED_MIGRATE) if the scheduler was bypassed.
      type: str
      sample: FORCED_MIGRATE
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
    cold:
      description: What the move does, and has done.
      type: dict
      contains:
        start:
          description: Whether the guest is started at the destination.
          type: bool
          sample: false
        image:
          description:
            - Path of the saved memory. It is removed after the guest was seen at the destination.
            - Of a domain with a managed-save image, the name under which the source holds that image until the destination has saved the memory.
          type: str
          sample: /srv/images/saved/kvmfleet-2c0a4f3e-8d5b-4b3f-a1d7-4f9f5f1e2b10.save
        image_format:
          description: Format of the saved memory. V(sparse) if both hosts have libvirt 11.2 or later, else V(raw).
          type: str
          sample: raw
        resumes_as:
          description: The state in which the guest of a managed-save image resumes, V(running) or V(paused). Only for a domain that has such an image.
          type: str
          sample: running
        files:
          description:
            - The files with state of the guest that were copied, with the checksum that was found at the destination.
            - A file with another path at the destination also has C(destination_path).
            - A file that both hosts share, and an equal one that the destination had before, are not copied.
          type: list
          elements: dict
          sample:
            - what: nvram
              path: /var/lib/libvirt/qemu/nvram/web1_VARS.fd
              bytes: 540672
              sha256: 6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b
        kept:
          description: Where the source keeps the definition and these files. A file that another of its domains needs stays where it is.
          type: list
          elements: str
          sample: [/var/lib/kvmfleet/quarantine/2c0a4f3e-8d5b-4b3f-a1d7-4f9f5f1e2b10/definition.xml]
        renaming:
          description: The resource maps of both hosts, by which a task that settles the move rewrites definitions. Missing if they are the same.
          type: dict
          sample:
            source: kvm1
            destination: kvm2
            before: {bridges: {prod: br0}}
            after: {bridges: {prod: br-prod}}
          version_added: 0.2.0
    rewritten:
      description:
        - What differs in the definition at the destination, which has other names there. Missing if nothing does.
        - The form is that of RV(kvmfleet.migration.live_migrate#module:migrations[].rewritten).
      type: list
      elements: dict
      sample:
        - {path: "devices[1]/interface[1]/source[1]/@bridge", before: br0, after: br-prod, definitions: [live, persistent]}
      version_added: 0.2.0
    acts:
      description: Every act on a host, written before it is done.
      type: list
      elements: dict
      sample: [{at: '2026-11-21T03:00:00.000Z', act: define}]
    result:
      description: Figures of the completed move in milliseconds. The downtime is how long the guest was off or paused.
      type: dict
      sample: {elapsed_ms: 4821, downtime_ms: 3907, predicted_downtime_ms: null, setup_ms: null, bytes: null, iterations: null, mode: null, rung: null}
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import cold_migrate_spec, internal_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.run import carry_out_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.survey import prepare_cold_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase of the moves; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec={**cold_migrate_spec(), **internal_spec()}, supports_check_mode=True)
    run_module(module, lambda module: run_phase({"prepare": prepare_cold_moves, "move": carry_out_moves}, module.params))


if __name__ == "__main__":
    main()
