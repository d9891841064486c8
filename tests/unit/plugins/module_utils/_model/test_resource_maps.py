# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What two hosts call the same resource: validation of the maps, and the translation there and back."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import resource_maps as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NoName, Renaming, ResourceMaps, check_maps

HERE = ResourceMaps(
    bridges={"prod": "br0", "test": "br1"},
    networks={"storage": "default"},
    images={"fast": "/srv/fast", "archive": "/srv/fast/archive"},
    devices={"gpu": "0000:41:00.0", "vgpu": "4b20d080-1b54-4048-85b3-a6a62d165c01", "key": "1:4"},
    cpus={"guests": "2-5", "emulators": "0-1"},
    numa_nodes={"near": "0"},
    graphics={"console": "10.0.0.1"},
)
THERE = ResourceMaps(
    bridges={"prod": "br1", "test": "br0"},
    networks={"storage": "san"},
    images={"fast": "/data/nvme", "archive": "/archive"},
    devices={"gpu": "0000:06:12.3", "vgpu": "4b20d080-1b54-4048-85b3-a6a62d165c02", "key": "2:11"},
    cpus={"guests": "8-11", "emulators": "4"},
    numa_nodes={"near": "1"},
    graphics={"console": "10.0.0.2"},
)
OUT = Renaming("kvm1", "kvm2", HERE, THERE)
HOME = Renaming("kvm2", "kvm1", THERE, HERE)


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (m.BRIDGES, "br0", "br1"),
        (m.BRIDGES, "br1", "br0"),
        (m.BRIDGES, "br7", "br7"),
        (m.NETWORKS, "default", "san"),
        (m.IMAGES, "/srv/fast/web.qcow2", "/data/nvme/web.qcow2"),
        (m.IMAGES, "/srv/fast/archive/old/web.raw", "/archive/old/web.raw"),
        (m.IMAGES, "/srv/fast", "/data/nvme"),
        (m.IMAGES, "/srv/faster/web.raw", "/srv/faster/web.raw"),
        (m.DEVICES, "0000:41:00.0", "0000:06:12.3"),
        (m.DEVICES, "4b20d080-1b54-4048-85b3-a6a62d165c01", "4b20d080-1b54-4048-85b3-a6a62d165c02"),
        (m.DEVICES, "1:4", "2:11"),
        (m.CPUS, "2-5", "8-11"),
        (m.CPUS, "3", "9"),
        (m.CPUS, "2,5", "8,11"),
        (m.CPUS, "0-1", "4"),
        (m.CPUS, "6-7", "6-7"),
        (m.NUMA_NODES, "0", "1"),
        (m.GRAPHICS, "10.0.0.1", "10.0.0.2"),
        (m.GRAPHICS, "0.0.0.0", "0.0.0.0"),
    ],
)
def test_a_name_becomes_that_of_the_destination_and_is_itself_again_at_home(kind: str, before: str, after: str) -> None:
    assert OUT.rename(kind, before) == after
    assert HOME.rename(kind, after) == before


@pytest.mark.parametrize(
    ("here", "there", "kind", "name", "sentence"),
    [
        (HERE, ResourceMaps(), m.BRIDGES, "br0", "kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm1."),
        (ResourceMaps(), HERE, m.BRIDGES, "br0", "kvm1 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm2."),
        (HERE, ResourceMaps(), m.IMAGES, "/srv/fast/x", "kvm2 has no folder 'fast' in kvmfleet_image_map, and /srv/fast is 'fast' on kvm1."),
        (ResourceMaps(), THERE, m.IMAGES, "/archive/x", "kvm1 has no folder 'archive' in kvmfleet_image_map, and /archive is 'archive' on kvm2."),
        (HERE, ResourceMaps(), m.CPUS, "2", "kvm2 has no set of CPUs 'guests' in kvmfleet_cpu_map, and 2 is 'guests' on kvm1."),
        (ResourceMaps(), HERE, m.NUMA_NODES, "0", "kvm1 has no set of NUMA nodes 'near' in kvmfleet_numa_map, and 0 is 'near' on kvm2."),
        (HERE, THERE, m.CPUS, "0", "The set of CPUs 'emulators' has 2 members on kvm1 and 1 on kvm2, and the guest is bound to a part of it (0)."),
        (HERE, THERE, m.CPUS, "8", "kvm1 has no set of CPUs 'guests' in kvmfleet_cpu_map, and 8 is 'guests' on kvm2."),
        (
            ResourceMaps(devices={"gpu": "0000:41:00.0"}),
            ResourceMaps(devices={"gpu": "1:4"}),
            m.DEVICES,
            "0000:41:00.0",
            "0000:41:00.0 on kvm1 and 1:4 on kvm2 are devices of different kinds: the guest would see another device.",
        ),
        (
            ResourceMaps(images={"a": "/a"}),
            ResourceMaps(images={"a": "/b", "inner": "/b/inner"}),
            m.IMAGES,
            "/a/inner/x",
            "kvm1 has no folder 'inner' in kvmfleet_image_map, and /b/inner is 'inner' on kvm2.",
        ),
        (
            ResourceMaps(images={"a": "/a", "inner": "/z"}),
            ResourceMaps(images={"a": "/b", "inner": "/b/inner"}),
            m.IMAGES,
            "/a/inner/x",
            "kvm2 would have /a/inner/x as /b/inner/x, but that would not become /a/inner/x again on the way back to kvm1.",
        ),
    ],
)
def test_a_name_that_only_one_host_knows_and_a_way_back_that_leads_elsewhere_are_refused(
    here: ResourceMaps, there: ResourceMaps, kind: str, name: str, sentence: str
) -> None:
    with pytest.raises(NoName) as refused:
        Renaming("kvm1", "kvm2", here, there).rename(kind, name)
    assert str(refused.value) == sentence


