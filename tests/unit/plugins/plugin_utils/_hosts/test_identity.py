# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.change import changed_entry, differs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity, entry_by_name, entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger

ID, UUID, NEW = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def put(ledger: FileLedger, **changes: t.Any) -> None:
    identity = {"name": "kvm1", "host_id": ID, "host_uuid": UUID, "machine_id": "m1", **changes}
    ledger.put_host(changed_entry(None, identity, "maintenance", "disk", "me"), None)


def found(
    ledger: FileLedger, name: str = "kvm1", host_id: str | None = ID, host_uuid: str | None = UUID, machine_id: str | None = "m1"
) -> dict[str, t.Any] | None:
    document = entry_of(ledger, Identity(name, host_id, host_uuid, machine_id))
    return document.body if document else None


def test_a_new_host_has_no_entry(ledger: FileLedger) -> None:
    assert found(ledger) is None


def test_an_entry_is_found_whatever_one_thing_has_changed(ledger: FileLedger) -> None:
    put(ledger)
    for changes in ({}, {"name": "renamed"}, {"host_uuid": NEW}, {"host_uuid": None}, {"machine_id": None}):
        entry = found(ledger, **changes)
        assert entry is not None
        assert entry["host_id"] == ID


def test_an_entry_under_the_libvirt_uuid_is_taken_over_when_the_host_gets_its_id(ledger: FileLedger) -> None:
    put(ledger, host_id=None)
    document = entry_of(ledger, Identity("kvm1", ID, UUID, "m1"))
    assert document is not None
    after = ledger.put_host(changed_entry(document.body, Identity("kvm1", ID, UUID, "m1").as_dict(), "enabled", None, "me"), document.version)
    assert (after.body["host_id"], after.body["state"]) == (ID, "enabled")
    assert [one.body["host_key"] for one in ledger.hosts()] == [ID]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host_id": NEW}, "says it is"),
        ({"host_id": None}, "lost its identity"),
        ({"host_id": NEW, "host_uuid": NEW}, "says it is"),
        ({"name": "kvm7", "host_uuid": NEW, "machine_id": "m7"}, "Two hosts"),
    ],
)
def test_identity_that_has_come_apart_is_a_conflict(ledger: FileLedger, changes: dict[str, t.Any], words: str) -> None:
    put(ledger)
    with pytest.raises(Conflict, match=words):
        found(ledger, **changes)


def test_boards_with_one_uuid_for_all_are_several_hosts(ledger: FileLedger) -> None:
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
def test_a_uuid_of_a_known_host_still_forbids_where_something_else_agrees(ledger: FileLedger, changes: dict[str, t.Any]) -> None:
    put(ledger)
    with pytest.raises(Conflict):
        found(ledger, **{"host_id": NEW, **changes})


def test_two_hosts_of_one_name_are_a_conflict(ledger: FileLedger) -> None:
    put(ledger)
    put(ledger, name="kvm2", host_id=NEW, host_uuid=NEW, machine_id="m2")
    with pytest.raises(Conflict, match="another host of the name 'kvm2'"):
        found(ledger, name="kvm2")


def test_a_silent_libvirt_proves_nothing_by_name_alone(ledger: FileLedger) -> None:
    put(ledger, host_id=None)
    with pytest.raises(Conflict, match="Start libvirt"):
        found(ledger, host_id=NEW, host_uuid=None)


def test_a_host_that_is_not_asked_needs_an_entry(ledger: FileLedger) -> None:
    with pytest.raises(NotFound, match="no host 'kvm9'"):
        entry_by_name(ledger, "kvm9")
    with pytest.raises(NotFound):
        entry_by_name(None, "kvm9")
    put(ledger)
    assert entry_by_name(ledger, "kvm1").body["state"] == "maintenance"


def entry(state: str = "maintenance", reason: str | None = "disk") -> dict[str, t.Any]:
    return {"name": "kvm1", "host_id": ID, "host_uuid": UUID, "machine_id": "m1", "state": state, "reason": reason, "since": "then", "by": "somebody"}


WHO = {"name": "kvm1", "host_id": ID, "host_uuid": UUID, "machine_id": "m1"}


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
def test_what_changes_and_which_reason_stands(state: str, reason: str | None, differing: bool, wanted: str | None) -> None:
    after = changed_entry(entry(), WHO, state, reason, "me")
    assert differs(entry(), after) is differing
    assert after["reason"] == wanted
    assert after["by"] == ("me" if differing else "somebody")
    assert (after["since"] == "then") is (state == "maintenance")


def test_what_a_host_could_not_say_keeps_its_value() -> None:
    silent = {"name": "kvm1", "host_id": None, "host_uuid": None, "machine_id": None}
    assert not differs(entry(), changed_entry(entry(), silent, "maintenance", None, "me"))
