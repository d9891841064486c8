# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The word between an action plugin and its module. Twin of C(internal_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  _work:
    description:
      - Internal. What the action plugin of the same name asks its module to do on the host. Not for playbooks.
    type: dict
"""
