#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: load_timer
short_description: Let a libvirt host store readings of its load at intervals
version_added: 0.2.0
description:
  - Installs or removes a systemd timer on the host that stores a reading of all counters of the load of the host and its domains in C(/run/kvmfleet/load),
    where M(kvmfleet.migration.host_facts) finds it.
  - Without the timer, the load is the mean since the last task that asked for it, which can be long ago. With the timer, it is the mean over the time that
    O(kvmfleet.migration.host_facts#module:load_seconds) names, for up to 32 readings. Nothing else depends on the timer.
  - The program of the timer is C(/usr/local/lib/kvmfleet/kvmfleet-load.pyz), and needs Python 3.9 and libvirt's Python binding, as the modules do. Each
    task of this module runs it once, also if the timer is installed, and fails if it does not run, as it may after an upgrade of the operating system.
  - Requires root on the host.
options:
  state:
    description: Whether the host has the timer. V(absent) leaves the readings that are stored; they disappear at the next boot.
    type: str
    choices: [present, absent]
    default: present
  interval_seconds:
    description: The number of seconds between two readings, V(60) to V(3600).
    type: int
    default: 300
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
  async:
    support: full
seealso:
  - module: kvmfleet.migration.host_facts
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Store a reading of the load every five minutes
  kvmfleet.migration.load_timer:

- name: Remove the timer
  kvmfleet.migration.load_timer:
    state: absent
"""

RETURN = r"""
files:
  description: The files that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/kvmfleet-load.timer]
systemd:
  description: Whether systemd runs on this host, and with it the timer. If it does not, a warning says so.
  returned: success
  type: bool
  sample: true
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: forbidden
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._load_timer.install import NOT_RUN, install_timer, remove_timer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import new_module, require_root, run_module

LEAST_SECONDS = 60
MOST_SECONDS = 3600


def load_timer(module: AnsibleModule) -> t.Dict[str, Json]:
    """Install or remove the timer. Raises L(Forbidden) without root, L(InvalidArgument) for an interval out of range."""
    seconds = module.params["interval_seconds"]
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise InvalidArgument(f"interval_seconds is {seconds}.", f"Give {LEAST_SECONDS} to {MOST_SECONDS}. Nothing was changed.")
    require_root()
    is_wanted = module.params["state"] == "present"
    change = install_timer(seconds, check_mode=module.check_mode) if is_wanted else remove_timer(check_mode=module.check_mode)
    if is_wanted and not change.systemd:
        module.warn(NOT_RUN)
    for warning in change.warnings:
        module.warn(warning)
    return {"changed": bool(change.files), "files": list(change.files), "systemd": change.systemd}


def main() -> None:
    """Install or remove the timer of one host."""
    spec = {"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}, "interval_seconds": {"type": "int", "default": 300}}
    run_module(new_module(AnsibleModule, argument_spec=spec, supports_check_mode=True), load_timer)


if __name__ == "__main__":
    main()
