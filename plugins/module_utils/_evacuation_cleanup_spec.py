# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(evacuation_cleanup), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, internal_spec, ledger_spec, libvirt_spec

STORAGES = ("quarantine", "keep", "delete")


def evacuation_cleanup_spec() -> Spec:
    """Return the options of C(evacuation_cleanup)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "storage": {"type": "str", "choices": list(STORAGES), "default": "quarantine"},
        "retention_days": {"type": "int", "default": 14},
        **internal_spec(),
    }
