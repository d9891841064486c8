# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records: opened once a domain, changed by compare and set, closed together with where their domain may be."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, MissingNote, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
MOVED = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)


def hosts_of(ledger: Ledger, domain_uuid: str) -> list[str]:
    document = ledger.read_domain(domain_uuid)
    assert document is not None
    return [place["host"] for place in document.body["possible_hosts"]]


def test_an_opened_record_locks_its_domain(ledger: Ledger, new_move: NewMove) -> None:
    record = new_move()
    stored = ledger.open_record(record)
    assert (stored.version, stored.record.generation, record.generation) == (1, 1, 0)
    assert ledger.find_unsettled(record.domain.uuid) == stored
    assert ledger.read_record(record.record_id) == stored
    with pytest.raises(Conflict) as refused:
        ledger.open_record(new_move(domain_uuid=record.domain.uuid))
    assert refused.value.result["record"] == encode(stored.record)
    assert "web1" in str(refused.value)
    assert "root@control pid 1" in str(refused.value)


def test_generations_of_a_domain_only_grow(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    domain = str(uuid.uuid4())
    seen = []
    for _turn in range(3):
        stored = ledger.open_record(new_move(domain_uuid=domain))
        seen.append(stored.record.generation)
        stored = ledger.update_record(stored, dataclasses.replace(stored.record, generation=stored.record.generation + 1))
        seen.append(stored.record.generation)
        advance_record(ledger, stored, s.CANCELLED)
    assert seen == [1, 2, 3, 4, 5, 6]
    document = ledger.read_domain(domain)
    assert document is not None
    assert document.body["generation"] == 6


def test_an_adopted_record_refuses_changes_of_its_former_writer(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    late = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    adopted = ledger.update_record(late, dataclasses.replace(late.record, generation=2))
    with pytest.raises(Conflict):
        advance_record(ledger, late, s.QUEUED)
    assert advance_record(ledger, adopted, s.QUEUED).record.generation == 2


def test_a_generation_raised_on_the_source_host_is_written_to_the_domain(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.RUNNING)
    domain = stored.record.domain.uuid
    raised = ledger.update_record(stored, dataclasses.replace(stored.record, generation=2))
    kept = ledger.read_domain(domain)
    assert kept is not None
    assert kept.body["generation"] == 2
    advance_record(ledger, raised, s.COMPLETED)
    assert ledger.open_record(new_move(domain_uuid=domain)).record.generation == 3
    assert ledger.verify_audit() == []


def test_a_conflicting_change_names_the_other_writer(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = ledger.open_record(new_move())
    advance_record(ledger, stored, s.SCHEDULED, by="alice@control pid 7")
    with pytest.raises(Conflict, match=r"alice@control pid 7 .*'scheduled'") as refused:
        advance_record(ledger, stored, s.CONFLICT)
    assert refused.value.result["record"]["status"] == s.SCHEDULED


def test_a_transition_that_is_not_allowed_changes_nothing(ledger: Ledger, new_move: NewMove) -> None:
    stored = ledger.open_record(new_move())
    record = dataclasses.replace(stored.record, status=s.DONE)
    with pytest.raises(Internal, match="cannot change from 'accepted' to 'done'"):
        ledger.update_record(stored, record)
    assert ledger.read_record(stored.record.record_id) == stored


@pytest.mark.parametrize(("key", "value"), [("generation", 0), ("id", "77777777-0000-4000-8000-000000000007"), ("type", s.EVACUATION)])
def test_id_type_and_generation_of_a_record_cannot_be_changed(ledger: Ledger, new_move: NewMove, key: str, value: t.Any) -> None:
    stored = ledger.open_record(new_move())
    with pytest.raises(Internal, match=r"must not (change to|decrease to)"):
        ledger.update_record(stored, dataclasses.replace(stored.record, **{key: value}))


def test_a_change_without_a_transition_has_no_audit_line(ledger: Ledger, new_move: NewMove, store: Store) -> None:
    stored = ledger.open_record(new_move())
    record = stored.record.intend("abort")
    assert ledger.update_record(stored, record).version == 2
    assert ledger.read_record(record.record_id).record.acts == record.acts
    assert len(store.lines()) == 1


def test_a_stored_record_does_not_share_mutable_values(ledger: Ledger, new_move: NewMove) -> None:
    needs = {"memory_mib": 256}
    stored = ledger.open_record(dataclasses.replace(new_move(), request=needs))
    needs["memory_mib"] = 512
    assert stored.record.request == {"memory_mib": 256}


def test_a_closed_record_is_stored_by_month_and_never_changed(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, store: Store) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), *MOVED)
    record = stored.record
    year, month = record.updated_at[:4], record.updated_at[5:7]
    assert store.names("migrations") == [f"migrations/closed/{year}/{month}/{record.id}.json"]
    assert ledger.read_record(record.record_id) == stored
    assert ledger.find_unsettled(record.domain.uuid) is None
    with pytest.raises(InvalidState, match="it is closed as 'completed'"):
        ledger.update_record(stored, record)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (MOVED, ["kvm2"]),
        ((s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.FAILED), ["kvm1"]),
        ((s.SCHEDULED, s.CANCELLED), ["kvm1"]),
        ((s.RUNNING, s.ERROR), ["kvm1"]),
        ((s.RUNNING, s.ERROR, s.COMPLETED), ["kvm2"]),
    ],
)
def test_the_end_of_a_move_sets_the_possible_hosts(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, statuses: tuple[str, ...], expected: list[str]
) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), *statuses)
    assert hosts_of(ledger, stored.record.domain.uuid) == expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((s.FAILED,), ["kvm1"]),
        ((s.PRE_MIGRATING,), ["kvm1", "kvm2"]),
        ((s.PRE_MIGRATING, s.ERROR), ["kvm1", "kvm2"]),
        ((s.PRE_MIGRATING, s.FAILED), ["kvm1"]),
        ((s.PRE_MIGRATING, s.DONE), ["kvm2"]),
        ((s.PRE_MIGRATING, s.DONE, s.COMPLETED), ["kvm2"]),
        ((s.PRE_MIGRATING, s.ERROR, s.COMPLETED), ["kvm2"]),
    ],
)
def test_each_status_of_an_evacuation_sets_the_possible_hosts(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, statuses: tuple[str, ...], expected: list[str]
) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), *statuses)
    assert hosts_of(ledger, stored.record.domain.uuid) == expected


