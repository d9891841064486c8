# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import check_definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import RestartOrder, SavedDisk
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import EMULATOR, UUID, definition

PATH = "/srv/images/web1.qcow2"
BOMB = "<!DOCTYPE domain [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]>"


def disk(target: str = "vda", path: str = PATH) -> SavedDisk:
    return SavedDisk(target, "file", path, readonly=False, optional=False, folders=())


def order(text: str | None, source: str = PATH, disks: tuple[SavedDisk, ...] = (disk(),)) -> RestartOrder:
    return restart_order(UUID, "web1", text, (("vda", source),), disks)


def test_a_saved_definition_is_accepted() -> None:
    check_definition(order(definition()), [EMULATOR], pools)


def test_a_name_with_blanks_around_it_is_the_name_of_the_domain() -> None:
    """libvirt accepts such names, and keeps the blanks."""
    blank = definition(name=" web1 ")
    check_definition(dataclasses.replace(order(blank), name=" web1 "), [EMULATOR], pools)
    with pytest.raises(Unsafe, match="with the name ' web1 '"):
        check_definition(order(blank), [EMULATOR], pools)


VOLUME = definition().replace("type='file'", "type='volume'").replace(f"file='{PATH}'", "pool='images' volume='web1.qcow2'")
VOLUME_SOURCE = "images/web1.qcow2"


def pools(kind: str = "dir", path: str | None = "/srv/images") -> list[StoragePool]:
    return [StoragePool("images", kind, active=True, path=path)]


@pytest.mark.parametrize(
    ("there", "saved"),
    [
        (pools(), disk()),
        (pools("netfs", "/srv/images/"), disk()),
        (pools("logical", "/dev/vg"), dataclasses.replace(disk(path="/dev/vg/web1.qcow2"), kind="block")),
        (pools("rbd", None), dataclasses.replace(disk(path=VOLUME_SOURCE), kind="network")),
    ],
)
def test_a_volume_has_to_be_the_saved_file_in_the_pool_of_this_host(there: list[StoragePool], saved: SavedDisk) -> None:
    check_definition(order(VOLUME, VOLUME_SOURCE, (saved,)), [EMULATOR], lambda: there)


@pytest.mark.parametrize(
    "there",
    [pools("dir", "/var/lib/libvirt/images"), pools("logical", "/dev/vg"), pools("rbd", None)],
)
def test_a_volume_that_is_another_file_on_this_host_is_refused(there: list[StoragePool]) -> None:
    with pytest.raises(
        Unsafe, match=r"its disk vda is the volume images/web1.qcow2, which is .* on this host, not the file /srv/images/web1.qcow2 that was proved"
    ):
        check_definition(order(VOLUME, VOLUME_SOURCE), [EMULATOR], lambda: there)


def test_a_volume_in_a_pool_that_this_host_does_not_have_is_refused() -> None:
    with pytest.raises(Unsafe, match="which is in a pool that this host does not have, or that is not active, not the file"):
        check_definition(order(VOLUME, VOLUME_SOURCE), [EMULATOR], list)


def test_a_network_volume_that_is_a_file_on_this_host_is_refused() -> None:
    saved = dataclasses.replace(disk(path=VOLUME_SOURCE), kind="network")
    with pytest.raises(Unsafe, match=r"which is the file /srv/images/web1.qcow2 on this host"):
        check_definition(order(VOLUME, VOLUME_SOURCE, (saved,)), [EMULATOR], pools)


def test_a_file_that_is_described_as_a_volume_is_refused() -> None:
    """libvirt would open the file."""
    text = VOLUME.replace("type='volume'", "type='file'").replace("<source ", "<source file='/etc/shadow' ")
    with pytest.raises(Unsafe, match="they differ in vda"):
        check_definition(order(text, VOLUME_SOURCE), [EMULATOR], pools)


def test_pools_are_read_only_for_a_volume() -> None:
    check_definition(order(definition()), [EMULATOR], lambda: pytest.fail("not needed"))


@pytest.mark.parametrize("emulator", ["/usr/bin/kvm", "/usr/bin/kvm-spice", "/usr/bin/qemu-kvm"])
def test_an_older_name_of_the_emulator_is_accepted_where_the_host_has_it(monkeypatch: pytest.MonkeyPatch, emulator: str) -> None:
    """Earlier releases of distributions wrote these names into definitions. Libvirt starts such a guest, and does not list the name."""
    there = {emulator}
    monkeypatch.setattr(os, "access", lambda path, mode: path in there and mode == os.X_OK)
    check_definition(order(definition(emulator=emulator)), [EMULATOR], pools)
    there.clear()
    with pytest.raises(Unsafe, match=f"its emulator is '{emulator}', which this host does not have"):
        check_definition(order(definition(emulator=emulator)), [EMULATOR], pools)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB + definition(), "document type"),
        ("", "there is none"),
        (None, "there is none"),
        ("a shopping list", "not XML"),
        ("<network/>", "not a domain"),
        (definition(name="other"), "name 'other'"),
        (definition(uuid="5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a99"), "UUID"),
        (definition(path="/etc/shadow"), "/etc/shadow"),
        (definition(emulator="/bin/sh"), "/bin/sh"),
        (definition().replace("</devices>", "<disk type='file'><source file='/etc/shadow'/><target dev='vdb'/></disk></devices>"), "vdb"),
    ],
)
def test_an_altered_definition_is_refused(text: str | None, told: str) -> None:
    with pytest.raises(Unsafe, match=told) as raised:
        check_definition(order(text), [EMULATOR], pools)
    assert "web1" in str(raised.value)
    assert "was not started" in str(raised.value)


@pytest.mark.parametrize(
    "disks",
    [(), (disk("vdb"),), (disk(path="/etc/shadow"),)],
)
def test_a_proof_of_other_disks_is_refused(disks: tuple[SavedDisk, ...]) -> None:
    with pytest.raises(Unsafe, match="proved"):
        check_definition(order(definition(), disks=disks), [EMULATOR], pools)


def test_a_definition_over_the_size_limit_is_refused() -> None:
    with pytest.raises(Unsafe, match="longer than"):
        check_definition(order("<domain>" + " " * (5 * 1024 * 1024) + "</domain>"), [EMULATOR], pools)
