#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_shutdown
short_description: Shut a domain down gracefully
version_added: 0.1.0
description:
  - Asks the guest of a running domain to shut down, by its guest agent where it has one and else by its power button, and waits until the domain is off.
  - A domain is never destroyed. One whose guest does not shut down in time keeps running, and the task fails with C(timeout).
  - The domain's definition stays on its host.
options:
  wait_seconds:
    description: How long to wait until the domain is off, from 1 to 86400. Every 30 seconds the guest is asked again, for guests do not listen while they boot.
    type: int
    default: 180
  start_again:
    description:
      - Note on the host that the domain is to be started again, before it is asked to shut down. M(kvmfleet.migration.boot_guard) tells what is noted, and
        M(kvmfleet.migration.domain_start) removes the note. A drain sets this, and P(kvmfleet.migration.recover_host#role) starts the domain.
    type: bool
    default: false
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._domain
  - kvmfleet.migration._libvirt
attributes:
  async:
    support: full
  diff_mode:
    support: none
notes:
  - Needs root on the domain's host.
  - A domain with a job (a migration, a backup), a paused one, and one that libvirt would start again is refused with C(invalid_state). While the task waits,
    no move of the domain can begin.
seealso:
  - module: kvmfleet.migration.domain_start
  - module: kvmfleet.migration.domain_policy
    description: The field C(drain) lets a drain shut the domain down.
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Shut a guest down
  kvmfleet.migration.domain_shutdown:
    name: batch7

- name: Give a slow one ten minutes
  kvmfleet.migration.domain_shutdown:
    name: db1
    wait_seconds: 600
"""

RETURN = r"""
domain:
  description: UUID and name.
  returned: success
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: batch7}
reason:
  description: How the domain stopped, in virsh's words. When it is not C(shutdown), somebody else has stopped it meanwhile, or before.
  returned: success, but in check mode only for a domain that is off already
  type: str
  sample: shutdown
elapsed_seconds:
  description: How long it took.
  returned: changed, but not in check mode
  type: float
  sample: 12.5
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: timeout
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import new_module, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable_text
from ansible_collections.kvmfleet.migration.plugins.module_utils._shutdown import GRACEFUL, shutdown_of


def domain_shutdown(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Shut the domain down; or say that it is off."""
    shutdown = shutdown_of(module.params)
    domain = {"uuid": shutdown.info.uuid, "name": shutdown.info.name}
    try:
        if shutdown.is_off():
            return {"changed": False, "domain": domain, "reason": shutdown.info.view.reason}
        shutdown.check()
        if module.check_mode:
            return {"changed": True, "domain": domain}
        done = shutdown.carry_out()
    finally:
        shutdown.host.close()
    if done["reason"] != GRACEFUL:
        module.warn(printable_text(f"{domain['name']} is off, but its guest did not shut down: {done['reason']}."))
    return {"changed": True, "domain": domain, **done}


def main() -> None:
    """Shut one domain down."""
    module = new_module(
        AnsibleModule,
        argument_spec={
            **libvirt_spec(),
            **domain_spec(),
            "wait_seconds": {"type": "int", "default": 180},
            "start_again": {"type": "bool", "default": False},
        },
        mutually_exclusive=ONE_DOMAIN,
        required_one_of=ONE_DOMAIN,
        supports_check_mode=True,
    )
    run(module, domain_shutdown)


if __name__ == "__main__":
    main()
