# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Points in time as records write them. Durations are never computed from these: they come from a monotonic clock."""

from __future__ import annotations

import datetime


def utc_now() -> str:
    """Return the time now as RFC 3339 in UTC with milliseconds, e.g. C(2026-11-21T03:00:00.000Z)."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