def test_hosts_with_the_same_maps_rename_nothing() -> None:
    same = Renaming("kvm1", "kvm2", HERE, HERE)
    assert not same
    assert same.rename(m.BRIDGES, "br0") == "br0"
    assert bool(OUT)
    assert bool(HERE)
    assert not ResourceMaps()


def test_a_renaming_crosses_the_wire() -> None:
    assert decode(Renaming, encode(OUT)) == OUT


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({"bridges": {"prod": "br 0"}}, "kvmfleet_bridge_map of kvm1 has 'br 0' for 'prod'. Give the name of a bridge, e.g. br0."),
        ({"bridges": {"prod": "a-name-too-long-for-linux"}}, "kvmfleet_bridge_map of kvm1 has 'a-name-too-long-for-linux' for 'prod'."),
        ({"bridges": {"": "br0"}}, "kvmfleet_bridge_map of kvm1 has 'br0' for ''."),
        ({"networks": {"san": ""}}, "kvmfleet_network_map of kvm1 has '' for 'san'."),
        ({"images": {"fast": "srv"}}, "kvmfleet_image_map of kvm1 has 'srv' for 'fast'. Give the absolute path of a folder outside /dev"),
        ({"images": {"fast": "/dev/mapper"}}, "kvmfleet_image_map of kvm1 has '/dev/mapper' for 'fast'."),
        ({"images": {"fast": "/srv/../etc"}}, "kvmfleet_image_map of kvm1 has '/srv/../etc' for 'fast'."),
        ({"images": {"fast": "/"}}, "kvmfleet_image_map of kvm1 has '/' for 'fast'."),
        ({"devices": {"gpu": "41:00.0"}}, "kvmfleet_device_map of kvm1 has '41:00.0' for 'gpu'. Give a PCI address like 0000:41:00.0"),
        ({"cpus": {"guests": "2-"}}, "kvmfleet_cpu_map of kvm1 has '2-' for 'guests'. Give CPUs as libvirt writes them"),
        ({"numa_nodes": {"near": "x"}}, "kvmfleet_numa_map of kvm1 has 'x' for 'near'."),
        ({"graphics": {"console": "kvm1"}}, "kvmfleet_graphics_map of kvm1 has 'kvm1' for 'console'. Give an IP address."),
        ({"bridges": {"prod": "br0", "test": "br0"}}, "kvmfleet_bridge_map of kvm1 gives 'br0' two names: 'prod' and 'test'."),
        ({"cpus": {"a": "0-3", "b": "3-5"}}, "kvmfleet_cpu_map of kvm1 gives 3 two names: 'a' and 'b'."),
    ],
)
def test_an_invalid_map_is_refused_with_host_and_variable(maps: t.Dict[str, t.Dict[str, str]], message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_maps(ResourceMaps(**maps), "kvm1")
    assert message in str(refused.value)


def test_valid_maps_are_returned() -> None:
    assert check_maps(HERE, "kvm1") is HERE
    assert check_maps(THERE, "kvm2") is THERE
