# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Definitions as libvirt writes them, of the parts that a test is about."""

from __future__ import annotations

from xml.etree import ElementTree

VERSIONS = {"libvirt": 9000000, "hypervisor": 7002022}
NEW_VERSIONS = {"libvirt": 11003000, "hypervisor": 10000000}


def domain(inner: str = "", devices: str = "", memory_mib: int = 4096, vcpu: str = "<vcpu>4</vcpu>") -> ElementTree.Element:
    """A domain's definition."""
    return ElementTree.fromstring(
        f"<domain type='kvm'><name>web1</name><memory unit='MiB'>{memory_mib}</memory>{vcpu}{inner}<devices>{devices}</devices></domain>"
    )
