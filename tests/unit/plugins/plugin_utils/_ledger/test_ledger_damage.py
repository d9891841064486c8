# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damaged, edited, newer and foreign documents, in either store: each is named, none stops another."""

from __future__ import annotations

import json
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import recorded_grant
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


def open_path(record: MoveRecord) -> str:
    return f"migrations/open/{record.id}.json"


def torn(data: bytes) -> bytes:
    return data[:-20]


def edited(data: bytes) -> bytes:
    return data.replace(b'"status":"accepted"', b'"status":"running"')


def emptied(data: bytes) -> bytes:
    return b""


def nested(data: bytes) -> bytes:
    return b"[" * 100000


def resealed(data: bytes, **changes: t.Any) -> bytes:
    """Another body, with a checksum that is right."""
    return encode_document({**json.loads(data)["body"], **changes}, 1)


def without_a_past(data: bytes) -> bytes:
    return resealed(data, history=["accepted"])


def of_another_id(data: bytes) -> bytes:
    return resealed(data, id=str(uuid.uuid4()))


@pytest.mark.parametrize("damage", [torn, edited, emptied, nested, without_a_past, of_another_id])
def test_a_damaged_record_is_set_aside_and_does_not_stop_the_others(
    store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, damage: Callable[[bytes], bytes]
) -> None:
    bad, good = ledger.open_record(new_move("bad")), ledger.open_record(new_move("good"))
    spoilt = damage(t.cast(bytes, store.read(open_path(bad.record))))
    store.write(open_path(bad.record), spoilt)
    assert [record.domain.name for record in ledger.list_records()] == ["good"]
    assert len(ledger.problems) == 1
    assert open_path(bad.record) in ledger.problems[0]
    (aside,) = store.names("set_aside")
    assert aside.startswith(f"set_aside/migrations-{bad.record.id}-")
    assert store.read(aside) == spoilt
    advance_record(ledger, good, s.CANCELLED)
    with pytest.raises(NotFound):
        ledger.read_record(bad.record.record_id)
    with pytest.raises(Conflict, match="no longer in the ledger"):
        advance_record(ledger, bad, s.CANCELLED)
    assert len(ledger.problems) == 1
    assert ledger.open_record(new_move(domain_uuid=bad.record.domain.uuid)).record.generation == 2


def test_a_damaged_record_that_a_later_version_has_restored_is_not_damaged(store: Store, ledger: Ledger, new_move: NewMove) -> None:
    record = ledger.open_record(new_move()).record
    whole = t.cast(bytes, store.read(open_path(record)))
    store.write(open_path(record), torn(whole))
    assert ledger.list_damaged_records() == [record.id]
    store.write(open_path(record), as_newer(whole))
    assert store.open().list_damaged_records() == []


def as_newer(data: bytes) -> bytes:
    envelope = json.loads(data)
    envelope["body"]["schema"] = 2
    return json.dumps(envelope).encode()


def make_newer(store: Store, path: str) -> bytes:
    data = as_newer(t.cast(bytes, store.read(path)))
    store.write(path, data)
    return data


