# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import (
    HostIdentity,
    displacing_since,
    find_entry_by_name,
    find_host_entry,
    is_changed,
    make_entry,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

ID, UUID, NEW = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def put(ledger: FileLedger, **changes: t.Any) -> None:
    identity = HostIdentity(**{"name": "kvm1", "host_id": ID, "host_uuid": UUID, "machine_id": "m1", **changes})
    ledger.put_host(make_entry(None, identity, "maintenance", "disk", "me"), None)


def found(
    ledger: FileLedger, name: str = "kvm1", host_id: str | None = ID, host_uuid: str | None = UUID, machine_id: str | None = "m1"
) -> dict[str, t.Any] | None:
    document = find_host_entry(ledger, HostIdentity(name, host_id, host_uuid, machine_id))
    return document.body if document else None


def test_a_new_host_has_no_entry(ledger: FileLedger) -> None:
    assert found(ledger) is None


def test_an_entry_is_found_after_one_identifying_value_changed(ledger: FileLedger) -> None:
    put(ledger)
    for changes in ({}, {"name": "renamed"}, {"host_uuid": NEW}, {"host_uuid": None}, {"machine_id": None}):
        entry = found(ledger, **changes)
        assert entry is not None
        assert entry["host_id"] == ID


def test_an_entry_under_the_libvirt_uuid_is_rekeyed_to_the_host_id(ledger: FileLedger) -> None:
    put(ledger, host_id=None)
    document = find_host_entry(ledger, HostIdentity("kvm1", ID, UUID, "m1"))
    assert document is not None
    after = ledger.put_host(make_entry(document.host, HostIdentity("kvm1", ID, UUID, "m1"), "enabled", None, "me"), document.version)
    assert (after.body["host_id"], after.body["state"]) == (ID, "enabled")
    assert [one.body["host_key"] for one in ledger.list_hosts()] == [ID]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host_id": NEW}, "reports the host ID"),
        ({"host_id": None}, "lost its identity"),
        ({"host_id": NEW, "host_uuid": NEW}, "reports the host ID"),
        ({"name": "kvm7", "host_uuid": NEW, "machine_id": "m7"}, "Two hosts"),
        # A clone of the whole disk has the machine ID, too.
        ({"name": "kvm7", "host_uuid": NEW}, "Two hosts"),
    ],
)
def test_a_contradictory_identity_is_a_conflict(ledger: FileLedger, changes: dict[str, t.Any], words: str) -> None:
    put(ledger)
    with pytest.raises(Conflict, match=words):
        found(ledger, **changes)


def test_hosts_that_share_a_libvirt_uuid_are_different_hosts(ledger: FileLedger) -> None:
    put(ledger)
    for host_id in (None, NEW):
        assert found(ledger, name="kvm2", host_id=host_id, machine_id="m2") is None
    put(ledger, name="kvm2", host_id=NEW, machine_id="m2")
    for name, host_id, machine_id in (("kvm1", ID, "m1"), ("kvm2", NEW, "m2")):
        entry = found(ledger, name=name, host_id=host_id, machine_id=machine_id)
        assert entry is not None
        assert entry["name"] == name
    assert found(ledger, name="kvm3", host_id=None, machine_id="m3") is None


@pytest.mark.parametrize("changes", [{"name": "kvm2"}, {"machine_id": "m2"}, {"name": "kvm2", "machine_id": None}])
def test_a_known_uuid_with_another_matching_value_is_a_conflict(ledger: FileLedger, changes: dict[str, t.Any]) -> None:
    put(ledger)
    with pytest.raises(Conflict):
        found(ledger, **{"host_id": NEW, **changes})


def test_two_hosts_with_one_name_are_a_conflict(ledger: FileLedger) -> None:
    put(ledger)
    put(ledger, name="kvm2", host_id=NEW, host_uuid=NEW, machine_id="m2")
    with pytest.raises(Conflict, match="another host with the name 'kvm2'"):
        found(ledger, name="kvm2")


