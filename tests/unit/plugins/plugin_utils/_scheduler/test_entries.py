# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.entries import entry_of

KVM2 = {"name": "kvm2", "host_uuid": "u2", "host_id": "i2", "state": "enabled"}


def test_an_entry_is_found_by_name_uuid_or_host_id() -> None:
    assert entry_of([KVM2], "kvm2") is KVM2
    assert entry_of([KVM2], "renamed", "u2") is KVM2
    assert entry_of([KVM2], "renamed", "new", "i2") is KVM2
    assert entry_of([KVM2], "renamed", "new", "other") is None


def test_nothing_unknown_matches_nothing_unknown() -> None:
    assert entry_of([{"name": "kvm3", "host_uuid": None, "host_id": None, "state": "fenced"}], "kvm2", None, None) is None


def test_the_entry_that_forbids_counts() -> None:
    old = {"name": "old", "host_uuid": "u2", "host_id": None, "state": "fenced"}
    assert entry_of([KVM2, old], "kvm2", "u2") is old
