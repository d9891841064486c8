# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(event_brake), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec


def event_brake_spec() -> Spec:
    """Return the options of C(event_brake)."""
    return {
        "host": {"type": "str", "required": True},
        "reaction": {"type": "str", "default": "evacuate"},
        "hosts": {"type": "int", "default": 1},
        "window_minutes": {"type": "int", "default": 60},
        "folder": {"type": "path"},
        "state": {"type": "str", "default": "taken", "choices": ["taken", "released"]},
    }
