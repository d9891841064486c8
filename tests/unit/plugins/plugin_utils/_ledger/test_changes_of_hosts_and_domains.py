# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents of hosts and domains: compare and set, a host's change of key, and what is refused."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

HOST_ID = "33333333-0000-4000-8000-000000000003"
HOST_UUID = "33333333-0000-4000-8000-0000000000a3"
DOMAIN = "55555555-0000-4000-8000-000000000005"


def host(**changes: t.Any) -> HostEntry:
    keys = {"host_id": HOST_ID, "host_uuid": HOST_UUID, "name": "kvm3", "machine_id": None, "state": "enabled", "reason": None, "since": None, "by": "me"}
    return HostEntry(**{**keys, **changes})


def domain(**changes: t.Any) -> DomainEntry:
    return domain_entry({"uuid": DOMAIN, "name": "web1", "possible_hosts": [{"host": "kvm1", "host_id": None, "host_uuid": None}], **changes})


def test_a_host_is_found_by_host_id_name_and_libvirt_uuid(ledger: Ledger) -> None:
    written = ledger.put_host(host(), None)
    assert written.version == 1
    assert written.body["ledger_id"] == ledger.ledger_id
    assert ledger.read_host(HOST_ID) == ledger.find_host(name="kvm3") == ledger.find_host(host_uuid=HOST_UUID.upper()) == written
    assert ledger.find_host(name="kvm4") is None
    assert ledger.find_host(name="kvm3", host_uuid=DOMAIN) is None


def test_a_host_document_is_changed_by_compare_and_set(ledger: Ledger) -> None:
    ledger.put_host(host(), None)
    assert ledger.put_host(host(state="maintenance", reason="fan", by="alice"), 1).version == 2
    for version in (None, 1, 3):
        with pytest.raises(Conflict, match="state 'maintenance', reason 'fan'"):
            ledger.put_host(host(), version)
    with pytest.raises(Conflict, match="it is not there"):
        ledger.put_host(host(host_id=DOMAIN, host_uuid=None, name="kvm5"), 1)


def test_a_host_known_by_its_libvirt_uuid_is_rekeyed_to_its_host_id(ledger: Ledger) -> None:
    first = ledger.put_host(host(host_id=None, state="maintenance"), None)
    assert first.body["host_key"] == HOST_UUID
    assert ledger.read_host(HOST_UUID) == first
    first = ledger.put_host(host(host_id=None, state="maintenance", reason="fan"), first.version)
    moved = ledger.put_host(host_entry({**first.body, "host_id": HOST_ID}), first.version)
    assert (moved.body["host_key"], moved.version) == (HOST_ID, 3)
    assert ledger.list_hosts() == [moved]
    assert ledger.read_host(HOST_UUID) is None


def test_the_change_that_gives_a_host_its_id_can_also_enable_it_and_keeps_its_decisions_once(ledger: Ledger) -> None:
    first = ledger.put_host(host(host_id=None, state="maintenance", decisions=[{"decision": "revoke_token"}]), None)
    enabled = ledger.put_host(host_entry({**first.body, "host_id": HOST_ID, "state": "enabled"}), first.version).host
    assert (enabled.state, enabled.decisions) == ("enabled", ({"decision": "revoke_token"},))


def test_a_known_host_is_not_added_twice(ledger: Ledger) -> None:
    ledger.put_host(host(), None)
    with pytest.raises(Conflict, match=f"is known as 'kvm3' \\({HOST_ID}\\)"):
        ledger.put_host(host(host_id=None, name="kvm3.example"), None)


def test_a_cordon_is_not_lost_when_two_documents_turn_out_to_be_one_host(ledger: Ledger) -> None:
    ledger.put_host(host(host_uuid=None), None)
    ledger.put_host(host(host_id=None, name="10.0.0.3", state="maintenance"), None)
    with pytest.raises(Conflict, match="in state 'maintenance'"):
        ledger.put_host(host(), 1)
    assert len(ledger.list_hosts()) == 2
    merged = ledger.put_host(host(state="maintenance"), 1)
    assert ledger.list_hosts() == [merged]


