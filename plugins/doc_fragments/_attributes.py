# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules. A module overrides C(support) if its own support differs."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and returns a prediction without changing anything.
    support: full
  diff_mode:
    description: Returns what has changed, or would change in check mode, when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row outside check mode with the same arguments, the second run reports no change.
    support: full
  async:
    description: Supports being used with the C(async) keyword.
    support: none
  platform:
    description: Target platform and hypervisor.
    support: full
    platforms: linux
"""

    ACTIONGROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/kvmfleet.migration.migration) in C(module_defaults) to set defaults for all modules of this collection.
    support: full
    membership:
      - kvmfleet.migration.migration
"""

    ACTION = r"""
options: {}
attributes:
  action:
    description: Has an action plugin of the same name, which runs the part on the control node.
    support: full
"""
