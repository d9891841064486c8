# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The option between an action plugin and its module. Matches C(internal_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  _work:
    description:
      - Internal. The request of the action plugin to its module on the host. Do not use it in playbooks.
    type: dict
"""
