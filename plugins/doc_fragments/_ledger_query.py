# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options that select records and documents of a ledger. Matches C(ledger_query_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  status:
    description:
      - Only records with one of these statuses, for example V(running) or V(error).
      - For V(migrations) and V(evacuations).
    type: list
    elements: str
  host:
    description:
      - Only records with this host as source or destination, only this host, or only domains that may be on this host.
      - Of maintenance and balance runs, those that have the host, by its inventory name.
      - An inventory name, a host ID (C(host_id)) or libvirt's host UUID.
    type: str
  domain:
    description:
      - Only this domain, by name or UUID.
      - For V(migrations), V(evacuations) and V(domains).
    type: str
  since:
    description:
      - Only records last written at this time or later.
      - RFC 3339, for example V(2026-11-21T03:00:00Z). A date without a time means midnight UTC.
      - For V(migrations) and V(evacuations).
    type: str
  until:
    description:
      - Only records last written before this time, in the form of O(since).
      - For V(migrations) and V(evacuations).
    type: str
  forced:
    description:
      - With V(true), only moves and evacuations that bypassed checks of the scheduler. With V(false), only those that did not. When not given, both.
      - For V(migrations) and V(evacuations).
    type: bool
  query:
    description:
      - A JMESPath expression that is applied to each list. Its result is returned; a single value becomes a list with one element, no result an empty list.
    type: str
  include_definitions:
    description:
      - Whether domains include their saved libvirt definitions, which may contain graphics passwords.
    type: bool
    default: false
requirements:
  - jmespath (Python library) on the control node, for O(query)
"""
