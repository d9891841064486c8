# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a domain needs of the host that is to take it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """One domain that wants a place.

    :arg source_uuid: libvirt's UUID of the host that it is to leave; empty where that is not known.
    """

    uuid: str
    name: str
    source: str
    source_uuid: str
    memory_mib: int
    vcpus: int = 1

    def needs(self) -> dict[str, t.Any]:
        """Return what a record keeps under C(request), so that a booking counts it."""
        return {"memory_mib": self.memory_mib, "vcpus": self.vcpus}
