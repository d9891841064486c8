# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import keep
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.homes import homes
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, host, record, uid

Body = dict[str, t.Any]
SINCE, BEFORE, LATER, LAST = (f"2026-11-21T0{hour}:00:00.000Z" for hour in (2, 1, 3, 4))
DRAINED = host("kvm1", "maintenance", SINCE)
OTHERS = [host("kvm2"), host("kvm3")]


def home_of(hosts: list[Body], *records: Body, documents: t.Sequence[Body] = ()) -> str | None:
    home = homes(hosts, documents, records).get(uid("web1"))
    return home.host["name"] if home else None


def test_what_a_drain_took_is_at_home_where_the_drain_was() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2")) == "kvm1"


def test_what_moved_before_the_maintenance_is_not() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2", at=BEFORE)) is None


def test_what_a_person_moved_from_a_host_in_service_is_not() -> None:
    assert home_of([host("kvm1", "enabled", SINCE), *OTHERS], record("web1", "kvm1", "kvm2")) is None


def test_what_failed_or_was_cancelled_has_not_left() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2", s.FAILED), record("web1", "kvm1", "kvm2", s.CANCELLED)) is None


def test_over_several_hops_the_oldest_origin_counts_whatever_the_order_of_the_records() -> None:
    hosts = [DRAINED, host("kvm2", "maintenance", SINCE), host("kvm3")]
    assert home_of(hosts, record("web1", "kvm2", "kvm3", at=LAST), record("web1", "kvm1", "kvm2", at=LATER)) == "kvm1"


def test_an_evacuation_that_is_done_displaces_from_a_host_in_any_state() -> None:
    evacuated = record("web1", "kvm1", "kvm2", s.DONE, kind=s.EVACUATION, at=BEFORE)
    assert home_of([host("kvm1"), *OTHERS], evacuated, record("web1", "kvm2", "kvm3", at=LATER)) == "kvm1"


def test_a_written_origin_is_older_than_any_record() -> None:
    hosts = [host("kvm1"), host("kvm2", "maintenance", SINCE), host("kvm3")]
    assert home_of(hosts, record("web1", "kvm2", "kvm3"), documents=[document("web1", "kvm3", origin="kvm1")]) == "kvm1"


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    ledger = FileLedger(str(tmp_path / "ledger"))
    for entry in (DRAINED, *OTHERS):
        ledger.put_host({**entry, "machine_id": None, "reason": None, "by": "test"}, None)
    return ledger


def moved(ledger: FileLedger, source: str, destination: str) -> None:
    stored = ledger.open_record({**record("web1", source, destination, s.ACCEPTED), "created_at": LATER})
    ledger.update(stored, {**stored.record, "status": s.COMPLETED})


def protected(ledger: FileLedger) -> None:
    found = ledger.domain(uid("web1"))
    body = found.body if found else document("web1", "kvm1", protected=False)
    ledger.put_domain({**body, "protected": {"origin": None, "definition": "<secret/>"}}, found.version if found else None)


def origin(ledger: FileLedger) -> t.Any:
    found = ledger.domain(uid("web1"))
    assert found
    return found.body["protected"]["origin"]


def test_an_origin_is_kept_until_the_domain_is_back(ledger: FileLedger) -> None:
    protected(ledger)
    moved(ledger, "kvm1", "kvm2")
    predicted = keep(ledger, DRAINED, write=False)
    assert (predicted.changed, origin(ledger)) == (True, None)
    kept = keep(ledger, DRAINED, write=True)
    assert (kept.changed, [entry["name"] for entry in kept.displaced], origin(ledger)) == (True, ["web1"], "kvm1")
    assert kept.displaced[0]["possible_hosts"] == ["kvm2"]
    assert "secret" not in str(kept)
    assert not keep(ledger, DRAINED, write=True).changed

    found = ledger.find_host(name="kvm1")
    assert found
    enabled = ledger.put_host({**found.body, "state": "enabled"}, found.version).body
    moved(ledger, "kvm2", "kvm3")
    assert [entry["name"] for entry in keep(ledger, enabled, write=True).displaced] == ["web1"]
    moved(ledger, "kvm3", "kvm1")
    back = keep(ledger, enabled, write=True)
    assert ([entry["name"] for entry in back.returned], back.displaced, origin(ledger)) == (["web1"], [], None)
    assert keep(ledger, enabled, write=True).returned == []


def test_one_that_was_never_protected_is_told_and_not_remembered(ledger: FileLedger) -> None:
    moved(ledger, "kvm1", "kvm2")
    kept = keep(ledger, DRAINED, write=True)
    assert (kept.changed, [(entry["name"], entry["remembered"]) for entry in kept.displaced]) == (False, [("web1", False)])


def test_another_host_has_no_part_in_it(ledger: FileLedger) -> None:
    moved(ledger, "kvm1", "kvm2")
    assert keep(ledger, OTHERS[0], write=True).displaced == []


def test_a_document_that_others_always_write_is_a_conflict_that_shows_no_definition(ledger: FileLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    protected(ledger)
    moved(ledger, "kvm1", "kvm2")

    put = ledger.put_domain

    def too_late(body: Body, version: t.Optional[int]) -> Document:
        put({**body, "protected": {**body["protected"], "origin": None}}, version)
        return put(body, version)

    monkeypatch.setattr(ledger, "put_domain", too_late)
    with pytest.raises(Conflict) as caught:
        keep(ledger, DRAINED, write=True)
    assert "secret" not in str(caught.value.as_result())
