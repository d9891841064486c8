# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Why hosts were refused, in one text."""

from __future__ import annotations

from collections.abc import Mapping


def compact(reasons: Mapping[str, str]) -> str:
    """Return all reasons with the hosts that they hold for; hosts with one and the same reason share it. E.g. C(kvm2, kvm3: It is in maintenance.)."""
    hosts: dict[str, list[str]] = {}
    for host, reason in reasons.items():
        hosts.setdefault(reason, []).append(host)
    return " ".join(f"{', '.join(sorted(names))}: {reason}" for reason, names in hosts.items())
