# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host for the time of its drain, and giving back the one that it had."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.preparation import CORDON_REASON, HostStatus, restore_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, make_entry


@pytest.mark.parametrize(
    ("before", "reason", "after"),
    [
        (HostStatus("enabled", None), None, HostStatus("maintenance", CORDON_REASON)),
        (HostStatus("enabled", None), "new disk", HostStatus("maintenance", "new disk")),
        (HostStatus("maintenance", "new disk"), None, HostStatus("maintenance", None)),
        (HostStatus("fenced", "it burns"), None, HostStatus("fenced", None)),
        (HostStatus("fenced", "it burns"), "new disk", HostStatus("fenced", "new disk")),
    ],
)
def test_a_cordon_keeps_the_state_fenced_and_an_existing_reason(before: HostStatus, reason: str | None, after: HostStatus) -> None:
    assert before.with_cordon(reason) == after


def test_a_host_without_an_entry_is_enabled() -> None:
    assert HostStatus.from_entry(None) == HostStatus("enabled", None)


def test_hosts_are_restored_to_their_previous_state_and_reason(tmp_path: pathlib.Path) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"))
    for name in ("kvm1", "kvm2"):
        ledger.put_host(
            make_entry(None, HostIdentity(name, f"00000000-0000-4000-8000-00000000000{name[-1]}", None, None), "maintenance", CORDON_REASON, "me"), None
        )
    restore_hosts(ledger, {"kvm1": HostStatus("enabled", None), "kvm2": HostStatus("maintenance", "new disk")}, "me")
    found = {entry.body["name"]: (entry.body["state"], entry.body["reason"]) for entry in ledger.list_hosts()}
    assert found == {"kvm1": ("enabled", None), "kvm2": ("maintenance", "new disk")}
    versions = {entry.body["name"]: entry.version for entry in ledger.list_hosts()}
    restore_hosts(ledger, {"kvm1": HostStatus("enabled", None)}, "me")
    assert {entry.body["name"]: entry.version for entry in ledger.list_hosts()} == versions
