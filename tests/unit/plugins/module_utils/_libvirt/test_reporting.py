# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What domains have used, and how fast they write, from libvirt's statistics."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reporting import (
    LibvirtReporter,
    add_networks_of_devices,
    describe_use,
    hides_configuration,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import DomainUse
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import parse_xml

STATS: t.Dict[str, t.Union[int, str]] = {
    "cpu.time": 400000000,
    "balloon.rss": 78064,
    "balloon.usable": 20480,
    "balloon.unused": 10240,
    "balloon.last-update": 1700000000,
    "net.count": 2,
    "net.0.name": "vnet0",
    "net.0.rx.bytes": 90,
    "net.0.rx.pkts": 1000,
    "net.0.tx.bytes": 10,
    "net.1.rx.bytes": 1,
    "block.count": 1,
    "block.0.name": "vda",
    "block.0.rd.bytes": 512,
    "block.0.wr.bytes": 1024,
    "block.0.capacity": 16777216,
}


def describe(**changes: t.Any) -> DomainUse:
    stats = {**STATS, **{key.replace("__", "."): value for key, value in changes.items()}}
    return describe_use("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "web1", 3, {key: value for key, value in stats.items() if value is not None})


def test_figures_of_all_devices_are_added_up() -> None:
    use = describe()
    assert (use.id, use.cpu_ns, use.network_bytes, use.disk_bytes) == (3, 400000000, 101, 1536)
    assert (use.resident_mib, use.available_in_guest_mib, use.reported_at) == (76, 20, 1700000000)


def test_an_older_driver_of_a_guest_reports_only_what_is_unused() -> None:
    assert describe(balloon__usable=None).available_in_guest_mib == 10


def test_a_domain_without_devices_has_used_none_and_missing_figures_are_unknown() -> None:
    assert describe(net__count=0, net__0__rx__bytes=None, net__0__tx__bytes=None, net__1__rx__bytes=None).network_bytes == 0
    busy = describe(block__0__rd__bytes=None, block__0__wr__bytes=None, cpu__time=None)
    assert (busy.disk_bytes, busy.cpu_ns) == (None, None)
    assert describe(block__count=None).disk_bytes is None


@pytest.mark.parametrize("wrong", [-1, "many"])
def test_a_figure_of_another_form_is_unknown(wrong: t.Union[int, str]) -> None:
    assert describe(cpu__time=wrong).cpu_ns is None


def test_a_guest_that_has_never_reported_has_no_time() -> None:
    assert describe(**{"balloon__last-update": 0}).reported_at is None


UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


class OldDriver:
    """A connection with one running domain, as the bindings before libvirt 7.2 have them."""

    libvirtError = RuntimeError

    def lookupByUUIDString(self, uuid: str) -> OldDriver:
        return self

    def jobStats(self) -> t.Dict[str, int]:
        return {"type": 0}


class Driver(OldDriver):
    """With the call of libvirt 7.2."""

    def startDirtyRateCalc(self, seconds: int, flags: int) -> None:
        assert (seconds, flags) == (1, 0)


@pytest.mark.parametrize(("driver", "begun"), [(Driver(), [UUID]), (OldDriver(), [])], ids=["libvirt 7.2", "libvirt 7.0"])
def test_bindings_that_cannot_measure_dirty_rates_measure_nothing(monkeypatch: pytest.MonkeyPatch, driver: OldDriver, begun: t.List[str]) -> None:
    """A move of several domains asks for the rates; it must not fail without them."""
    monkeypatch.setattr(connection, "_libvirt", OldDriver)
    assert LibvirtReporter("qemu:///system", Opened(t.cast(t.Any, driver))).start_dirty_rates([UUID], 1) == begun


CARD = "<interface type='{}'><mac address='{}'/><source {}>{}</source></interface>"
MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03")


def test_a_device_that_a_network_has_given_has_the_name_of_the_network() -> None:
    """The live definition has only the device, which is another one on another host."""
    address = "<address type='pci' domain='0x0000' bus='0x03' slot='0x10' function='0x1'/>"
    running = parse_xml("<domain id='7'><devices>" + "".join(CARD.format("hostdev", mac, "", address) for mac in MACS) + "</devices></domain>")
    saved = (("network", MACS[0], "network='pool' portgroup='fast'"), ("hostdev", MACS[1], ""), ("network", MACS[2].upper(), "network='back'"))
    defined = parse_xml("<domain><devices>" + "".join(CARD.format(*card, "") for card in saved) + "</devices></domain>")
    assert hides_configuration(running)
    add_networks_of_devices(running, defined)
    assert [dict(source.attrib) for source in running.findall("devices/interface/source")] == [
        {"network": "pool", "portgroup": "fast"},
        {},
        {"network": "back"},
    ]


@pytest.mark.parametrize(
    ("attributes", "hides"),
    [
        ("mode='custom' match='exact' check='full'", True),
        ("mode='custom' match='exact' check='partial'", True),
        ("mode='custom' match='exact' check='none'", False),
        ("mode='host-passthrough' check='none'", False),
    ],
)
def test_definitions_that_name_what_was_asked_for_are_read_once(attributes: str, hides: bool) -> None:
    card = CARD.format("bridge", MACS[0], "", "")
    assert hides_configuration(parse_xml(f"<domain id='7'><cpu {attributes}/><devices>{card}</devices></domain>")) == hides
    assert not hides_configuration(parse_xml(f"<domain><cpu {attributes}/><devices>{card.replace('bridge', 'hostdev')}</devices></domain>"))


class DomainWithDisks:
    """A domain with an image that is not encrypted, and one for each place where a definition may say that it is."""

    def XMLDesc(self) -> str:
        encryption, disk = "<encryption format='luks'/>", "<disk type='file'><source file='/{0}'>{1}</source><target dev='{0}'/>{2}</disk>"
        disks = disk.format("vda", "", ""), disk.format("vdb", encryption, ""), disk.format("vdc", "", encryption)
        return f"<domain><devices>{''.join(disks)}</devices></domain>"

    def blockInfo(self, _name: str) -> t.Tuple[int, int, int]:
        return 8, 8, 8


def test_an_image_that_qemu_decrypts_is_listed_as_encrypted() -> None:
    class Driver:
        def lookupByUUIDString(self, _uuid: str) -> DomainWithDisks:
            return DomainWithDisks()

    images = LibvirtReporter("qemu:///system", Opened(t.cast(t.Any, Driver()))).list_images(UUID)
    assert [(image.target, image.encrypted) for image in images] == [("vda", False), ("vdb", True), ("vdc", True)]
