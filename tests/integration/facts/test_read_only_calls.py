# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which calls libvirt refuses on a read-only connection. The check is in the library, before any driver, so its test driver shows it."""

from __future__ import annotations

import typing as t

import libvirt
import pytest

OPERATION_DENIED = 29
SECURE, MIGRATABLE = 1, 8
CPU = "<cpu><arch>x86_64</arch><model>qemu64</model></cpu>"
POOL = "<pool type='dir'><name>x</name><target><path>/tmp</path></target></pool>"

Call = t.Callable[[t.Any, t.Any, t.Any], t.Any]

REFUSED: dict[str, Call] = {
    "domain capabilities": lambda connection, domain, pool: connection.getDomainCapabilities(None, "x86_64", None, "kvm", 0),
    "comparison of a CPU": lambda connection, domain, pool: connection.compareHypervisorCPU(None, "x86_64", None, "kvm", CPU, 0),
    "baseline of the hypervisor": lambda connection, domain, pool: connection.baselineHypervisorCPU(None, "x86_64", None, "kvm", [CPU], 0),
    "definition with passwords": lambda connection, domain, pool: domain.XMLDesc(SECURE),
    "migratable definition": lambda connection, domain, pool: domain.XMLDesc(MIGRATABLE),
    "dirty rate": lambda connection, domain, pool: domain.startDirtyRateCalc(1, 0),
    "bandwidth of migrations": lambda connection, domain, pool: domain.migrateGetMaxSpeed(),
    "refresh of a pool": lambda connection, domain, pool: pool.refresh(),
    "new pool": lambda connection, domain, pool: connection.storagePoolCreateXML(POOL),
    "migration": lambda connection, domain, pool: domain.migrateToURI3("qemu:///system", {}, 2),
    "abort": lambda connection, domain, pool: domain.abortJob(),
    "suspend": lambda connection, domain, pool: domain.suspend(),
    "shutdown": lambda connection, domain, pool: domain.shutdown(),
    "definition": lambda connection, domain, pool: connection.defineXML(domain.XMLDesc(0)),
    "metadata": lambda connection, domain, pool: domain.setMetadata(2, None, None, "https://example.org/x", 2),
}
ANSWERED: dict[str, Call] = {
    "plain definition": lambda connection, domain, pool: domain.XMLDesc(0),
    "inactive definition": lambda connection, domain, pool: domain.XMLDesc(2),
    "statistics of all domains": lambda connection, domain, pool: connection.getAllDomainStats(1, 0),
    "list of domains": lambda connection, domain, pool: connection.listAllDomains(0),
    "state": lambda connection, domain, pool: domain.state(),
    "autostart": lambda connection, domain, pool: domain.autostart(),
    "capabilities": lambda connection, domain, pool: connection.getCapabilities(),
    "baseline of the CPU": lambda connection, domain, pool: connection.baselineCPU([CPU], 1),
    "map of the CPUs": lambda connection, domain, pool: connection.getCPUMap(),
    "name of the host": lambda connection, domain, pool: connection.getHostname(),
    "pool": lambda connection, domain, pool: (pool.info(), pool.XMLDesc(0), pool.listVolumes()),
    "networks": lambda connection, domain, pool: [network.XMLDesc(0) for network in connection.listAllNetworks(0)],
    "devices": lambda connection, domain, pool: [device.XMLDesc(0) for device in connection.listAllDevices(0)],
}


@pytest.fixture
def objects() -> t.Iterator[tuple[t.Any, t.Any, t.Any]]:
    """A read-only connection, a domain and a pool."""
    libvirt.registerErrorHandler(lambda context, error: None, None)
    connection = libvirt.openReadOnly("test:///default")
    yield connection, connection.listAllDomains()[0], connection.listAllStoragePools()[0]
    connection.close()


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_a_read_only_connection_refuses_the_call(objects: tuple[t.Any, t.Any, t.Any], call: Call) -> None:
    with pytest.raises(libvirt.libvirtError) as caught:
        call(*objects)
    assert caught.value.get_error_code() == OPERATION_DENIED


@pytest.mark.parametrize("call", ANSWERED.values(), ids=list(ANSWERED))
def test_a_read_only_connection_answers_the_call(objects: tuple[t.Any, t.Any, t.Any], call: Call) -> None:
    assert call(*objects) is not None
