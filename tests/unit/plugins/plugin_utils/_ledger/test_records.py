# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records: opened once a domain, changed by compare and set, closed together with where their domain may be."""

from __future__ import annotations

import copy
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Internal, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, intend
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]
MOVED = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)


def hosts_of(ledger: Ledger, domain_uuid: str) -> list[str]:
    document = ledger.domain(domain_uuid)
    assert document is not None
    return [place["host"] for place in document.body["possible_hosts"]]


def test_an_opened_record_holds_its_domain(ledger: Ledger, new_move: NewMove) -> None:
    record = new_move()
    stored = ledger.open_record(record)
    assert (stored.version, stored.record["generation"], record["generation"]) == (1, 1, 0)
    assert ledger.unsettled_of(record["domain"]["uuid"]) == stored
    assert ledger.get(record["id"]) == stored
    with pytest.raises(Conflict) as refused:
        ledger.open_record(new_move(domain_uuid=record["domain"]["uuid"]))
    assert refused.value.result["record"] == stored.record
    assert "web1" in str(refused.value)
    assert "root@control pid 1" in str(refused.value)


def test_generations_of_a_domain_only_grow(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    domain = str(uuid.uuid4())
    seen = []
    for _turn in range(3):
        stored = ledger.open_record(new_move(domain_uuid=domain))
        seen.append(stored.record["generation"])
        stored = ledger.update(stored, {**stored.record, "generation": stored.record["generation"] + 1})
        seen.append(stored.record["generation"])
        go(ledger, stored, s.CANCELLED)
    assert seen == [1, 2, 3, 4, 5, 6]
    document = ledger.domain(domain)
    assert document is not None
    assert document.body["generation"] == 6


def test_an_adopter_fences_off_the_writer_before_it(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    late = go(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    adopted = ledger.update(late, {**late.record, "generation": 2})
    with pytest.raises(Conflict):
        go(ledger, late, s.QUEUED)
    assert go(ledger, adopted, s.QUEUED).record["generation"] == 2


def test_a_generation_raised_on_the_source_host_first_is_taken_over(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    stored = go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.RUNNING)
    domain = stored.record["domain"]["uuid"]
    raised = ledger.update(stored, {**stored.record, "generation": 2})
    kept = ledger.domain(domain)
    assert kept is not None
    assert kept.body["generation"] == 2
    go(ledger, raised, s.COMPLETED)
    assert ledger.open_record(new_move(domain_uuid=domain)).record["generation"] == 3
    assert ledger.verify_audit() == []


def test_a_change_of_what_was_overtaken_names_the_writer(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    stored = ledger.open_record(new_move())
    go(ledger, stored, s.SCHEDULED, by="alice@control pid 7")
    with pytest.raises(Conflict, match=r"alice@control pid 7 .*'scheduled'") as refused:
        go(ledger, stored, s.CONFLICT)
    assert refused.value.result["record"]["status"] == s.SCHEDULED


def test_a_transition_that_is_not_allowed_changes_nothing(ledger: Ledger, new_move: NewMove) -> None:
    stored = ledger.open_record(new_move())
    record = {**copy.deepcopy(stored.record), "status": s.DONE}
    with pytest.raises(Internal, match="may not go from 'accepted' to 'done'"):
        ledger.update(stored, record)
    assert ledger.get(stored.record["id"]) == stored


@pytest.mark.parametrize(("key", "value"), [("generation", 0), ("id", "77777777-0000-4000-8000-000000000007"), ("type", s.EVACUATION)])
def test_what_makes_a_record_itself_cannot_be_changed(ledger: Ledger, new_move: NewMove, key: str, value: t.Any) -> None:
    stored = ledger.open_record(new_move())
    with pytest.raises(Internal, match=r"may not (become|fall to)"):
        ledger.update(stored, {**stored.record, key: value})


def test_a_note_without_a_transition_is_kept_and_not_audited(ledger: Ledger, new_move: NewMove, store: Store) -> None:
    stored = ledger.open_record(new_move())
    record = copy.deepcopy(stored.record)
    intend(record, "abort")
    assert ledger.update(stored, record).version == 2
    assert ledger.get(record["id"]).record["acts"] == record["acts"]
    assert len(store.lines()) == 1


def test_the_ledger_keeps_its_own_copy(ledger: Ledger, new_move: NewMove) -> None:
    record = new_move()
    stored = ledger.open_record(record)
    record["domain"]["name"] = "changed"
    assert stored.record["domain"]["name"] == "web1"


def test_a_closed_record_moves_to_its_month_and_is_never_written_again(ledger: Ledger, new_move: NewMove, go: Go, store: Store) -> None:
    stored = go(ledger, ledger.open_record(new_move()), *MOVED)
    record = stored.record
    year, month = record["updated_at"][:4], record["updated_at"][5:7]
    assert store.names("migrations") == [f"migrations/closed/{year}/{month}/{record['id']}.json"]
    assert ledger.get(record["id"]) == stored
    assert ledger.unsettled_of(record["domain"]["uuid"]) is None
    with pytest.raises(InvalidState, match="it is closed as 'completed'"):
        ledger.update(stored, record)


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
def test_the_close_of_a_move_says_where_the_domain_is(ledger: Ledger, new_move: NewMove, go: Go, statuses: tuple[str, ...], expected: list[str]) -> None:
    stored = go(ledger, ledger.open_record(new_move()), *statuses)
    assert hosts_of(ledger, stored.record["domain"]["uuid"]) == expected


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
def test_an_evacuation_says_where_the_domain_may_be(ledger: Ledger, new_move: NewMove, go: Go, statuses: tuple[str, ...], expected: list[str]) -> None:
    stored = go(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), *statuses)
    assert hosts_of(ledger, stored.record["domain"]["uuid"]) == expected


def test_a_tombstone_holds_nothing_and_its_completion_moves_no_domain(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    evacuated = go(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    domain = evacuated.record["domain"]["uuid"]
    assert ledger.unsettled_of(domain) is None
    kvm3 = {"host": "kvm3", "host_id": None, "host_uuid": None}
    go(ledger, ledger.open_record(new_move(domain_uuid=domain, source=evacuated.record["destination"], destination=kvm3)), *MOVED)
    go(ledger, evacuated, s.COMPLETED)
    assert hosts_of(ledger, domain) == ["kvm3"]


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.ERROR)])
def test_an_unsettled_evacuation_holds_its_domain_until_superseded(ledger: Ledger, new_move: NewMove, go: Go, statuses: tuple[str, ...]) -> None:
    stored = go(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), *statuses)
    domain = stored.record["domain"]["uuid"]
    again = new_move(domain_uuid=domain, record_type=s.EVACUATION)
    with pytest.raises(Conflict):
        ledger.open_record(again)
    ledger.update(stored, {**stored.record, "superseded_by": again["id"]})
    assert ledger.open_record(again).record["generation"] == 2


def test_what_is_not_there_and_what_is_no_id(ledger: Ledger, store: Store) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(NotFound, match=unknown):
        ledger.get(unknown)
    for bad in ("../../etc/passwd", "", unknown + "\n", "x" * 40, None):
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.get(t.cast(str, bad))
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.unsettled_of(t.cast(str, bad))
    assert store.names("migrations") == []


def test_a_record_with_a_path_as_its_id_is_refused(ledger: Ledger, new_move: NewMove, store: Store) -> None:
    for record in ({**new_move(), "id": "../../evil"}, {**new_move(), "domain": {"uuid": "../evil", "name": "x"}}):
        with pytest.raises(InvalidArgument, match="is not a UUID"):
            ledger.open_record(record)
    assert store.names("migrations") == []


def test_names_of_any_kind_are_kept_as_they_are(ledger: Ledger, new_move: NewMove) -> None:
    for name in ("../../etc", "we\"b'1", "two\nlines", "größe {{ 1 + 1 }}", "\udcff"):
        stored = ledger.open_record(new_move(name))
        assert ledger.get(stored.record["id"]).record["domain"]["name"] == name
        assert [document.body["name"] for document in ledger.find_domains(name)] == [name]


def test_what_json_cannot_say_is_refused_and_nothing_is_written(ledger: Ledger, new_move: NewMove) -> None:
    for value in (float("nan"), object()):
        with pytest.raises(Internal, match="cannot be written as JSON"):
            ledger.open_record({**new_move(), "before": {"value": value}})
    assert list(ledger.records()) == []


def test_a_settled_record_cannot_be_opened(ledger: Ledger, new_move: NewMove) -> None:
    record = new_move()
    advance(record, s.CANCELLED, "me")
    with pytest.raises(Internal, match="not an unsettled one"):
        ledger.open_record(record)


def test_an_id_is_used_once(ledger: Ledger, new_move: NewMove, go: Go) -> None:
    record = new_move()
    go(ledger, ledger.open_record(record), s.CANCELLED)
    with pytest.raises(Conflict, match="in the ledger already"):
        ledger.open_record(record)