def test_a_name_without_a_libvirt_uuid_is_a_conflict(ledger: FileLedger) -> None:
    put(ledger, host_id=None)
    with pytest.raises(Conflict, match="Start libvirt"):
        found(ledger, host_id=NEW, host_uuid=None)


def test_a_host_given_by_name_needs_an_entry(ledger: FileLedger) -> None:
    with pytest.raises(NotFound, match="no host 'kvm9'"):
        find_entry_by_name(ledger, "kvm9")
    with pytest.raises(NotFound):
        find_entry_by_name(None, "kvm9")
    put(ledger)
    assert find_entry_by_name(ledger, "kvm1").body["state"] == "maintenance"


def entry(state: str = "maintenance", reason: str | None = "disk") -> HostEntry:
    return HostEntry("kvm1", ID, UUID, state, machine_id="m1", reason=reason, since="then", by="somebody")


WHO = HostIdentity("kvm1", ID, UUID, "m1")


@pytest.mark.parametrize(
    ("state", "reason", "differing", "wanted"),
    [
        ("maintenance", None, False, "disk"),
        ("maintenance", "disk", False, "disk"),
        ("maintenance", "fan", True, "fan"),
        ("maintenance", "", True, None),
        ("enabled", None, True, None),
        ("fenced", "dead", True, "dead"),
    ],
)
def test_a_changed_entry_keeps_or_replaces_state_and_reason(state: str, reason: str | None, differing: bool, wanted: str | None) -> None:
    after = make_entry(entry(), WHO, state, reason, "me")
    assert is_changed(entry(), after) is differing
    assert after.reason == wanted
    assert after.by == ("me" if differing else "somebody")
    assert (after.since == "then") is (state != "enabled")


@pytest.mark.parametrize(("before", "after", "is_kept"), [("fenced", "maintenance", True), ("enabled", "maintenance", False), ("enabled", "fenced", False)])
def test_a_host_is_out_of_service_since_it_was_enabled_last(before: str, after: str, is_kept: bool) -> None:
    assert (make_entry(entry(before), WHO, after, None, "me").since == "then") is is_kept


def test_unknown_values_of_an_identity_do_not_change_the_entry() -> None:
    silent = HostIdentity("kvm1", None, None, None)
    assert not is_changed(entry(), make_entry(entry(), silent, "maintenance", None, "me"))


def test_a_missing_host_has_one_of_the_documents_that_cannot_be_read(ledger: FileLedger) -> None:
    keys = [str(uuid.UUID(int=number)) for number in range(1, 8)]
    for number, key in enumerate(keys):
        put(ledger, name=f"kvm{number}", host_id=key, host_uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, key)))
        pathlib.Path(ledger.name, "hosts", f"{key}.json").write_text("torn")
    with pytest.raises(NotFound, match=rf"hosts/{keys[4]}\.json.*Of 2 further hosts, the document cannot be read either\."):
        find_entry_by_name(ledger, "kvm6")
    # Its own document is named alone.
    with pytest.raises(NotFound, match=rf"hosts/{keys[6]}\.json") as caught:
        find_entry_by_name(ledger, keys[6])
    assert keys[0] not in str(caught.value)


def test_records_displace_since_the_first_of_the_hosts_out_of_service_is_that() -> None:
    states = {
        "kvm1": ("maintenance", "2026-11-21T03:00:00.000Z"),
        "kvm2": ("fenced", "2026-11-20T03:00:00.000Z"),
        "kvm3": ("enabled", "2026-11-19T03:00:00.000Z"),
    }
    hosts = [host_entry({"name": name, "state": state, "since": since}) for name, (state, since) in states.items()]
    assert displacing_since(hosts) == "2026-11-20T03:00:00.000Z"
    assert displacing_since([*hosts, host_entry({"name": "kvm4", "state": "maintenance"})]) == "2026-11-20T03:00:00.000Z"
    assert displacing_since(hosts[2:]) is None
