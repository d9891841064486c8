# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host for the time of its drain, and giving back the one that it had."""

from __future__ import annotations

import pathlib
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.cordon import CORDON_REASON, Cordon, HostStatus, restore_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DiscardDecision, Document, HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, find_entry_by_name, make_entry


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


def identity_of(name: str) -> HostIdentity:
    return HostIdentity(name, f"00000000-0000-4000-8000-00000000000{name[-1]}", None, None)


def cordon(ledger: FileLedger, name: str, reason: str | None = None, by: str = "me") -> Cordon:
    """Cordon a host as the task of a drain does."""
    found = ledger.find_host(name=name)
    before = found.host if found else None
    wanted = HostStatus.from_entry(before).with_cordon(reason)
    after = replace(make_entry(before, identity_of(name), wanted.state, wanted.reason, by), drained_by=by)
    ledger.put_host(after, found.version if found else None)
    return Cordon.from_entries(before, after)


def set_status(ledger: FileLedger, name: str, state: str, reason: str | None, by: str) -> None:
    found = ledger.find_host(name=name)
    entry = make_entry(found.host if found else None, identity_of(name), state, reason, by)
    ledger.put_host(entry, found.version if found else None)


def status_of(ledger: FileLedger, name: str) -> tuple[str, str | None]:
    status = HostStatus.from_entry(find_entry_by_name(ledger, name).host)
    return status.state, status.reason


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def test_hosts_are_restored_to_their_previous_state_and_reason(ledger: FileLedger) -> None:
    set_status(ledger, "kvm2", "maintenance", "new disk", "ann")
    cordons = {"kvm1": cordon(ledger, "kvm1"), "kvm2": cordon(ledger, "kvm2", "new fan")}
    assert (status_of(ledger, "kvm1"), status_of(ledger, "kvm2")) == (("maintenance", CORDON_REASON), ("maintenance", "new fan"))
    assert restore_hosts(ledger, cordons, "me") == []
    assert (status_of(ledger, "kvm1"), status_of(ledger, "kvm2")) == (("enabled", None), ("maintenance", "new disk"))
    versions = {entry.body["name"]: entry.version for entry in ledger.list_hosts()}
    assert restore_hosts(ledger, cordons, "me") == []
    assert {entry.body["name"]: entry.version for entry in ledger.list_hosts()} == versions


@pytest.mark.parametrize(
    ("state", "reason", "by"),
    [
        ("fenced", "It was off, and is evacuated", "evacuate"),
        ("maintenance", "disk fails", "ann"),
        ("maintenance", CORDON_REASON, "ann"),
    ],
)
def test_what_others_have_written_since_the_cordon_stays(ledger: FileLedger, state: str, reason: str, by: str) -> None:
    cordons = {"kvm1": cordon(ledger, "kvm1"), "kvm2": cordon(ledger, "kvm2")}
    set_status(ledger, "kvm1", "enabled", None, by)
    set_status(ledger, "kvm1", state, reason, by)
    (note,) = restore_hosts(ledger, cordons, "me")
    assert f"kvm1 stays {state} in the ledger ({reason}): {by} has changed its entry since this drain" in note
    assert (status_of(ledger, "kvm1"), status_of(ledger, "kvm2")) == ((state, reason), ("enabled", None))


@pytest.mark.parametrize(("reason", "later"), [(None, None), ("firmware", None), ("firmware", "firmware"), (None, CORDON_REASON)])
def test_a_drain_does_not_release_a_host_that_a_later_drain_has_cordoned_as_well(ledger: FileLedger, reason: str | None, later: str | None) -> None:
    first, second = cordon(ledger, "kvm1", reason, by="ann"), cordon(ledger, "kvm1", later, by="bob")
    there = ("maintenance", reason or CORDON_REASON)
    assert "bob has changed" in restore_hosts(ledger, {"kvm1": first}, "ann")[0]
    assert status_of(ledger, "kvm1") == there
    assert restore_hosts(ledger, {"kvm1": second}, "bob") == []
    assert status_of(ledger, "kvm1") == there


def test_a_drain_of_a_host_that_a_person_has_put_into_maintenance_keeps_that_person(ledger: FileLedger) -> None:
    set_status(ledger, "kvm1", "maintenance", "new disk", "ann")
    for reason in (None, "new disk"):
        cordon(ledger, "kvm1", reason, by="bob")
        entry = find_entry_by_name(ledger, "kvm1").host
        assert (entry.by, entry.drained_by) == ("ann", "bob")


def test_the_state_of_a_discarded_host_is_never_restored(ledger: FileLedger) -> None:
    cordons = {"kvm1": cordon(ledger, "kvm1")}
    found = find_entry_by_name(ledger, "kvm1")
    ledger.put_host(replace(found.host, discarded=DiscardDecision("2026-01-01T00:00:00Z", "ann", "burnt")), found.version)
    assert len(restore_hosts(ledger, cordons, "me")) == 1
    assert status_of(ledger, "kvm1") == ("maintenance", CORDON_REASON)


def test_a_write_of_another_process_between_reading_and_writing_is_seen(ledger: FileLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    cordons = {"kvm1": cordon(ledger, "kvm1")}
    put, others = ledger.put_host, [("fenced", "It was off, and is evacuated", "evacuate")]

    def put_after_another(entry: HostEntry, version: int | None) -> Document:
        while others:
            set_status(other, "kvm1", *others.pop())
        return put(entry, version)

    other = FileLedger(ledger.name)
    monkeypatch.setattr(ledger, "put_host", put_after_another)
    assert len(restore_hosts(ledger, cordons, "me")) == 1
    assert status_of(ledger, "kvm1") == ("fenced", "It was off, and is evacuated")


def test_the_cordon_of_a_version_that_named_nobody_is_undone_unless_the_state_has_changed() -> None:
    """Neither the writer of the entry nor who drained the host is known."""
    before, after = (HostEntry("kvm1", None, None, state) for state in ("enabled", "maintenance"))
    cordoned = Cordon.from_entries(before, after)
    assert cordoned == Cordon(HostStatus("enabled", None), HostStatus("maintenance", None), None, None)
    assert cordoned.undo(after, "me").state == "enabled"
    fenced = replace(after, state="fenced")
    assert cordoned.undo(fenced, "me") is fenced