def test_a_record_of_a_later_version_is_kept_and_locks_its_domain(store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    newer, other = ledger.open_record(new_move("newer")), ledger.open_record(new_move("other"))
    content = make_newer(store, open_path(newer.record))
    assert [record.domain.name for record in ledger.list_records()] == ["other"]
    assert ledger.list_newer_records() == store.open().list_newer_records() == [newer.record.id]
    assert "its schema is 2, this version reads 1" in ledger.problems[0]
    with pytest.raises(NotSupported, match="Update the collection"):
        ledger.read_record(newer.record.record_id)
    with pytest.raises(NotSupported, match="may hold the domain"):
        ledger.open_record(new_move(domain_uuid=newer.record.domain.uuid))
    with pytest.raises(NotSupported):
        advance_record(ledger, newer, s.CANCELLED)
    advance_record(ledger, other, s.CANCELLED)
    assert store.read(open_path(newer.record)) == content
    assert store.names("set_aside") == []


def test_a_domain_document_of_a_later_version_is_never_overwritten(store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    domain = advance_record(ledger, ledger.open_record(new_move()), s.CANCELLED).record.domain.uuid
    content = make_newer(store, f"domains/{domain}.json")
    with pytest.raises(NotSupported):
        ledger.open_record(new_move(domain_uuid=domain))
    assert ledger.list_domains() == []
    assert ledger.read_domains() == store.open().read_domains() == ([], [], [domain])
    assert store.read(f"domains/{domain}.json") == content


def test_generations_continue_after_the_domain_document_was_damaged(store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    domain = str(uuid.uuid4())
    for _turn in range(3):
        advance_record(ledger, ledger.open_record(new_move(domain_uuid=domain)), s.CANCELLED)
    store.write(f"domains/{domain}.json", b"torn")
    # The first reading, which sets it aside, finds it, too.
    for _time in range(2):
        assert ledger.read_domains() == ([], [domain], [])
    assert ledger.read_domain(domain) is None
    assert ledger.open_record(new_move(domain_uuid=domain)).record.generation == 4
    assert ledger.read_domains()[1:] == ([], [])


def test_a_damaged_domain_document_stays_damaged_if_a_record_is_closed_that_does_not_say_where_the_domain_is(
    store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    """The domain was evacuated, and can have moved since; its source, of which the record is closed, does not have it."""
    done = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    given_up = advance_record(ledger, ledger.open_record(new_move()), s.RUNNING)
    given_up = ledger.update_record(given_up, given_up.record.supersede(done.record.record_id))
    domains = [stored.record.domain.uuid for stored in (done, given_up)]
    for domain in domains:
        store.write(f"domains/{domain}.json", b"torn")
    advance_record(ledger, done, s.COMPLETED)
    advance_record(ledger, given_up, s.FAILED)
    assert ledger.read_domains() == ([], sorted(domains), [])
    assert [ledger.open_record(new_move(domain_uuid=domain)).record.generation for domain in domains] == [2, 2]


def test_a_damaged_identity_is_not_replaced(store: Store, ledger: Ledger) -> None:
    store.write("ledger.json", b"")
    with pytest.raises(InvalidState, match=r"ledger\.json.* could not be read"):
        store.open()


def test_a_ledger_of_a_later_version_is_refused(store: Store, ledger: Ledger) -> None:
    make_newer(store, "ledger.json")
    with pytest.raises(NotSupported, match="of a later version"):
        store.open()


def test_reading_does_not_create_a_ledger(store: Store) -> None:
    with pytest.raises(NotFound, match="There is no ledger at"):
        store.open(create=False)
    assert store.names() == []


def test_the_ledger_id_is_created_once(store: Store, ledger: Ledger) -> None:
    assert str(uuid.UUID(ledger.ledger_id)) == ledger.ledger_id
    assert store.open().ledger_id == store.open(create=False).ledger_id == ledger.ledger_id


HOST_ID, HOST_UUID, OTHER_ID = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
HOST = {"name": "kvm1", "host_id": HOST_ID, "host_uuid": HOST_UUID, "machine_id": "m1"}
PATH = f"hosts/{HOST_ID}.json"


def put_fenced(ledger: Ledger) -> None:
    ledger.put_host(host_entry({**HOST, "state": "fenced", "protected": {"token_id": OTHER_ID}}), None)
    ledger.put_host(host_entry({"name": "kvm2", "host_id": OTHER_ID, "host_uuid": str(uuid.UUID(int=4))}), None)


def unreadable(ledger: Ledger) -> list[str]:
    return [one.host_key for one in ledger.read_hosts().unreadable]


@pytest.mark.parametrize("damage", [torn, emptied, nested])
def test_a_damaged_document_of_a_host_is_no_host_without_one(store: Store, ledger: Ledger, damage: Callable[[bytes], bytes]) -> None:
    put_fenced(ledger)
    content = t.cast(bytes, store.read(PATH))
    store.write(PATH, damage(content))
    assert unreadable(ledger) == unreadable(ledger) == [HOST_ID]
    later = store.open()
    assert unreadable(later) == [HOST_ID]
    assert [document.host.name for document in later.list_hosts()] == ["kvm2"]
    (problem,) = later.problems
    assert problem.startswith(f"The state of the host {HOST_ID} is not known, so it gets no guests: its document was damaged and set aside")
    with pytest.raises(Conflict, match=r"document of kvm1 .* was damaged and set aside\. The host may be fenced"):
        later.put_host(host_entry(HOST), None)
    assert store.read(PATH) is None
    store.write(PATH, content)
    assert unreadable(later) == []
    assert {document.host.state for document in later.list_hosts()} == {"enabled", "fenced"}


def test_a_document_that_is_found_damaged_by_the_write_is_not_replaced(store: Store, ledger: Ledger) -> None:
    put_fenced(ledger)
    store.write(PATH, b"torn")
    with pytest.raises(Conflict, match="was damaged and set aside"):
        store.open().put_host(host_entry(HOST), None)
    assert len(store.names("set_aside")) == 1


def test_a_person_states_the_state_of_a_host_whose_document_was_damaged(store: Store, ledger: Ledger) -> None:
    put_fenced(ledger)
    store.write(PATH, b"torn")
    written = ledger.put_host(host_entry({**HOST, "state": "maintenance"}), None, is_stated=True).host
    assert unreadable(ledger) == unreadable(store.open()) == []
    assert written == ledger.list_hosts()[0].host
    # Nobody knows any more whether the host may release its own boot.
    grant = recorded_grant(written)
    assert (written.state, grant is not None and grant.folders) == ("maintenance", {})


def test_a_host_without_an_id_may_be_one_whose_document_was_damaged(store: Store, ledger: Ledger) -> None:
    put_fenced(ledger)
    store.write(PATH, b"torn")
    unknown = host_entry({"name": "kvm3", "host_uuid": str(uuid.UUID(int=5))})
    with pytest.raises(Conflict, match=f"kvm3 reports no host ID, so it may be the host {HOST_ID}"):
        ledger.put_host(unknown, None)
    other = host_entry({**HOST, "name": "kvm3", "host_id": str(uuid.UUID(int=6)), "host_uuid": str(uuid.UUID(int=5))})
    assert recorded_grant(ledger.put_host(other, None).host) is None
    assert unreadable(ledger) == [HOST_ID]


def test_a_damaged_document_under_the_libvirt_uuid_is_that_of_the_host(store: Store, ledger: Ledger) -> None:
    ledger.put_host(host_entry({**HOST, "host_id": None, "state": "maintenance"}), None)
    store.write(f"hosts/{HOST_UUID}.json", b"torn")
    with pytest.raises(Conflict, match="was damaged and set aside"):
        ledger.put_host(host_entry(HOST), None)
    ledger.put_host(host_entry(HOST), None, is_stated=True)
    assert unreadable(ledger) == []


def test_a_second_document_under_the_libvirt_uuid_does_not_replace_a_damaged_one(store: Store, ledger: Ledger) -> None:
    ledger.put_host(host_entry({**HOST, "host_uuid": None, "state": "fenced", "protected": {"token_id": OTHER_ID}}), None)
    second = ledger.put_host(host_entry({**HOST, "host_id": None, "name": "10.0.0.1"}), None)
    store.write(PATH, b"torn")
    with pytest.raises(Conflict, match="was damaged and set aside"):
        ledger.put_host(host_entry(HOST), second.version)
    written = ledger.put_host(host_entry(HOST), second.version, is_stated=True).host
    assert recorded_grant(written) is not None


@pytest.mark.parametrize("is_stated", [False, True])
def test_a_document_of_a_host_of_a_later_version_is_never_replaced(store: Store, ledger: Ledger, is_stated: bool) -> None:
    put_fenced(ledger)
    content = make_newer(store, PATH)
    later = store.open()
    assert unreadable(later) == [HOST_ID]
    without_id = host_entry({**HOST, "host_id": None, "host_uuid": str(uuid.UUID(int=5))})
    for entry in (host_entry(HOST), without_id):
        with pytest.raises(NotSupported, match=r"later version|its schema is 2"):
            later.put_host(entry, None, is_stated)
    assert store.read(PATH) == content


def test_the_hosts_that_cannot_be_read_cost_no_further_request(etcd: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = etcd.open()
    put_fenced(ledger)
    etcd.write(PATH, b"torn")
    assert unreadable(ledger) == [HOST_ID]
    asked, run = [], ledger._client.run_transaction
    monkeypatch.setattr(ledger._client, "run_transaction", lambda *args: (asked.append(args), run(*args))[1])
    monkeypatch.setattr(ledger._client, "read_range", lambda *args: pytest.fail("a further request"))
    assert unreadable(ledger) == [HOST_ID]
    assert len(asked) == 1
