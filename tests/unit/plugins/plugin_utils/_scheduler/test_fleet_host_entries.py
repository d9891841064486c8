# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import UnreadableHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState, find_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

KVM2 = host_entry({"name": "kvm2", "host_uuid": "u2", "host_id": "i2"})


def test_an_entry_is_found_by_name_uuid_or_host_id() -> None:
    assert find_entry([KVM2], "kvm2") is KVM2
    assert find_entry([KVM2], "renamed", "u2") is KVM2
    assert find_entry([KVM2], "renamed", "new", "i2") is KVM2
    assert find_entry([KVM2], "renamed", "new", "other") is None


def test_unknown_identities_do_not_match_each_other() -> None:
    assert find_entry([host_entry({"name": "kvm3", "state": "fenced"})], "kvm2", None, None) is None


def test_an_entry_that_is_not_enabled_takes_precedence() -> None:
    old = host_entry({"name": "old", "host_uuid": "u2", "state": "fenced"})
    assert find_entry([KVM2, old], "kvm2", "u2") is old


def test_a_host_that_is_or_may_be_one_with_an_unreadable_document_is_not_enabled() -> None:
    unreadable = [UnreadableHost("i3")]

    def state(name: str, host_uuid: str | None = None, host_id: str | None = None) -> str:
        return HostState.from_facts(name, None, entry=find_entry([KVM2], name, host_uuid, host_id, unreadable)).state

    assert [state("kvm3", "u3", "i3"), state("kvm3", "i3", "i4"), state("kvm3", "u3"), state("kvm2", "u2", "i3")] == ["unknown"] * 4
    assert [state("kvm4", "u4", "i4"), state("kvm2", "u2"), state("kvm2", "u2", "i2")] == ["enabled"] * 3


def test_a_document_of_a_later_version_names_its_host() -> None:
    entry = find_entry([], "kvm3", "u3", "i9", [UnreadableHost("i3", {"name": "kvm3"})])
    assert entry is not None
    assert "written by a later version" in str(entry.reason)
