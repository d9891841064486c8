# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options that select a domain. Matches C(domain_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  name:
    description:
      - Name of the domain.
      - Exactly one of O(name) and O(uuid) is needed.
    type: str
    aliases: [domain, guest]
  uuid:
    description: UUID of the domain.
    type: str
"""