def test_no_decision_is_lost_when_two_documents_turn_out_to_be_one_host(ledger: Ledger) -> None:
    known = ledger.put_host(host_entry({"name": "kvm1", "host_id": HOST_ID, "host_uuid": None, "state": "fenced", "decisions": [{"decision": "b"}]}), None)
    discarded = {"at": "then", "by": "ann", "reason": "burnt"}
    unnamed = {"name": "10.0.0.1", "host_id": None, "host_uuid": HOST_UUID, "state": "fenced", "discarded": discarded, "decisions": [{"decision": "a"}]}
    ledger.put_host(host_entry(unnamed), None)
    merged = ledger.put_host(dataclasses.replace(known.host, host_uuid=HOST_UUID), known.version)
    assert ledger.list_hosts() == [merged]
    assert (merged.body["discarded"], merged.body["decisions"]) == (discarded, [{"decision": "a"}, {"decision": "b"}])


def test_an_ambiguous_host_name_is_a_conflict_that_names_both(ledger: Ledger) -> None:
    ledger.put_host(host(), None)
    ledger.put_host(host(host_id=DOMAIN, host_uuid=None), None)
    with pytest.raises(Conflict, match=f"{HOST_ID}.*{DOMAIN}|{DOMAIN}.*{HOST_ID}"):
        ledger.find_host(name="kvm3")


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"host_id": None, "host_uuid": None}, InvalidArgument, "neither a host_id nor a libvirt UUID"),
        ({"host_id": "../../etc/passwd"}, InvalidArgument, "is not a UUID"),
        ({"host_uuid": "x"}, InvalidArgument, "is not a UUID"),
        ({"name": ""}, InvalidArgument, "has no name"),
        ({"state": "asleep"}, InvalidArgument, "'asleep'"),
        ({"ledger_id": DOMAIN}, Conflict, f"belongs to the ledger {DOMAIN}"),
    ],
)
def test_an_invalid_host_document_is_refused(ledger: Ledger, changes: dict[str, t.Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        ledger.put_host(host(**changes), None)
    assert ledger.list_hosts() == []


def test_a_domain_document_is_changed_by_compare_and_set(ledger: Ledger) -> None:
    assert ledger.put_domain(domain(), None).version == 1
    assert ledger.put_domain(domain(name="web2", definition="<domain/>"), 1).version == 2
    for version in (None, 1):
        with pytest.raises(Conflict, match="the document of domain 'web1'"):
            ledger.put_domain(domain(), version)
    written = ledger.read_domain(DOMAIN.upper())
    assert written is not None
    assert written.body["definition"] == "<domain/>"
    assert ledger.find_domains("web2") == ledger.list_domains() == [written]
    assert ledger.find_domains("web1") == []


def test_the_generation_of_a_domain_is_kept_by_the_ledger(ledger: Ledger, new_move: Callable[..., MoveRecord]) -> None:
    ledger.open_record(new_move(domain_uuid=DOMAIN))
    assert ledger.put_domain(domain(generation=0), 1).body["generation"] == 1
    assert ledger.put_domain(domain(generation=99), 2).body["generation"] == 1


def test_opening_a_move_keeps_the_saved_data_of_its_domain(ledger: Ledger, new_move: Callable[..., MoveRecord]) -> None:
    ledger.put_domain(domain(definition="<domain/>", policy={"post_copy": False}), None)
    ledger.open_record(new_move(domain_uuid=DOMAIN))
    kept = ledger.read_domain(DOMAIN)
    assert kept is not None
    assert (kept.body["definition"], kept.body["policy"], kept.body["generation"]) == ("<domain/>", {"post_copy": False}, 1)


@pytest.mark.parametrize("changes", [{"uuid": "../x"}, {"name": None}])
def test_an_invalid_domain_document_is_refused(ledger: Ledger, changes: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument):
        ledger.put_domain(domain(**changes), None)
    assert ledger.list_domains() == []
