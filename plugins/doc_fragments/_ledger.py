# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Where the records are. Twin of C(ledger_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  ledger:
    description:
      - Folder of the ledger on the control node, or V(etcd://host:2379,host:2379/prefix) for a ledger in an etcd cluster, shared by several control nodes.
      - When not given, the inventory variable C(kvmfleet_ledger) is used, and without it the folder C(kvmfleet/ledger) in the user's XDG state
        directory, usually C(~/.local/state).
      - How to speak to etcd says the inventory variable C(kvmfleet_etcd), a dictionary of C(tls), C(ca_file), C(cert_file), C(key_file), C(user) and
        C(password), none of which is needed.
    type: str
"""
