# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definition of a guest for a host with other names: what changes, that nothing else does, and the way home."""

from __future__ import annotations

import random
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.renamed_request import rename_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.rewriting import find_difference, rewrite_definition, rewrite_definitions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import LIVE, PERSISTENT, DefinitionChange
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import (
    BootFile,
    DeviceNeed,
    DiskFile,
    DiskNeed,
    DomainRequest,
    GuestCell,
    NetworkNeed,
    NumaPlacement,
    Pinning,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NameChange, Renaming, ResourceMaps

HERE = ResourceMaps(
    bridges={"prod": "br0"},
    networks={"storage": "default"},
    images={"fast": "/srv/fast"},
    devices={"gpu": "0000:41:00.0", "vgpu": "4b20d080-1b54-4048-85b3-a6a62d165c01", "key": "1:4"},
    cpus={"guests": "2-5"},
    numa_nodes={"near": "0"},
    graphics={"console": "10.0.0.1"},
)
THERE = ResourceMaps(
    bridges={"prod": "br-prod"},
    networks={"storage": "san & co"},
    images={"fast": "/data/it's"},
    devices={"gpu": "0000:06:12.3", "vgpu": "4b20d080-1b54-4048-85b3-a6a62d165c02", "key": "2:11"},
    cpus={"guests": "8-11"},
    numa_nodes={"near": "1"},
    graphics={"console": "fd00::2"},
)
OUT, HOME = Renaming("kvm1", "kvm2", HERE, THERE), Renaming("kvm2", "kvm1", THERE, HERE)

GUEST = """<domain type='kvm' id="7" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web&amp;1</name>
  <metadata>
    <my:note xmlns:my="https://example.org/">br0 &lt;is&gt; /srv/fast/web.qcow2</my:note>
  </metadata>
  <vcpu placement='static' cpuset='2-5'>2</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='2'/>
    <vcpupin vcpu='1' cpuset='3'/>
    <emulatorpin cpuset='4-5'/>
    <iothreadpin iothread='1' cpuset='9999'/>
  </cputune>
  <numatune>
    <memory mode='strict' nodeset='0'/>
    <memnode cellid='0' mode='strict' nodeset='0'/>
  </numatune>
  <os>
    <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS.fd'>/srv/fast/vars/web.fd</nvram>
  </os>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/fast/web.qcow2' index='2'/>
      <backingStore type='file' index='3'>
        <format type='qcow2'/>
        <source file="/srv/fast/base.qcow2"/>
        <backingStore/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='block' device='disk'><source dev='/dev/sdb'/><target dev='vdb'/></disk>
    <disk type='file' device='cdrom'><source file='/srv/iso/x.iso'/><target dev='sda'/></disk>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:01'/>
      <source bridge='br0'/>
    </interface>
    <interface type='network'>
      <source network='default' portid='1' bridge='br0'/>
      <address type='pci' domain='0x0000' bus='0x41' slot='0x00' function='0x0'/>
    </interface>
    <graphics type='vnc' port='5900' listen='10.0.0.1' passwd='br0'>
      <listen type='address' address='10.0.0.1'/>
    </graphics>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source>
        <address domain='0x0000' bus='0x41' slot='0x00' function='0x0'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x41' slot='0x00' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='mdev'><source><address uuid='4B20D080-1b54-4048-85b3-a6a62d165c01'/></source></hostdev>
    <hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/><address bus='1' device='4'/></source></hostdev>
    <memory model='dimm'><source><nodemask>0</nodemask></source></memory>
  </devices>
  <qemu:commandline><qemu:arg value='br0'/></qemu:commandline>
</domain>"""


def change(path: str, before: str, after: str, *definitions: str) -> DefinitionChange:
    return DefinitionChange(path, before, after, definitions or (LIVE,))


CHANGES = (
    change("vcpu[1]/@cpuset", "2-5", "8-11"),
    change("cputune[1]/vcpupin[1]/@cpuset", "2", "8"),
    change("cputune[1]/vcpupin[2]/@cpuset", "3", "9"),
    change("cputune[1]/emulatorpin[1]/@cpuset", "4-5", "10-11"),
    change("numatune[1]/memory[1]/@nodeset", "0", "1"),
    change("numatune[1]/memnode[1]/@nodeset", "0", "1"),
    change("os[1]/nvram[1]", "/srv/fast/vars/web.fd", "/data/it's/vars/web.fd"),
    change("devices[1]/disk[1]/source[1]/@file", "/srv/fast/web.qcow2", "/data/it's/web.qcow2"),
    change("devices[1]/disk[1]/backingStore[1]/source[1]/@file", "/srv/fast/base.qcow2", "/data/it's/base.qcow2"),
    change("devices[1]/interface[1]/source[1]/@bridge", "br0", "br-prod"),
    change("devices[1]/interface[2]/source[1]/@network", "default", "san & co"),
    change("devices[1]/graphics[1]/@listen", "10.0.0.1", "fd00::2"),
    change("devices[1]/graphics[1]/listen[1]/@address", "10.0.0.1", "fd00::2"),
    change("devices[1]/hostdev[1]/source[1]/address[1]", "0000:41:00.0", "0000:06:12.3"),
    change("devices[1]/hostdev[2]/source[1]/address[1]", "4b20d080-1b54-4048-85b3-a6a62d165c01", "4b20d080-1b54-4048-85b3-a6a62d165c02"),
    change("devices[1]/hostdev[3]/source[1]/address[1]", "1:4", "2:11"),
    change("devices[1]/memory[1]/source[1]/nodemask[1]", "0", "1"),
)


def test_each_name_is_replaced_and_every_change_is_reported() -> None:
    there, changes = rewrite_definition(GUEST, OUT, LIVE)
    assert changes == CHANGES
    root = ElementTree.fromstring(there)
    assert root.find("devices/interface/source").attrib == {"bridge": "br-prod"}
    assert root.findall("devices/interface/source")[1].attrib == {"network": "san & co", "portid": "1", "bridge": "br0"}
    assert root.findtext("os/nvram") == "/data/it's/vars/web.fd"
    assert root.find("devices/hostdev/source/address").attrib == {"domain": "0x0000", "bus": "0x06", "slot": "0x12", "function": "0x3"}
    # Where the device is in the guest is not a matter of its host.
    assert root.find("devices/hostdev/address").get("bus") == "0x41"


def test_the_variables_of_the_device_uefi_vars_get_the_path_that_their_copy_has() -> None:
    _there, changes = rewrite_definition("<domain><os><varstore template='/t.json' path='/srv/fast/web.json'/></os></domain>", OUT, LIVE)
    assert changes == (change("os[1]/varstore[1]/@path", "/srv/fast/web.json", "/data/it's/web.json"),)


def test_every_other_byte_stays_as_it_is() -> None:
    lines = [(old, new) for old, new in zip(GUEST.splitlines(), rewrite_definition(GUEST, OUT, LIVE)[0].splitlines()) if old != new]
    assert lines[0] == ("  <vcpu placement='static' cpuset='2-5'>2</vcpu>", "  <vcpu placement='static' cpuset='8-11'>2</vcpu>")
    assert len(lines) == len(CHANGES)
    kept = [line for line in GUEST.splitlines() if "my:note" in line or "qemu:" in line or "OVMF_CODE" in line or "/dev/sdb" in line or "x.iso" in line]
    assert len(kept) == 5
    assert all(line in rewrite_definition(GUEST, OUT, LIVE)[0].splitlines() for line in kept)


def test_on_the_way_home_the_definition_is_the_same_as_before() -> None:
    home, changes = rewrite_definition(rewrite_definition(GUEST, OUT, LIVE)[0], HOME, LIVE)
    # Libvirt writes the UUIDs of devices in lower case.
    assert home == GUEST.replace("4B20D080", "4b20d080")
    assert {one.path for one in changes} == {one.path for one in CHANGES}


def test_hosts_with_the_same_names_need_no_other_definition() -> None:
    same = rewrite_definitions(GUEST, GUEST, Renaming("kvm1", "kvm2", HERE, HERE))
    assert (same.live, same.changes, same.as_parameters()) == (GUEST, (), {})


def test_both_definitions_are_rewritten_and_a_transient_guest_has_one() -> None:
    plugged = GUEST.replace("<source bridge='br0'/>", "<source bridge='br9'/>")
    both = rewrite_definitions(GUEST, plugged, OUT)
    assert {one.definitions for one in both.changes} == {(LIVE,), (LIVE, PERSISTENT)}
    assert [one.path for one in both.changes if one.definitions == (LIVE,)] == ["devices[1]/interface[1]/source[1]/@bridge"]
    assert set(both.as_parameters()) == {"destination_xml", "persistent_xml"}
    assert "bridge='br9'" in both.as_parameters()["persistent_xml"]
    assert set(rewrite_definitions(GUEST, None, OUT).as_parameters()) == {"destination_xml"}


def test_all_names_that_cannot_be_translated_are_in_one_refusal() -> None:
    with pytest.raises(NotSupported) as refused:
        rewrite_definitions(GUEST, GUEST, Renaming("kvm1", "kvm2", HERE, ResourceMaps(images={"fast": "/x"})))
    assert "kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm1." in str(refused.value)
    assert "kvm2 has no console address 'console'" in str(refused.value)
    assert str(refused.value).count("'prod'") == 2
    assert str(refused.value).endswith("Complete the resource maps of both hosts. Nothing was moved.")


def test_a_map_to_a_device_of_another_kind_would_change_what_the_guest_sees() -> None:
    other = Renaming("kvm1", "kvm2", HERE, ResourceMaps(**{**vars(THERE), "devices": {**THERE.devices, "gpu": "1:9"}}))
    with pytest.raises(NotSupported, match="are devices of different kinds: the guest would see another device"):
        rewrite_definition(GUEST, other, LIVE)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("52:54:00:00:00:01", "52:54:00:00:00:02", "devices/interface/mac/@address"),
        ("dev='vda'", "dev='vdc'", "devices/disk/target/@dev"),
        ("<name>web&amp;1</name>", "<name>web2</name>", "name"),
        ("bus='virtio'", "bus='virtio' x='1'", "devices/disk/target/@x"),
        ("<format type='qcow2'/>", "", "devices/disk/backingStore"),
        (">2</vcpu>", ">3</vcpu>", "vcpu"),
        ("index='2'", "index='9'", "devices/disk/source/@index"),
        ("dev='/dev/sdb'", "dev='/dev/sdc'", "devices/disk/source/@dev"),
        ("portid='1'", "portid='2'", "devices/interface/source/@portid"),
    ],
)
def test_a_difference_beyond_the_list_is_found(old: str, new: str, where: str) -> None:
    assert old in GUEST
    assert find_difference(ElementTree.fromstring(GUEST), ElementTree.fromstring(GUEST.replace(old, new, 1))) == where


