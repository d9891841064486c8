# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts that call a bridge, a folder of images, CPUs and a console address by other names, and a guest whose definition has such names."""

from __future__ import annotations

import contextlib
import json
import re
import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
# The folder of the shared images on the second host, and the name of the bridge there.
FOLDER, BRIDGE = "/var/lib/libvirt/nvme", "br-prod"
Maps = dict[int, dict[str, t.Any]]


@contextlib.contextmanager
def other_names_on_second(lab: Lab) -> t.Iterator[None]:
    """Give the bridge and the shared folder of the second host other names; neither has the first host's name there."""
    lab.on(2, "sh", "-ec", f"mkdir -p {FOLDER}; mount --bind {lab.layout.gluster} {FOLDER}; umount {lab.layout.gluster}")
    lab.on(2, "sh", "-ec", f"ip link set br0 down; ip link set br0 name {BRIDGE}; ip link set {BRIDGE} up")
    try:
        yield
    finally:
        lab.on(2, "sh", "-ec", f"ip link set {BRIDGE} down; ip link set {BRIDGE} name br0; ip link set br0 up")
        lab.on(2, "sh", "-ec", f"mount --bind {FOLDER} {lab.layout.gluster}; umount {FOLDER}; rmdir {FOLDER}")


def maps_of(lab: Lab) -> Maps:
    addresses = {number: lab.layout.host_address(lab.host(number)) for number in (1, 2)}
    return {
        1: {"bridge": {"prod": "br0"}, "image": {"fast": str(lab.layout.gluster)}, "cpu": {"guests": "0"}, "graphics": {"console": addresses[1]}},
        2: {"bridge": {"prod": BRIDGE}, "image": {"fast": FOLDER}, "cpu": {"guests": 1}, "graphics": {"console": addresses[2]}},
    }


def give_maps(control: Control, maps: Maps) -> None:
    """Write the maps into a second inventory of the control node."""
    hosts = {control.name(number): {f"kvmfleet_{kind}_map": names for kind, names in given.items()} for number, given in maps.items()}
    path = control.folder / "maps.yml"
    path.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    control.options = ("-i", str(path))


def make_named(lab: Lab, guest: Make, name: str, *options: str) -> str:
    """Make a guest whose definition has a name of its host for each kind, and start it."""
    guest(name, "--bridge", "br0", "--storage", "bindfs", "--mib", "64", "--off", *options)
    definition = lab.virsh(1, "dumpxml", name, "--inactive")
    graphics = f"<graphics type='vnc' autoport='yes' listen='{lab.layout.host_address(lab.host(1))}'/></devices>"
    definition = definition.replace("</vcpu>", "</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/></cputune>").replace("</devices>", graphics)
    file = lab.path(1, f"/run/kvmfleet-{name}.xml")
    file.write_text(definition)
    lab.virsh(1, "define", f"/run/kvmfleet-{name}.xml")
    file.unlink()
    lab.virsh(1, "start", name)
    return name


def names_in(definition: str) -> dict[str, str]:
    root = ElementTree.fromstring(definition)
    places = {
        "bridge": "devices/interface/source/@bridge",
        "image": "devices/disk/source/@file",
        "cpu": "cputune/vcpupin/@cpuset",
        "graphics": "devices/graphics/@listen",
        "listen": "devices/graphics/listen/@address",
    }
    found = {}
    for kind, place in places.items():
        path, _at, attribute = place.partition("/@")
        element = root.find(path)
        assert element is not None, definition
        found[kind] = str(element.get(attribute))
    return found


def stable(definition: str) -> str:
    """Return a live definition without what each start of QEMU decides anew."""
    volatile = (r" id='\d+'", r"<target dev='vnet\d+'/>", r" port='\d+'", r"<label>.*</label>", r"<imagelabel>.*</imagelabel>", r" index='\d+'")
    for pattern in volatile:
        definition = re.sub(pattern, "", definition)
    return definition


def definitions_on(lab: Lab, name: str, number: int) -> tuple[str, str]:
    return stable(lab.virsh(number, "dumpxml", name)), lab.virsh(number, "dumpxml", name, "--inactive")
