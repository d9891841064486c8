#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_shutdown
short_description: Shut domains down gracefully
version_added: 0.1.0
description:
  - Asks the guest of a running domain to shut down, by its guest agent if it has one and otherwise by its power button, and waits until the domain is off.
  - A domain is never destroyed. If its guest does not shut down in time, the domain keeps running, and the task fails with C(timeout).
  - The definition of the domain stays on its host.
options:
  uuids:
    description:
      - UUIDs of several domains of the host, which are shut down at the same time.
      - If one of them cannot be shut down, the task fails, and the others are shut down.
    type: list
    elements: str
  wait_seconds:
    description: How long to wait until the domain is off, from 1 to 86400. The guest is asked again every 30 seconds, because guests do not react while they
      boot.
    type: int
    aliases: [wait_timeout]
    default: 180
  start_again:
    description:
      - Note on the host that the domain is to be started again, before it is asked to shut down. M(kvmfleet.migration.boot_guard) returns these notes, and
        M(kvmfleet.migration.domain_start) removes the note. A drain sets this option, and P(kvmfleet.migration.recover_host#role) starts the domain.
      - M(kvmfleet.migration.protect) removes the note of a domain that is active on a host in service, because it has been started since, or did not shut down.
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
  - Requires root on the host of the domain.
  - A domain with a job (a migration, a backup, the copy of a disk), a paused domain, and a domain that libvirt would start again are refused with
    C(invalid_state). While the task waits, no move of the domain can start.
  - If the task ends early, for example because its job is cancelled, the module stops repeating its request, and moves can start again. With C(async), as in a
    drain, it goes on until the domain is off or O(wait_seconds) are over.
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

- name: Shut two down at the same time
  kvmfleet.migration.domain_shutdown:
    uuids:
      - 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
      - 0a7d4a5c-1f4e-4f9e-8d3c-6f0a5a2c9b11
"""

RETURN = r"""
domain:
  description: UUID and name of the domain.
  returned: success, unless O(uuids) is given
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: batch7}
reason:
  description: How the domain stopped, in the words of virsh. If it is not C(shutdown), someone else has stopped the domain in the meantime, or before.
  returned: success, unless O(uuids) is given, but in check mode only for a domain that is off already
  type: str
  sample: shutdown
elapsed_seconds:
  description: Duration of the shutdown.
  returned: changed, unless O(uuids) is given, but not in check mode
  type: float
  sample: 12.5
domains:
  description: The domains that are off, each with C(uuid), C(name), RV(reason) and RV(elapsed_seconds), of which the last two are null in check mode.
  returned: with O(uuids)
  type: list
  elements: dict
  sample: [{uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: batch7, reason: shutdown, elapsed_seconds: 12.5}]
failures:
  description: The domains that could not be shut down, each with C(uuid), C(name), C(msg) and C(error_code).
  returned: with O(uuids)
  type: list
  elements: dict
  sample: []
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: timeout
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.shutting_down import GRACEFUL, build_result, shut_down_requested, shutdown_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_text
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, new_module, run_module

# One of these options selects the domains.
DOMAINS: t.Final = [("name", "uuid", "uuids")]


def domain_shutdown(module: AnsibleModule) -> Result:
    """Shut the domain down, or report that it is off."""
    if module.params["uuids"] is not None:
        return _several(module)
    shutdown = shutdown_of(module.params)
    domain = {"uuid": shutdown.info.uuid, "name": shutdown.info.name}
    try:
        if shutdown.is_off():
            return {"changed": False, "domain": domain, "reason": shutdown.info.view.reason}
        shutdown.check_possible()
        if module.check_mode:
            return {"changed": True, "domain": domain}
        done = shutdown.carry_out()
    finally:
        shutdown.host.close()
    if done["reason"] != GRACEFUL:
        _warn(module, domain["name"], done["reason"])
    return {"changed": True, "domain": domain, "reason": done["reason"], "elapsed_seconds": done["elapsed_seconds"]}


def _several(module: AnsibleModule) -> Result:
    stops = shut_down_requested(module.params, module.check_mode)
    for stop in stops:
        if stop.is_forced:
            _warn(module, stop.name, str(stop.reason))
    return build_result(stops)


def _warn(module: AnsibleModule, name: str, reason: str) -> None:
    module.warn(printable_text(f"{name} is off, but its guest did not shut down: {reason}."))


def main() -> None:
    """Shut domains down."""
    module = new_module(
        AnsibleModule,
        argument_spec={
            **libvirt_spec(),
            **domain_spec(),
            "uuids": {"type": "list", "elements": "str"},
            "wait_seconds": {"type": "int", "default": 180, "aliases": ["wait_timeout"]},
            "start_again": {"type": "bool", "default": False},
        },
        mutually_exclusive=DOMAINS,
        required_one_of=DOMAINS,
        supports_check_mode=True,
    )
    run_module(module, domain_shutdown)


if __name__ == "__main__":
    main()
