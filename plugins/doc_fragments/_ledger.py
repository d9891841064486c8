# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options that locate the ledger. Matches C(ledger_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  ledger:
    description:
      - Folder of the ledger on the control node, or V(etcd://host:2379,host:2379/prefix) for a ledger in an etcd cluster that several control nodes share.
      - The default is the inventory variable C(kvmfleet_ledger). Without it, the ledger is the folder C(kvmfleet/ledger) in the user's XDG state directory,
        usually C(~/.local/state).
      - The inventory variable C(kvmfleet_etcd) configures the connection to etcd. It is a dictionary of C(tls), C(ca_file), C(cert_file), C(key_file),
        C(user) and C(password), all of which are optional.
    type: str
"""
