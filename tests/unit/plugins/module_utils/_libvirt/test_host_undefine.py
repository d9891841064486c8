# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt deletes with a definition. The state of a TPM may be the only one, on storage that hosts share."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, NotSupported
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
KEEP_NVRAM, KEEP_TPM = 8, 64
EMULATED = "<tpm><backend type='emulator' version='2.0'/></tpm>"
KEEPING, OLD = 8009000, 8008000
CALLS = [LibvirtHost.undefine_if_inactive, LibvirtHost.undefine_inactive]


class Driver:
    """A connection with one domain."""

    libvirtError = LibvirtError

    def __init__(self, tpm: str, version: int = OLD, active: bool = False) -> None:
        self.tpm, self.version, self.active = tpm, version, active
        self.undefined: t.List[int] = []

    def lookupByUUIDString(self, uuid: str) -> Driver:
        return self

    def getLibVersion(self) -> int:
        return self.version

    def isActive(self) -> bool:
        return self.active

    def name(self) -> str:
        return "web1"

    def UUIDString(self) -> str:
        return UUID

    def XMLDesc(self, flags: int) -> str:
        return f"<domain><devices>{self.tpm}</devices></domain>"

    def undefineFlags(self, flags: int) -> None:
        self.undefined.append(flags)


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Driver)


def undefine(call: t.Callable[[LibvirtHost, str], None], driver: Driver) -> t.List[int]:
    call(LibvirtHost("qemu:///system", Opened(t.cast(t.Any, driver))), UUID)
    return driver.undefined


@pytest.mark.parametrize("call", CALLS)
def test_a_definition_whose_tpm_state_libvirt_would_delete_is_left(call: t.Callable[[LibvirtHost, str], None]) -> None:
    driver = Driver(EMULATED)
    with pytest.raises(NotSupported, match=rf"web1 \({UUID}\) was not undefined on qemu:///system: its libvirt would delete the state of the emulated TPM"):
        undefine(call, driver)
    assert driver.undefined == []


@pytest.mark.parametrize("call", CALLS)
def test_the_state_of_a_tpm_is_kept_if_libvirt_can(call: t.Callable[[LibvirtHost, str], None]) -> None:
    assert undefine(call, Driver(EMULATED, KEEPING)) == [KEEP_NVRAM | KEEP_TPM]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "tpm",
    ["", "<tpm><backend type='passthrough'/></tpm>", "<tpm><backend type='emulator' version='2.0' persistent_state='yes'/></tpm>"],
)
def test_a_definition_without_state_that_goes_with_it_is_undefined(call: t.Callable[[LibvirtHost, str], None], tpm: str) -> None:
    assert undefine(call, Driver(tpm)) == [KEEP_NVRAM]


def test_an_active_domain_is_never_undefined() -> None:
    assert undefine(LibvirtHost.undefine_if_inactive, Driver(EMULATED, active=True)) == []
    with pytest.raises(InvalidState, match="active"):
        undefine(LibvirtHost.undefine_inactive, Driver(EMULATED, active=True))
