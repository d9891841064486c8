# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import find_entry
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
