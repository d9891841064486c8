# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.places import known_id, lock_of, place_told
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.uuids import uuid_notes

KVM1 = {"name": "kvm1", "host_id": "id-1", "host_uuid": "u-1", "machine_id": "m-1"}
KVM2 = {"name": "kvm2", "host_id": "id-2", "host_uuid": "u-2", "machine_id": "m-2"}


def test_a_uuid_that_has_changed_is_said_with_its_remedy() -> None:
    (note,) = uuid_notes(KVM1, Identity("kvm1", "id-1", "u-9", "m-1"), [KVM1, KVM2])
    assert "u-1" in note
    assert "u-9" in note
    assert "libvirtd.conf" in note
    assert "virtqemud.conf" in note


@pytest.mark.parametrize(
    "identity",
    [
        Identity("kvm1", "id-1", "u-1", "m-1"),
        Identity("kvm1", "id-1", None, "m-1"),
        Identity("kvm1", "id-1", "u-9", "m-9"),  # its disks are in another machine
        Identity("kvm1", None, "u-9", "m-1"),
    ],
)
def test_what_is_no_such_change(identity: Identity) -> None:
    assert uuid_notes(KVM1, identity, [KVM1, KVM2]) == []
    assert uuid_notes(None, identity, [KVM1, KVM2]) == []


def test_a_uuid_that_two_hosts_have_is_said_of_both() -> None:
    (note,) = uuid_notes(None, Identity("kvm1", "id-1", "u-2", "m-1"), [KVM1, KVM2])
    assert "kvm1 and kvm2" in note
    assert "refuses to migrate" in note


def test_who_told_of_itself() -> None:
    assert place_told(None, "kvm1", {"host_id": "id-1", "host_uuid": "u-9"}) == {"host": "kvm1", "host_id": "id-1", "host_uuid": "u-9"}
    assert place_told(None, "kvm1", {"host_uuid": ""}) == {"host": "kvm1", "host_id": None, "host_uuid": None}
    assert known_id([KVM1, KVM2], "kvm1", "u-2") == "id-2"
    assert known_id([KVM1, {**KVM2, "host_uuid": "u-1"}], "kvm2", "u-1") == "id-2"
    assert known_id([KVM1, {**KVM2, "host_uuid": "u-1"}], "kvm3", "u-1") is None
    assert known_id([KVM1], "kvm1", None) is None


def test_a_host_is_booked_under_one_lock_whatever_its_uuid_is_by_now() -> None:
    assert lock_of({"host_id": "id-1", "host_uuid": "u-1"}) == lock_of({"host_id": "id-1", "host_uuid": "u-9"})
    assert lock_of({"host_id": None, "host_uuid": "u-1"}) != lock_of({"host_id": None, "host_uuid": "u-2"})
