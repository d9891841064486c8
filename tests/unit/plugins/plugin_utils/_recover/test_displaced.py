# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document, DomainEntry, HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, make_entry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import DisplacedDomains, find_homes, keep_origins
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, host, record, uid

Body = dict[str, t.Any]
SINCE, BEFORE, LATER, LAST, NEXT, THEN = (f"2026-11-21T0{hour}:00:00.000Z" for hour in (2, 1, 3, 4, 5, 6))
DRAINED = host("kvm1", "maintenance", SINCE)
OTHERS = [host("kvm2"), host("kvm3")]


def home_of(hosts: list[Body], *records: MoveRecord, documents: t.Sequence[Body] = ()) -> str | None:
    home = find_homes(list(map(host_entry, hosts)), map(domain_entry, documents), records).get(uid("web1"))
    return home.host.name if home else None


def test_a_drained_domain_has_the_drained_host_as_origin() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2")) == "kvm1"


def test_a_domain_that_moved_before_the_maintenance_is_not_displaced() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2", at=BEFORE)) is None


def test_a_domain_that_moved_off_an_enabled_host_is_not_displaced() -> None:
    assert home_of([host("kvm1", "enabled", SINCE), *OTHERS], record("web1", "kvm1", "kvm2")) is None


def test_a_failed_or_cancelled_move_does_not_displace() -> None:
    assert home_of([DRAINED, *OTHERS], record("web1", "kvm1", "kvm2", s.FAILED), record("web1", "kvm1", "kvm2", s.CANCELLED)) is None


def test_the_origin_of_several_moves_is_the_oldest_source() -> None:
    hosts = [DRAINED, host("kvm2", "maintenance", SINCE), host("kvm3")]
    assert home_of(hosts, record("web1", "kvm2", "kvm3", at=LAST), record("web1", "kvm1", "kvm2", at=LATER)) == "kvm1"


def test_an_evacuation_displaces_whatever_the_state_of_the_host() -> None:
    evacuated = record("web1", "kvm1", "kvm2", s.DONE, kind=s.EVACUATION, at=BEFORE)
    assert home_of([host("kvm1"), *OTHERS], evacuated, record("web1", "kvm2", "kvm3", at=LATER)) == "kvm1"


@pytest.mark.parametrize(("status", "source"), [(s.COMPLETED, "kvm1"), (s.FAILED, "kvm1"), (s.DONE, "kvm9")])
def test_an_evacuation_that_is_closed_or_from_an_unknown_host_does_not_displace(status: str, source: str) -> None:
    assert home_of([host("kvm1"), *OTHERS], record("web1", source, "kvm2", status, kind=s.EVACUATION)) is None


@pytest.mark.parametrize("origin", ["kvm1", "kvm3"])
def test_an_origin_in_the_document_overrides_the_records(origin: str) -> None:
    hosts = [host("kvm1"), host("kvm2", "maintenance", SINCE), host("kvm3")]
    assert home_of(hosts, record("web1", "kvm2", "kvm3"), documents=[document("web1", "kvm3", origin=origin)]) == origin


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    ledger = FileLedger(str(tmp_path / "ledger"))
    for entry in (DRAINED, *OTHERS):
        ledger.put_host(host_entry({**entry, "machine_id": None, "reason": None, "by": "test"}), None)
    return ledger


def complete_move(ledger: FileLedger, source: str, destination: str, at: str = LATER) -> None:
    stored = ledger.open_record(record("web1", source, destination, s.ACCEPTED, at=at))
    ledger.update_record(stored, dataclasses.replace(stored.record, status=s.COMPLETED))


def protected(ledger: FileLedger) -> None:
    found = ledger.read_domain(uid("web1"))
    body = found.body if found else document("web1", "kvm1", protected=False)
    ledger.put_domain(domain_entry({**body, "protected": {"origin": None, "definition": "<secret/>"}}), found.version if found else None)


def origin(ledger: FileLedger) -> t.Any:
    found = ledger.read_domain(uid("web1"))
    assert found
    return found.body["protected"]["origin"]


def test_an_origin_is_kept_until_the_domain_is_back(ledger: FileLedger) -> None:
    protected(ledger)
    complete_move(ledger, "kvm1", "kvm2")
    predicted = keep_origins(ledger, host_entry(DRAINED), write=False)
    assert (predicted.changed, origin(ledger)) == (True, None)
    kept = keep_origins(ledger, host_entry(DRAINED), write=True)
    assert (kept.changed, [entry.name for entry in kept.displaced], origin(ledger)) == (True, ["web1"], "kvm1")
    assert (kept.displaced[0].possible_hosts, kept.displaced[0].remembered, kept.returned) == (("kvm2",), True, ())
    assert "secret" not in str(kept)
    assert not keep_origins(ledger, host_entry(DRAINED), write=True).changed

    found = ledger.find_host(name="kvm1")
    assert found
    enabled = ledger.put_host(host_entry({**found.body, "state": "enabled"}), found.version).host
    complete_move(ledger, "kvm2", "kvm3")
    assert [entry.name for entry in keep_origins(ledger, enabled, write=True).displaced] == ["web1"]
    complete_move(ledger, "kvm3", "kvm1")
    back = keep_origins(ledger, enabled, write=True)
    assert ([entry.name for entry in back.returned], back.displaced, origin(ledger)) == (["web1"], (), None)
    assert keep_origins(ledger, enabled, write=True).returned == ()


