#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_start
short_description: Start a domain that is defined on its host
version_added: 0.1.0
description:
  - Starts a domain, as C(virsh start) does, and verifies that it is active. A domain with a saved memory image is restored from it.
  - The module checks only this host. The caller must ensure that the domain does not run on another host; the role P(kvmfleet.migration.recover_host#role)
    asks the ledger and all hosts first.
  - M(kvmfleet.migration.domain_shutdown), or the release of a held boot, may have left a note on the host that the domain is to be started again. This note
    is removed once the domain is active. M(kvmfleet.migration.protect) removes that of a domain that was started without this module.
options:
  paused:
    description: Start the domain with its CPUs paused, as C(virsh start --paused) does. A domain that is active already is not paused.
    type: bool
    default: false
    version_added: 0.2.0
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._domain
  - kvmfleet.migration._internal
  - kvmfleet.migration._libvirt
attributes:
  async:
    support: full
  diff_mode:
    support: none
notes:
  - Requires root on the host of the domain.
  - A domain that is being moved is refused with C(invalid_state). While the task runs, no move of the domain can start.
  - A host whose boot is held by its boot guard is refused with C(invalid_state). The role P(kvmfleet.migration.recover_host#role), or
    M(kvmfleet.migration.boot_guard), releases it.
seealso:
  - module: kvmfleet.migration.domain_shutdown
  - module: kvmfleet.migration.boot_guard
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Start a guest
  kvmfleet.migration.domain_start:
    name: batch7
"""

RETURN = r"""
domain:
  description: UUID and name of the domain.
  returned: success
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: batch7}
state:
  description: Current state of the domain, in the words of virsh.
  returned: success, but in check mode only for a domain that is active already
  type: str
  sample: running
reason:
  description: Reason of this state, in the words of virsh.
  returned: success, but in check mode only for a domain that is active already
  type: str
  sample: booted
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_found
"""


from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN_RULE, domain_spec, internal_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.status import check_not_held, check_same_boot
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.starting import Decision, start_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import StartNote
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, new_module, run_module


def domain_start(module: AnsibleModule) -> Result:
    """Start the domain, or report that it is active."""
    start = start_of(module.params)
    domain = {"uuid": start.info.uuid, "name": start.info.name}
    try:
        if start.is_active():
            if not module.check_mode:
                start.forget_start()
            return {"changed": False, "domain": domain, "state": start.info.view.state, "reason": start.info.view.reason}
        start.check_startable()
        if module.check_mode:
            # Of a recovery, check mode has not released the host either.
            return {"changed": True, "domain": domain}
        check_not_held(start.domain_text)
        # Set by the role recover_host: the boot in which the fleet was asked about this domain, and the note that the domain had.
        work = module.params["_work"] or {}
        check_same_boot(start.domain_text, work.get("boot_id"))
        decision = Decision(decode(StartNote, work["noted"]) if work.get("noted") else None, work.get("boot_id")) if work else None
        return {"changed": True, "domain": domain, **start.carry_out(decision)}
    finally:
        start.host.close()


def main() -> None:
    """Start one domain."""
    module = new_module(
        AnsibleModule,
        argument_spec={**libvirt_spec(), **domain_spec(), **internal_spec(), "paused": {"type": "bool", "default": False}},
        mutually_exclusive=ONE_DOMAIN_RULE,
        required_one_of=ONE_DOMAIN_RULE,
        supports_check_mode=True,
    )
    run_module(module, domain_start)


if __name__ == "__main__":
    main()