def test_what_may_differ_is_no_difference() -> None:
    there = rewrite_definition(GUEST, OUT, LIVE)[0]
    assert find_difference(ElementTree.fromstring(GUEST), ElementTree.fromstring(there)) == ""


@pytest.mark.parametrize("text", ["", "<domain>", "no XML", "<!DOCTYPE x><domain/>", "<domain><devices></domain>"])
def test_damaged_xml_is_refused(text: str) -> None:
    with pytest.raises(Internal):
        rewrite_definition(text, OUT, LIVE)


def test_random_places_of_names_survive_there_and_back() -> None:
    """Names are the same text as other content, in either quotes, with entities, in elements of other namespaces."""
    draw = random.Random(7)
    pieces: t.List[str] = [
        "<interface type='bridge'><source bridge='br0'/></interface>",
        '<interface type="bridge"><source   bridge = "br0" /></interface>',
        "<x:disk xmlns:x='urn:x'><source file='/srv/fast/a'/></x:disk>",
        "<disk type='file'><source file='/srv/fast/a&amp;b&apos;.img' startupPolicy='optional'/></disk>",
        "<!-- <source bridge='br0'/> -->",
        "<disk type='file'><source file='/srv/fast/ü.img'/></disk>",
        "<serial><log file='/srv/fast/x' text=\"a>b\"/></serial>",
        "<graphics listen='10.0.0.1' note='listen=&apos;10.0.0.1&apos;'/>",
    ]
    for _round in range(200):
        guest = f"<domain><devices>{''.join(draw.choices(pieces, k=draw.randint(0, 9)))}</devices></domain>"
        there, changes = rewrite_definition(guest, OUT, LIVE)
        home, back = rewrite_definition(there, HOME, LIVE)
        assert ElementTree.canonicalize(home) == ElementTree.canonicalize(guest)
        assert [(one.path, one.after, one.before) for one in changes] == [(one.path, one.before, one.after) for one in back]
        assert len(changes) == guest.count("<source") + guest.count("<graphics") - guest.count("<x:disk") - guest.count("<!--")


