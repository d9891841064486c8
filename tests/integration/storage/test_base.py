# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that need more files than their image: a base that each host has made for itself must not take the place of the right one."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

from .conftest import IMAGES, Disks, check_moves_as_unsafe, check_refused

BASE = f"{IMAGES}/base.qcow2"
Make = t.Callable[..., str]


@pytest.fixture
def other_base(disks: Disks) -> str:
    """A base of the same path and size on each host, made differently."""
    disks.create(BASE)
    disks.create(BASE, on=2)
    assert disks.content(BASE, 1) != disks.content(BASE, 2)
    return BASE


@pytest.mark.long
def test_a_shared_overlay_over_a_local_backing_file_is_unsafe(lab: Lab, control: Control, disks: Disks, guest: Make, other_base: str) -> None:
    name = guest("web", "--mib", "64")
    disks.attach(name, disks.create(f"{lab.layout.gluster}/web-data.qcow2", backing=other_base))
    for options in ({}, {"copy_storage": "auto"}):
        check_refused(control, name, BASE, "vdb", **options)
    check_moves_as_unsafe(lab, control, name, BASE)


def test_a_shared_overlay_over_a_shared_backing_file_moves(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("web", "--mib", "64")
    base = disks.create(f"{lab.layout.gluster}/base.qcow2")
    disks.attach(name, disks.create(f"{lab.layout.gluster}/web-data.qcow2", backing=base))
    outcome = control.move(name, 2, transport="tcp")
    assert outcome.ended() == ("completed", None), outcome.text
    assert lab.places(name) == {2: "running"}


@pytest.mark.long
def test_a_local_backing_file_of_a_shared_backing_file_is_unsafe(lab: Lab, control: Control, disks: Disks, guest: Make, other_base: str) -> None:
    name = guest("web", "--mib", "64")
    middle = disks.create(f"{lab.layout.gluster}/middle.qcow2", backing=other_base)
    disks.attach(name, disks.create(f"{lab.layout.gluster}/web-data.qcow2", backing=middle))
    outcome = control.move(name, 2, transport="tcp")
    assert outcome.refused() == "unsafe", outcome.text
    assert BASE in outcome.msg


@pytest.mark.long
def test_a_local_external_data_file_is_unsafe(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    """QEMU opens it by the image's header; libvirt 9.0 does not know of it."""
    name = guest("web", "--mib", "64")
    image, data = f"{lab.layout.gluster}/web-data.qcow2", f"{IMAGES}/web-data.raw"
    disks.made += [image, data]
    for number in (2, 1):
        lab.on(number, "rm", "-f", image)
        lab.on(number, "qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={data},data_file_raw=on", image, "8M")
    disks.attach(name, image)
    outcome = control.move(name, 2, transport="tcp")
    assert outcome.refused() == "unsafe", outcome.text
    assert data in outcome.msg
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_full_copy_of_an_overlay_needs_no_backing_file_at_the_destination(lab: Lab, control: Control, disks: Disks, guest: Make, other_base: str) -> None:
    """A full copy holds what the whole chain shows, also where that is zero, and what is at the path of the base there is not read."""
    name = guest("web", "--mib", "64")
    image = disks.create(f"{IMAGES}/web.qcow2", backing=other_base)
    lab.on(1, "qemu-io", "-f", "qcow2", "-c", "write -z 4M 8M", image)
    before = disks.content(image, 1)
    disks.attach(name, image)
    outcome = control.move(name, 2, transport="tcp", copy_storage="full")
    assert outcome.ended() == ("completed", None), outcome.text
    assert disks.content(image, 2) == before
    assert "base.qcow2" not in lab.virsh(2, "dumpxml", name)


@pytest.mark.long
def test_an_incremental_copy_over_a_different_backing_file_is_refused(lab: Lab, control: Control, disks: Disks, guest: Make, other_base: str) -> None:
    name = guest("web", "--mib", "64")
    image = disks.create(f"{IMAGES}/web.qcow2", backing=other_base)
    disks.create(image, on=2, backing=other_base)
    disks.attach(name, image)
    outcome = control.move(name, 2, transport="tcp", copy_storage="incremental", copy_storage_overwrite=["vdb"])
    assert outcome.refused() == "unsafe", outcome.text
    assert f"{BASE} on the destination is another file" in outcome.msg
    assert lab.places(name) == {1: "running"}
