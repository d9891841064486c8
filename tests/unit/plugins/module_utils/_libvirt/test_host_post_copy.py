# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pausing a post-copy migration, through bindings that know it and bindings that do not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


class OldDriver:
    """A binding that was made for a libvirt before 8.5, with one domain."""

    libvirtError = LibvirtError

    def __init__(self) -> None:
        self.flags: t.List[int] = []

    def lookupByUUIDString(self, uuid: str) -> OldDriver:
        return self


class Driver(OldDriver):
    VIR_DOMAIN_ABORT_JOB_POSTCOPY = 1

    def abortJobFlags(self, flags: int) -> None:
        self.flags.append(flags)


def host_of(driver: OldDriver, monkeypatch: pytest.MonkeyPatch) -> LibvirtHost:
    monkeypatch.setattr(connection, "_libvirt", type(driver))
    return LibvirtHost("qemu:///system", Opened(t.cast(t.Any, driver)))


def test_a_post_copy_migration_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    host_of(driver, monkeypatch).pause_post_copy(UUID)
    assert driver.flags == [1]


def test_an_old_binding_cannot_pause_a_post_copy_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupported, match="does not know VIR_DOMAIN_ABORT_JOB_POSTCOPY") as caught:
        host_of(OldDriver(), monkeypatch).pause_post_copy(UUID)
    assert "python3-libvirt" in str(caught.value)
