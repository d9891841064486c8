# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options that locate libvirt. Matches C(libvirt_spec) in C(module_utils/_argspec.py)."""

    DOCUMENTATION = r"""
options:
  uri:
    description:
      - libvirt URI of the host on which the task runs, as seen from that host.
    type: str
    default: qemu:///system
requirements:
  - Python 3.9 or newer and the Python bindings of libvirt (C(python3-libvirt)) on the host
"""
