# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which definition of a domain is read."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
SECURE, INACTIVE, MIGRATABLE = 1, 2, 8


class Driver:
    """A connection with one domain, whose definition is the flags with which it is read."""

    def lookupByUUIDString(self, uuid: str) -> Driver:
        return self

    def XMLDesc(self, flags: int) -> str:
        return str(flags)


@pytest.mark.parametrize(("persistent", "flags"), [(True, SECURE | INACTIVE), (False, SECURE | MIGRATABLE)])
def test_a_definition_is_saved_as_another_host_can_start_it(persistent: bool, flags: int) -> None:
    """The live definition of a transient domain has the bridges that its libvirt networks have on its own host."""
    host = LibvirtHost("qemu:///system", Opened(t.cast(t.Any, Driver())))
    assert host.read_whole_definition(UUID, persistent) == str(flags)
