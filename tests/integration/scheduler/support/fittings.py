# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What some hosts have and others lack: a bridge, a network on it, an image for a CD drive."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

BRIDGE = "brfront"
NETWORK = "front"
ISO = "/var/lib/libvirt/images/install.iso"

PORT_GROUP = "dmz"
DEFINITION = f"<network><name>{NETWORK}</name><forward mode='bridge'/><bridge name='{BRIDGE}'/></network>"
GROUPED = DEFINITION.replace("</network>", f"<portgroup name='{PORT_GROUP}'/></network>")
DEFAULTED = GROUPED.replace(f"'{PORT_GROUP}'/>", f"'{PORT_GROUP}' default='yes'/>")
# Without a bridge of the host: libvirt makes one, which leads nowhere.
ISOLATED = f"<network><name>{NETWORK}</name><bridge name='virbr77'/></network>"
NETWORK_CARD = f"<interface type='network'><source network='{NETWORK}'/><model type='virtio'/></interface>"
GROUPED_CARD = f"<interface type='network'><source network='{NETWORK}' portgroup='{PORT_GROUP}'/><model type='virtio'/></interface>"
CARDS = f"""\
<interface type='bridge'><source bridge='{BRIDGE}'/><model type='virtio'/></interface>
<interface type='network'><source network='{NETWORK}'/><model type='virtio'/></interface>
"""
DRIVE = f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{ISO}'/><target dev='hda' bus='ide'/><readonly/></disk>"


FILTER = "own-rules"
FILTERED_CARD = f"<interface type='bridge'><source bridge='{BRIDGE}'/><filterref filter='{FILTER}'/><model type='virtio'/></interface>"


SECRET = "0e1b6d5c-2f0a-4d3e-9d47-5f2f0c6d0a11"
LOCKED = "/var/lib/libvirt/images/locked.img"
LOCKED_DISK = f"""\
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{LOCKED}'><encryption format='luks'><secret type='passphrase' uuid='{SECRET}'/>
</encryption></source><target dev='vdz' bus='virtio'/><readonly/></disk>
"""


def add_bridge(lab: Lab, number: int) -> None:
    lab.on(number, "ip", "link", "add", BRIDGE, "type", "bridge")
    lab.on(number, "ip", "link", "set", BRIDGE, "up")


def add_network(lab: Lab, number: int, active: bool = True, definition: str = DEFINITION) -> None:
    """Define the network; it starts only where the bridge is."""
    lab("virsh", lab.host(number), "net-define", "/dev/stdin", stdin=definition)
    if active:
        lab.virsh(number, "net-start", NETWORK)


def add_filter(lab: Lab, number: int) -> None:
    rules = f"<filter name='{FILTER}'><rule action='accept' direction='inout'><all/></rule></filter>"
    lab("virsh", lab.host(number), "nwfilter-define", "/dev/stdin", stdin=rules)


def add_secret(lab: Lab, number: int) -> None:
    secret = f"<secret ephemeral='no' private='no'><uuid>{SECRET}</uuid><usage type='volume'><volume>{LOCKED}</volume></usage></secret>"
    lab("virsh", lab.host(number), "secret-define", "/dev/stdin", stdin=secret)
    lab.virsh(number, "secret-set-value", SECRET, "bG9ja2Vk")


def add_locked_image(lab: Lab, number: int) -> None:
    lab.on(number, "qemu-img", "create", "-q", "-f", "luks", "--object", "secret,id=key,data=locked", "-o", "key-secret=key,iter-time=10", LOCKED, "1M")


def add_image(lab: Lab, number: int) -> None:
    lab.on(number, "sh", "-c", f"head -c 1M /dev/zero > {ISO}")
    lab.virsh(number, "pool-refresh", "default")


def remove_all(lab: Lab, number: int) -> None:
    for verb in ("net-destroy", "net-undefine"):
        lab.try_("virsh", lab.host(number), verb, NETWORK)
    lab.try_("virsh", lab.host(number), "nwfilter-undefine", FILTER)
    lab.try_("exec", lab.host(number), "--", "ip", "link", "delete", BRIDGE)
    lab.try_("virsh", lab.host(number), "secret-undefine", SECRET)
    lab.on(number, "rm", "-f", ISO, LOCKED)
    lab.virsh(number, "pool-refresh", "default")


@contextlib.contextmanager
def hidden(lab: Lab, number: int, folder: str) -> t.Iterator[None]:
    """Hide a shared folder from one host, as a mount that is missing there does."""
    lab.on(number, "mount", "-t", "tmpfs", "none", folder)
    try:
        yield
    finally:
        lab.on(number, "umount", folder)
