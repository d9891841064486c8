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
  - Lists the migrations away from the host that the task runs on, with the figures of this moment. Those in post-copy are included, and so are
    those that wait for their turn. Changes nothing.
  - A migration that nobody of this collection began is listed too, without a destination, which libvirt does not tell.
options:
  name:
    description: Only the domain of this name. One that the host does not have is an error.
    type: str
  uuid:
    description: Only the domain of this UUID. One that the host does not have is an error.
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
  - Needs no root, only a user who may connect to libvirt. Without root it cannot be told whether a migration is watched, and what only the watcher
    knows is left out.
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
migrations:
  description: A record for each migration in progress, by the domain's name. None is an empty list.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The record's identifier in the ledger; null for a migration that nobody of this collection began.
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    status:
      description: Where the migration stands.
      type: str
      sample: running
    watched:
      description: Whether a watcher of this collection follows it; null where this user may not know.
      type: bool
      sample: true
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
    progress:
      description: Figures of the job now, in bytes, bytes a second and percent.
      type: dict
      sample: {percent: 42, memory_remaining_bytes: 310902784, iteration: 2}
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: not_found
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.migrations import canonical_uuid, in_progress, read_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_uri, is_local
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name, new_module, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._patience import patient


@patient
def migration_info(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Return the migrations in progress."""
    uri, name = module.params["uri"], module.params["name"]
    check_domain_name(name)
    uuid = canonical_uuid(module.params["uuid"])
    host = open_host(check_uri(uri, "uri"))
    try:
        if name is not None or uuid is not None:
            uuid = host.find(name=name, uuid=uuid).uuid
        migrations = in_progress(host, read_states() if is_local(uri) else None, uuid)
    finally:
        host.close()
    return {"changed": False, "migrations": migrations}


def main() -> None:
    """List migrations."""
    module = new_module(
        AnsibleModule,
        argument_spec={**libvirt_spec(), **domain_spec()},
        mutually_exclusive=ONE_DOMAIN,
        supports_check_mode=True,
    )
    run(module, migration_info)


if __name__ == "__main__":
    main()
