# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.requirements import list_host_devices, list_networks, list_secrets
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import domain

PCI = "<source><address domain='0x0000' bus='0x06' slot='0x12' function='0x0'/></source>"
USB = "<source><vendor id='0x0951'/><product id='0x1666'/><address bus='1' device='4'/></source>"
MDEV = "<source><address uuid='C2177883-F1BB-47F0-914D-32A22E3A8804'/></source>"
SCSI = "<source><adapter name='scsi_host2'/><address bus='0' target='3' unit='1'/></source>"
NETWORK = "<interface type='hostdev'><source><address type='pci' domain='0' bus='6' slot='0x1f' function='7'/></source></interface>"


def hostdev(kind: str, source: str) -> str:
    return f"<hostdev mode='subsystem' type='{kind}'>{source}</hostdev>"


def test_host_devices_are_listed_with_their_addresses() -> None:
    found = list_host_devices(domain(devices=hostdev("pci", PCI) + hostdev("usb", USB) + hostdev("mdev", MDEV) + hostdev("scsi", SCSI) + NETWORK))
    assert [(device.kind, device.address) for device in found] == [
        ("pci", "0000:06:12.0"),
        ("usb", "1:4"),
        ("mdev", "c2177883-f1bb-47f0-914d-32a22e3a8804"),
        ("scsi", "2:0:3:1"),
        ("pci", "0000:06:1f.7"),
    ]
    assert (found[1].vendor, found[1].product, found[0].vendor) == ("0x0951", "0x1666", None)


def test_a_usb_device_can_be_given_by_vendor_and_product() -> None:
    (found,) = list_host_devices(domain(devices=hostdev("usb", "<source><vendor id='0x0951'/><product id='0x1666'/></source>")))
    assert encode(found) == {"kind": "usb", "address": "", "vendor": "0x0951", "product": "0x1666"}


@pytest.mark.parametrize(("policy", "when_moving", "at_a_start"), [("optional", True, True), ("requisite", True, None), ("mandatory", None, None)])
def test_a_usb_device_that_libvirt_leaves_out_if_it_is_missing_is_optional(policy: str, when_moving: bool | None, at_a_start: bool | None) -> None:
    root = domain(devices=hostdev("usb", f"<source startupPolicy='{policy}'><vendor id='0x0951'/><product id='0x1666'/></source>"))
    (off,) = list_host_devices(root)
    root.set("id", "7")
    (running,) = list_host_devices(root)
    assert (running.optional or None, off.optional or None) == (when_moving, at_a_start)


def test_networks_are_listed_by_type_and_source() -> None:
    interfaces = (
        "<interface type='network'><source network='default' portid='x' bridge='virbr0'/></interface>"
        "<interface type='bridge'><source bridge='br0'/><filterref filter='clean-traffic'/></interface>"
        "<interface type='bridge'><source bridge='ovs0'/><virtualport type='openvswitch'/><vlan><tag id='42'/></vlan></interface>"
        "<interface type='direct'><source dev='eth1' mode='bridge'/></interface>"
        "<interface type='user'/>"
    )
    assert encode(list_networks(domain(devices=interfaces + NETWORK))) == [
        {"type": "network", "source": "default"},
        {"type": "bridge", "source": "br0", "network_filter": "clean-traffic"},
        {"type": "bridge", "source": "ovs0", "virtualport": "openvswitch", "vlan": "42"},
        {"type": "direct", "source": "eth1"},
        {"type": "user", "source": ""},
    ]


def test_a_live_definition_of_a_network_interface_names_the_network() -> None:
    """Libvirt shows the bridge or the device beside the network in a live definition."""
    interfaces = (
        "<interface type='bridge'><source network='front' portid='x' bridge='brfront'/></interface>"
        "<interface type='direct'><source network='outside' portgroup='dmz' dev='eth1' mode='bridge'/></interface>"
    )
    assert encode(list_networks(domain(devices=interfaces))) == [
        {"type": "network", "source": "front"},
        {"type": "network", "source": "outside", "portgroup": "dmz"},
    ]


def test_secrets_are_listed_by_uuid_or_usage() -> None:
    disks = (
        "<disk type='network'><auth username='libvirt'><secret type='ceph' usage='client.libvirt'/></auth><source protocol='rbd' name='pool/web1'/></disk>"
        "<disk type='file'><source file='/srv/a'><encryption format='luks'><secret type='passphrase' uuid='0E1B6D5C-2f0a-4d3e-9d47-5f2f0c6d0a11'/>"
        "</encryption></source></disk>"
        "<disk type='file'><encryption format='luks'><secret type='passphrase' usage='/srv/b'/></encryption><source file='/srv/b'/></disk>"
        "<tpm><backend type='emulator'><encryption secret='6c8fe4f1-5b33-4f6a-8a43-7d9c9f7b9a22'/></backend></tpm>"
    )
    wanted = ["0e1b6d5c-2f0a-4d3e-9d47-5f2f0c6d0a11", "6c8fe4f1-5b33-4f6a-8a43-7d9c9f7b9a22", "ceph client.libvirt", "volume /srv/b"]
    assert list_secrets(domain(devices=disks)) == wanted
    assert list_secrets(domain()) == []


def test_a_device_of_a_network_is_what_the_guest_has_and_the_network_what_it_needs() -> None:
    root = domain(devices=NETWORK.replace("<source>", "<source network='pool'>"))
    (device,) = list_host_devices(root)
    assert (device.kind, device.network) == ("pci", "pool")
    assert encode(list_networks(root)) == [{"type": "network", "source": "pool"}]