def set_state(ledger: FileLedger, name: str, state: str) -> HostEntry:
    found = ledger.find_host(name=name)
    assert found
    return ledger.put_host(host_entry({**found.body, "state": state, "since": SINCE}), found.version).host


def test_a_domain_that_is_home_again_does_not_belong_to_a_host_that_it_passed(ledger: FileLedger) -> None:
    protected(ledger)
    passed = set_state(ledger, "kvm2", s.MAINTENANCE)
    complete_move(ledger, "kvm1", "kvm2", at=LATER)
    complete_move(ledger, "kvm2", "kvm3", at=LAST)
    assert [entry.name for entry in keep_origins(ledger, host_entry(DRAINED), write=True).displaced] == ["web1"]
    home = set_state(ledger, "kvm1", s.ENABLED)
    complete_move(ledger, "kvm3", "kvm1", at=NEXT)
    assert [entry.name for entry in keep_origins(ledger, home, write=True).returned] == ["web1"]
    assert keep_origins(ledger, passed, write=True) == DisplacedDomains(False, (), ())
    assert origin(ledger) is None

    complete_move(ledger, "kvm2", "kvm3", at=THEN)
    assert [entry.name for entry in keep_origins(ledger, passed, write=True).displaced] == ["web1"]
    assert origin(ledger) == "kvm2"


def test_a_domain_that_was_back_before_its_host_was_recovered_does_not_belong_to_a_host_that_it_passed(ledger: FileLedger) -> None:
    protected(ledger)
    passed = set_state(ledger, "kvm2", s.MAINTENANCE)
    for source, destination, at in (("kvm1", "kvm2", LATER), ("kvm2", "kvm3", LAST), ("kvm3", "kvm1", NEXT)):
        complete_move(ledger, source, destination, at)
    assert keep_origins(ledger, host_entry(DRAINED), write=True).changed
    assert not keep_origins(ledger, host_entry(DRAINED), write=True).changed
    set_state(ledger, "kvm1", s.ENABLED)
    assert keep_origins(ledger, passed, write=True) == DisplacedDomains(False, (), ())


def test_a_domain_stays_displaced_if_its_drained_host_dies(ledger: FileLedger) -> None:
    protected(ledger)
    complete_move(ledger, "kvm1", "kvm2")
    for state in (s.FENCED, s.MAINTENANCE):
        found = ledger.find_host(name="kvm1")
        assert found
        entry = make_entry(found.host, HostIdentity("kvm1", None, None, None), state, "it died", "ann")
        kept = keep_origins(ledger, ledger.put_host(entry, found.version).host, write=False)
        assert (kept.changed, [one.name for one in kept.displaced]) == (True, ["web1"])


def test_a_displaced_domain_that_was_never_protected_is_reported_and_not_noted(ledger: FileLedger) -> None:
    complete_move(ledger, "kvm1", "kvm2")
    kept = keep_origins(ledger, host_entry(DRAINED), write=True)
    assert (kept.changed, [(entry.name, entry.remembered) for entry in kept.displaced]) == (False, [("web1", False)])


def test_displaced_domains_of_another_host_are_left_alone(ledger: FileLedger) -> None:
    protected(ledger)
    complete_move(ledger, "kvm1", "kvm2")
    assert keep_origins(ledger, host_entry(DRAINED), write=True).changed
    assert keep_origins(ledger, host_entry(OTHERS[0]), write=True) == DisplacedDomains(False, (), ())
    assert origin(ledger) == "kvm1"


def test_a_document_changed_by_others_is_a_conflict_without_its_definition(ledger: FileLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    protected(ledger)
    complete_move(ledger, "kvm1", "kvm2")

    put = ledger.put_domain

    def too_late(entry: DomainEntry, version: t.Optional[int]) -> Document:
        put(dataclasses.replace(entry, protected={**(entry.protected or {}), "origin": None}), version)
        return put(entry, version)

    monkeypatch.setattr(ledger, "put_domain", too_late)
    with pytest.raises(Conflict) as caught:
        keep_origins(ledger, host_entry(DRAINED), write=True)
    assert "secret" not in str(caught.value.as_result())
