#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: migration_info
short_description: List the live migrations in progress on a libvirt host
version_added: 0.1.0
description:
  - Lists the migrations whose source is the host on which the task runs, with their current figures. This includes migrations in post-copy, and those that
    wait for admission. Changes nothing.
  - A migration that was started without this collection is listed too, without a destination, because libvirt does not report it.
options:
  name:
    description: Only the domain with this name. It is an error if the host does not have it.
    type: str
    aliases: [domain, guest]
  uuid:
    description: Only the domain with this UUID. It is an error if the host does not have it.
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
attributes:
  async:
    support: full
  diff_mode:
    support: none
notes:
  - Requires no right to act. A user without root, and without the right to use libvirt's read-write connection, gets the answer over libvirt's read-only
    connection.
  - Without root, the record of a migration is unknown, and so is whether the migration is watched. A migration without a job in libvirt, for example one that
    waits for admission, is not listed. RV(unverified_reasons) names what is unknown.
seealso:
  - module: kvmfleet.migration.live_migrate
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: What is moving away from this host?
  kvmfleet.migration.migration_info:
  register: moving

- name: Show it
  ansible.builtin.debug:
    msg: "{{ item.domain.name }}: {{ item.progress.percent }} %, {{ item.progress.memory_remaining_bytes }} bytes left"
  loop: "{{ moving.migrations }}"
  loop_control:
    label: "{{ item.domain.name }}"

- name: Is this one still moving?
  kvmfleet.migration.migration_info:
    name: web1
  register: web1
"""

RETURN = r"""
domain:
  description: The domain that was named, whether or not it is being moved, with its state on this host.
  returned: with O(name) or O(uuid)
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, state: running, active: true}
migrations:
  description: A record for each migration in progress, by the name of the domain. If there is none, the list is empty.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: ID of the record in the ledger; null for a migration that was started without this collection, and if RV(unverified_reasons) has C(id).
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    status:
      description: Status of the migration.
      type: str
      sample: running
    watched:
      description: Whether a watcher of this collection follows it; null if this user may not know.
      type: bool
      sample: true
    domain:
      description: UUID and name of the domain.
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
    created_at:
      description:
        - When the migration was requested. Without a record, when its job began, as libvirt reports it.
      type: str
      sample: "2026-11-21T03:00:00.000Z"
    progress:
      description: Current figures of the job, in bytes, bytes a second and percent.
      type: dict
      sample: {percent: 42, memory_remaining_bytes: 310902784, iteration: 2}
unverified_reasons:
  description:
    - What is unknown without the rights of root, with the reason. V(id), V(destination) and V(watched) are unknown about each migration in the list.
      V(waiting) means that migrations without a job in libvirt are not in the list.
  returned: success, if the task does not run as root and cannot read the state files of the host
  type: dict
  sample: {watched: "only root can read it on the host (/run/kvmfleet)"}
error_code:
  description: Stable code of the error. V(forbidden) if libvirt gives this user no connection at all.
  returned: failure
  type: str
  sample: not_found
"""


from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN_RULE, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import explain_unread_states, list_in_progress, read_unfinished_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_reader
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri, is_local
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, check_domain_name, new_module, run_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._time_limits import limit_questions


@limit_questions
def migration_info(module: AnsibleModule) -> Result:
    """Return the migrations in progress."""
    uri, name = module.params["uri"], module.params["name"]
    check_domain_name(name)
    uuid = canonical_uuid(module.params["uuid"])
    named: Result = {}
    host = open_reader(check_uri(uri, "uri"))
    try:
        if name is not None or uuid is not None:
            found = host.find_domain(name=name, uuid=uuid)
            uuid = found.uuid
            named = {"domain": {"uuid": uuid, "name": found.name, "state": found.view.state, "active": found.view.active}}
        states = read_unfinished_states() if is_local(uri) else None
        migrations = list_in_progress(host, states, uuid)
    finally:
        host.close()
    unknown = explain_unread_states(states, is_local(uri))
    reasons: Result = {"unverified_reasons": dict(unknown)} if unknown else {}
    return {"changed": False, **named, "migrations": [migration.as_json() for migration in migrations], **reasons}


def main() -> None:
    """List migrations."""
    module = new_module(
        AnsibleModule,
        argument_spec={**libvirt_spec(), **domain_spec()},
        mutually_exclusive=ONE_DOMAIN_RULE,
        supports_check_mode=True,
    )
    run_module(module, migration_info)


if __name__ == "__main__":
    main()