def test_a_tombstone_does_not_lock_its_domain_or_change_possible_hosts(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    evacuated = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    domain = evacuated.record.domain.uuid
    assert ledger.find_unsettled(domain) is None
    kvm3 = HostRef("kvm3", None, None)
    advance_record(ledger, ledger.open_record(new_move(domain_uuid=domain, source=evacuated.record.destination, destination=kvm3)), *MOVED)
    advance_record(ledger, evacuated, s.COMPLETED)
    assert hosts_of(ledger, domain) == ["kvm3"]


@pytest.mark.parametrize(
    ("record_type", "source", "is_missing"), [(s.LIVE_MIGRATION, "kvm1", False), (s.LIVE_MIGRATION, "kvm2", True), (s.EVACUATION, "kvm1", True)]
)
def test_a_move_from_the_host_that_a_domain_was_missing_from_has_seen_it_there(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, record_type: str, source: str, is_missing: bool
) -> None:
    """If the move fails and the host dies, the domain is evacuated with the others."""
    domain, kvm1 = str(uuid.uuid4()), HostRef("kvm1", None, None)
    note = MissingNote("2026-11-24T01:00:00.000Z", "ann@control", kvm1)
    ledger.put_domain(DomainEntry(domain, "web1", (kvm1,), missing=note), None)
    ends = {"source": HostRef(source, None, None), "destination": HostRef("kvm3", None, None)}
    ledger.open_record(new_move(domain_uuid=domain, record_type=record_type, **ends))
    document = ledger.read_domain(domain)
    assert document is not None
    assert document.domain.is_missing is is_missing


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.ERROR)])
def test_an_unsettled_evacuation_locks_its_domain_until_superseded(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, statuses: tuple[str, ...]
) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), *statuses)
    domain = stored.record.domain.uuid
    again = new_move(domain_uuid=domain, record_type=s.EVACUATION)
    with pytest.raises(Conflict):
        ledger.open_record(again)
    ledger.update_record(stored, dataclasses.replace(stored.record, superseded_by=again.id))
    assert ledger.open_record(again).record.generation == 2