NEEDS = DomainRequest(
    1024,
    2,
    networks=(NetworkNeed("bridge", "br0"), NetworkNeed("network", "default"), NetworkNeed("direct", "br0")),
    disks=(
        DiskNeed(
            "vda", kind="file", source="/srv/fast/web.qcow2", files=(DiskFile("backing", "file", "/srv/fast/base"), DiskFile("data", "block", "/srv/fast/d"))
        ),
        DiskNeed("vdb", kind="volume", source="pool/vol"),
        DiskNeed("sda", kind="file", source=""),
    ),
    boot_files=(BootFile("kernel", "/srv/fast/vmlinuz"),),
    nvram="/srv/fast/vars.fd",
    loader="/usr/share/x.fd",
    devices=(DeviceNeed("pci", "0000:41:00.0"), DeviceNeed("usb", ""), DeviceNeed("scsi", "1:4")),
    pinning=Pinning({"0": (2,), "1": (2, 3, 4, 5)}, (4, 5), {"1": (3,)}),
    numa=NumaPlacement("strict", (0,), (GuestCell(512, nodeset=(0,)), GuestCell(512))),
)


def test_the_request_of_a_domain_gets_the_same_names() -> None:
    there, problems, changes = rename_request(NEEDS, OUT)
    assert problems == ()
    assert NameChange("bridges", "br0", "br-prod") in changes
    assert there.networks == (NetworkNeed("bridge", "br-prod"), NetworkNeed("network", "san & co"), NetworkNeed("direct", "br0"))
    assert [disk.source for disk in there.disks or ()] == ["/data/it's/web.qcow2", "pool/vol", ""]
    assert [file.source for file in (there.disks or ())[0].files or ()] == ["/data/it's/base", "/srv/fast/d"]
    assert there.boot_files == (BootFile("kernel", "/data/it's/vmlinuz"),)
    assert (there.nvram, there.loader) == ("/data/it's/vars.fd", "/usr/share/x.fd")
    assert [device.address for device in there.devices or ()] == ["0000:06:12.3", "", "1:4"]
    assert there.pinning == Pinning({"0": (8,), "1": (8, 9, 10, 11)}, (10, 11), {"1": (9,)})
    assert there.numa == NumaPlacement("strict", (1,), (GuestCell(512, nodeset=(1,)), GuestCell(512)))
    assert rename_request(there, HOME)[:2] == (NEEDS, ())


def test_a_request_keeps_the_names_that_cannot_be_translated_and_says_why() -> None:
    there, problems, _changes = rename_request(NEEDS, Renaming("kvm1", "kvm2", HERE, ResourceMaps(**{**vars(THERE), "bridges": {}})))
    assert (there.networks or ())[0] == NetworkNeed("bridge", "br0")
    given = DomainRequest(1, 1, devices=(DeviceNeed("pci", "0000:41:00.0", network="pool"), DeviceNeed("pci", "0000:99:00.0", network="pool")))
    assert rename_request(given, OUT)[:2] == (given, ())
    assert problems == ("kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm1.",)
