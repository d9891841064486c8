# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's own errors."""

from __future__ import annotations


class LabError(Exception):
    """Something the lab cannot do; the message says what, and what to do next."""


class UsageError(LabError):
    """An argument that cannot be right, e.g. the name of a host that does not exist."""
