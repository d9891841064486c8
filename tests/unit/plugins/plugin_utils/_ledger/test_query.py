# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a reader may ask for, and that the answer is always a list."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, check_conditions, read_conditions, read_term
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

WEB1 = "aaaaaaaa-0000-4000-8000-000000000001"
HOST2 = "bbbbbbbb-0000-4000-8000-000000000002"


@pytest.fixture
def filled(ledger: Ledger, new_move: Callable[..., MoveRecord], advance_record: Callable[..., Stored]) -> Ledger:
    """A failed move of web1, a forced one of web2 that runs, an evacuation of db1, two hosts; web1's definition is saved."""
    advance_record(ledger, ledger.open_record(new_move("web1", WEB1)), s.FAILED)
    advance_record(ledger, ledger.open_record(dataclasses.replace(new_move("web2"), forced="FORCED_MIGRATE")), s.RUNNING)
    ledger.open_record(new_move("db1", record_type=s.EVACUATION))
    saved = ledger.read_domain(WEB1)
    assert saved is not None
    ledger.put_domain(domain_entry({**saved.body, "protected": {"autostart": True, "definition": "<domain/>"}}), saved.version)
    for number in (2, 1):
        host_uuid = f"bbbbbbbb-0000-4000-8000-00000000000{number}"
        ledger.put_host(host_entry({"host_id": None, "host_uuid": host_uuid, "name": f"kvm{number}", "state": "enabled"}), None)
    return ledger


def names(found: list[t.Any]) -> list[str]:
    return [document["domain"]["name"] if "domain" in document else document["name"] for document in found]


@pytest.mark.parametrize(
    ("term", "conditions", "expected"),
    [
        ("migrations", {}, ["web1", "web2"]),
        ("migrations", {"status": ["running"]}, ["web2"]),
        ("migrations", {"domain": WEB1}, ["web1"]),
        ("migrations", {"host": "kvm9"}, []),
        ("migrations", {"until": "2024-01-01"}, []),
        ("migrations", {"query": "[?status=='failed']"}, ["web1"]),
        ("migrations", {"query": "[0]"}, ["web1"]),
        ("migrations", {"query": "[7]"}, []),
        ("migrations", {"forced": True}, ["web2"]),
        ("migrations", {"forced": False}, ["web1"]),
        ("evacuations", {}, ["db1"]),
        ("evacuations", {"forced": True}, []),
        ("hosts", {}, ["kvm1", "kvm2"]),
        ("hosts", {"host": HOST2}, ["kvm2"]),
        ("domains", {}, ["db1", "web1", "web2"]),
        ("domains", {"host": "kvm1", "domain": "web1"}, ["web1"]),
        ("domains", {"host": "kvm2"}, []),
    ],
)
def test_each_term_is_read_with_its_conditions(filled: Ledger, term: str, conditions: dict[str, t.Any], expected: list[str]) -> None:
    wanted = Conditions(**conditions)
    check_conditions([term], wanted)
    assert names(read_term(filled, term, wanted)) == expected


@pytest.mark.parametrize(("term", "option", "uuid", "name"), [("migrations", "domain", WEB1, "web1"), ("hosts", "host", HOST2, "kvm2")])
def test_a_uuid_may_be_given_in_upper_case(filled: Ledger, term: str, option: str, uuid: str, name: str) -> None:
    options: dict[str, t.Any] = dataclasses.asdict(Conditions())
    assert names(read_term(filled, term, read_conditions({**options, option: uuid.upper()}))) == [name]


def test_a_query_that_returns_one_value_gives_a_list(filled: Ledger) -> None:
    assert read_term(filled, "migrations", Conditions(query="length(@)")) == [2]


def test_definitions_are_returned_only_with_include_definitions(filled: Ledger) -> None:
    assert "<domain/>" not in str(read_term(filled, "domains", Conditions()))
    assert read_term(filled, "domains", Conditions(query="[].protected[]")) == [{"autostart": True}]
    assert read_term(filled, "domains", Conditions(include_definitions=True, query="[].protected.definition")) == ["<domain/>"]


@pytest.mark.parametrize(
    ("terms", "conditions", "named"),
    [
        ([], {}, "No query is given"),
        (["guests"], {}, "no 'guests'"),
        (["migrations", 7], {}, "no 7"),
        (["hosts"], {"status": ["running"]}, "'status' cannot be used with hosts"),
        (["migrations", "domains"], {"since": "2024-01-01"}, "'since' cannot be used with domains"),
        (["migrations"], {"status": ["finished"]}, "'finished'"),
        (["migrations"], {"until": "soon"}, "'until'"),
        (["migrations"], {"query": "[?"}, "JMESPath"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_read(terms: list[t.Any], conditions: dict[str, t.Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named.replace("[", "\\[")):
        check_conditions(terms, Conditions(**conditions))