@pytest.mark.parametrize("status", [s.COMPLETED, s.ERROR])
def test_a_watcher_that_does_not_know_of_an_evacuation_leaves_its_move_superseded(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, status: str
) -> None:
    kvm2, kvm3 = (HostRef(name, None, None) for name in ("kvm2", "kvm3"))
    moved = advance_record(ledger, ledger.open_record(new_move(destination=kvm2)), s.SCHEDULED, s.RUNNING)
    seen_by_its_watcher, domain = moved.record.advance(status, "kvm1"), moved.record.domain.uuid
    evacuation = new_move(domain_uuid=domain, record_type=s.EVACUATION, source=kvm2, destination=kvm3)
    superseded = ledger.update_record(moved, dataclasses.replace(moved.record, superseded_by=evacuation.id))
    advance_record(ledger, ledger.open_record(evacuation), s.PRE_MIGRATING, s.DONE)
    written = ledger.update_record(superseded, seen_by_its_watcher)
    assert (written.record.status, written.record.superseded_by) == (status, evacuation.id)
    assert ledger.find_unsettled(domain) is None
    assert hosts_of(ledger, domain) == ["kvm3"]


def test_a_superseded_move_leaves_both_its_hosts_to_its_domain_until_that_has_started_elsewhere(
    ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    kvm2, kvm3 = (HostRef(name, None, None) for name in ("kvm2", "kvm3"))
    moved = advance_record(ledger, ledger.open_record(new_move(destination=kvm2)), s.SCHEDULED, s.RUNNING)
    domain = moved.record.domain.uuid
    evacuation = new_move(domain_uuid=domain, record_type=s.EVACUATION, source=kvm2, destination=kvm3)
    superseded = ledger.update_record(moved, moved.record.supersede(evacuation.record_id))
    assert hosts_of(ledger, domain) == ["kvm1", "kvm2"]
    advance_record(ledger, ledger.open_record(evacuation), s.PRE_MIGRATING, s.FAILED)
    assert hosts_of(ledger, domain) == ["kvm1", "kvm2"]
    again = new_move(domain_uuid=domain, record_type=s.EVACUATION, source=kvm2, destination=kvm3)
    advance_record(ledger, ledger.open_record(again), s.PRE_MIGRATING, s.DONE)
    ledger.update_record(superseded, superseded.record.raise_generation(9))
    assert hosts_of(ledger, domain) == ["kvm3"]


def test_an_unknown_id_is_not_found_and_an_invalid_one_is_refused(ledger: Ledger, store: Store) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(NotFound, match=unknown):
        ledger.read_record(unknown)
    for bad in ("../../etc/passwd", "", unknown + "\n", "x" * 40, None):
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.read_record(t.cast(str, bad))
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.find_unsettled(t.cast(str, bad))
    assert store.names("migrations") == []


def test_a_record_with_a_path_as_its_id_is_refused(ledger: Ledger, new_move: NewMove, store: Store) -> None:
    for record in (dataclasses.replace(new_move(), id="../../evil"), dataclasses.replace(new_move(), domain=DomainRef("../evil", "x"))):
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.open_record(record)
    assert store.names("migrations") == []


def test_domain_names_with_any_characters_are_kept(ledger: Ledger, new_move: NewMove) -> None:
    for name in ("../../etc", "we\"b'1", "two\nlines", "größe {{ 1 + 1 }}", "\udcff"):
        stored = ledger.open_record(new_move(name))
        assert ledger.read_record(stored.record.record_id).record.domain.name == name
        assert [document.body["name"] for document in ledger.find_domains(name)] == [name]


def test_a_record_that_json_cannot_represent_is_refused(ledger: Ledger, new_move: NewMove) -> None:
    for value in (float("nan"), object()):
        with pytest.raises(Internal, match="cannot be written as JSON"):
            ledger.open_record(dataclasses.replace(new_move(), request={"value": t.cast(str, value)}))
    assert list(ledger.list_records()) == []


def test_a_closed_record_cannot_be_opened(ledger: Ledger, new_move: NewMove) -> None:
    record = new_move().advance(s.CANCELLED, "me")
    with pytest.raises(Internal, match="not an unsettled one"):
        ledger.open_record(record)


def test_a_record_id_cannot_be_reused(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    record = new_move()
    advance_record(ledger, ledger.open_record(record), s.CANCELLED)
    with pytest.raises(Conflict, match="already in the ledger"):
        ledger.open_record(record)
