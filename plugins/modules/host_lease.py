#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_lease
short_description: Let a host renew a lease in the etcd of the ledger
version_added: 0.2.0
description:
  - Installs or removes the service C(kvmfleet-lease) on a host. The service writes a key below C(leases/) of the ledger every few seconds. It shows that the
    host is alive, and which watchdog resets the host when it can no longer write the key.
  - A host that cannot reach etcd asks the other hosts of its fleet. If most of them have no lease either, etcd is down, and the host keeps running.
  - The ledger must be in an etcd of three members or more. The inventory variable C(kvmfleet_lease) of the host has C(user) and C(password) of a user of etcd
    that may write the key of this host and read nothing. It may also have C(lease_seconds) (15), C(renew_seconds) (3), C(port) (16516), C(relay) (false), and
    C(cert_file) and C(key_file) of a certificate for hosts, which are files on the control node.
  - With the key C(watchdog) of C(kvmfleet_lease), the lease is bound to a hardware watchdog of the host. C(device) is for example C(/dev/watchdog0), and by
    default the only hardware watchdog of the host; C(seconds) (10; 5 to 60) is how long after the last ping it resets the host. The daemon of the package
    C(watchdog), which must be installed on the host, runs as the unit C(kvmfleet-watchdog). It asks whether the host may keep running, and resets the host at
    once if not. The units C(watchdog) and C(wd_keepalive) of that package are masked.
  - A host that has the service tries a new configuration before it is changed. If the host could not renew its lease with it, the task fails with C(unsafe).
  - An armed watchdog cannot be disarmed. If the key C(watchdog) is removed, the daemon pings the device without a question until the next boot.
  - Before a watchdog is unbound, or resets its host later than before, what M(kvmfleet.migration.protect) saw of it is removed from the ledger. A reset is
    evidence again when the host was protected once more.
  - The fleet are the hosts of the group C(kvmfleet_hosts), or all hosts without that group, that have C(kvmfleet_lease) and were protected. Run this module
    for all of them together, and again when a host is added or removed, so that all of them have the same list.
  - The hosts reach each other at C(ansible_host) and, if it is set, C(kvmfleet_second_address), an address on a second network. With C(relay), other hosts may
    reach etcd through this host when they cannot reach it directly.
  - The program is C(/usr/local/lib/kvmfleet/kvmfleet-lease.pyz), and its configuration C(/etc/kvmfleet/lease.json), readable by root only. It needs Python 3.9.
options:
  state:
    description:
      - Whether the host has the service. V(absent) also unbinds the watchdog, and removes the lease of the host from etcd. It is refused (C(unreachable)) while
        the ledger does not answer, because the ledger may take a later silence of the host for a reset by its watchdog. For the same reason, both are refused
        (C(conflict)) if the host was protected under another ledger.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
attributes:
  diff_mode:
    support: none
notes:
  - Requires root on the host.
seealso:
  - module: kvmfleet.migration.protect
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Let the hosts renew their leases
  kvmfleet.migration.host_lease:

- name: Stop that
  kvmfleet.migration.host_lease:
    state: absent
"""

RETURN = r"""
files:
  description: The files that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/kvmfleet/lease.json]
fleet:
  description: The hosts that have a lease, this one included.
  returned: O(state=present)
  type: list
  elements: str
  sample: [kvm1, kvm2, kvm3]
systemd:
  description: Whether systemd runs on this host, and with it the service. If it does not, a warning says so.
  returned: success
  type: bool
  sample: true
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import host_lease_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls it."""
    module = AnsibleModule(argument_spec=host_lease_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
