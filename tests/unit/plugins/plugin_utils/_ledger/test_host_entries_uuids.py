# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import (
    HostIdentity,
    find_host_id,
    host_lock_name,
    host_ref_from_facts,
    list_uuid_notes,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

KVM1 = host_entry({"name": "kvm1", "host_id": "id-1", "host_uuid": "u-1", "machine_id": "m-1"})
KVM2 = host_entry({"name": "kvm2", "host_id": "id-2", "host_uuid": "u-2", "machine_id": "m-2"})


def test_a_changed_libvirt_uuid_is_noted_with_its_remedy() -> None:
    (note,) = list_uuid_notes(KVM1, HostIdentity("kvm1", "id-1", "u-9", "m-1"), [KVM1, KVM2])
    assert "u-1" in note
    assert "u-9" in note
    assert "libvirtd.conf" in note
    assert "virtqemud.conf" in note


@pytest.mark.parametrize(
    "identity",
    [
        HostIdentity("kvm1", "id-1", "u-1", "m-1"),
        HostIdentity("kvm1", "id-1", None, "m-1"),
        HostIdentity("kvm1", "id-1", "u-9", "m-9"),  # its disks are in another machine
        HostIdentity("kvm1", None, "u-9", "m-1"),
    ],
)
def test_an_unchanged_or_unknown_libvirt_uuid_is_not_noted(identity: HostIdentity) -> None:
    assert list_uuid_notes(KVM1, identity, [KVM1, KVM2]) == []
    assert list_uuid_notes(None, identity, [KVM1, KVM2]) == []


def test_a_libvirt_uuid_of_two_hosts_is_noted() -> None:
    (note,) = list_uuid_notes(None, HostIdentity("kvm1", "id-1", "u-2", "m-1"), [KVM1, KVM2])
    assert "kvm1 and kvm2" in note
    assert "refuses to migrate" in note


def test_a_host_reference_is_read_from_an_answer_or_the_known_entries() -> None:
    assert host_ref_from_facts(None, "kvm1", {"host_id": "id-1", "host_uuid": "u-9"}) == HostRef("kvm1", "id-1", "u-9")
    assert host_ref_from_facts(None, "kvm1", {"host_uuid": ""}) == HostRef("kvm1", None, None)
    assert find_host_id([KVM1, KVM2], "kvm1", "u-2") == "id-2"
    assert find_host_id([KVM1, dataclasses.replace(KVM2, host_uuid="u-1")], "kvm2", "u-1") == "id-2"
    assert find_host_id([KVM1, dataclasses.replace(KVM2, host_uuid="u-1")], "kvm3", "u-1") is None
    assert find_host_id([KVM1], "kvm1", None) is None


def test_the_lock_of_a_host_is_named_by_its_host_id_or_else_its_uuid() -> None:
    assert host_lock_name(HostRef(None, "id-1", "u-1")) == host_lock_name(HostRef(None, "id-1", "u-9"))
    assert host_lock_name(HostRef(None, None, "u-1")) != host_lock_name(HostRef(None, None, "u-2"))
