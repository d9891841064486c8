# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit chain: a line a transition; what is changed or missing shows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


@pytest.fixture
def audit(ledger: Ledger, store: Store, new_move: NewMove, advance_record: AdvanceRecord) -> Store:
    """The store after four transitions of one move."""
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.QUEUED, s.CANCELLED, by="alice@control pid 7")
    return store


def test_each_transition_has_one_audit_line(ledger: Ledger, audit: Store) -> None:
    lines = [json.loads(line) for line in audit.lines()]
    assert [(line["from"], line["to"]) for line in lines] == [
        (None, "accepted"),
        ("accepted", "scheduled"),
        ("scheduled", "queued"),
        ("queued", "cancelled"),
    ]
    assert {line["by"] for line in lines[1:]} == {"alice@control pid 7"}
    assert [line["prev"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert ledger.verify_audit() == []


def test_an_empty_ledger_verifies(ledger: Ledger) -> None:
    assert ledger.verify_audit() == []


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_changed_audit_line_is_reported(ledger: Ledger, audit: Store, number: int) -> None:
    lines = audit.lines()
    lines[number] = lines[number].replace('"name":"web1"', '"name":"web2"')
    audit.set_lines(lines)
    (problem,) = ledger.verify_audit()
    assert problem.endswith(f"Line {number + 1} was changed: its hash does not match what it says.")


@pytest.mark.parametrize(("number", "problem"), [(0, "Before line 1 "), (1, "Before line 2 "), (2, "Before line 3 "), (3, "The end is missing")])
def test_a_missing_audit_line_is_reported(ledger: Ledger, audit: Store, number: int, problem: str) -> None:
    lines = audit.lines()
    del lines[number]
    audit.set_lines(lines)
    (found,) = ledger.verify_audit()
    assert problem in found


@pytest.mark.parametrize("number", ["NaN", "1e999", "[" * 900 + "]" * 900])
def test_an_audit_line_with_an_invalid_value_is_reported(ledger: Ledger, audit: Store, number: str) -> None:
    first, *rest = audit.lines()
    audit.set_lines([first.replace('"generation":1', f'"generation":{number}'), *rest])
    assert any("Line 1" in problem for problem in ledger.verify_audit())


def test_the_audit_chain_is_continued_by_the_next_process(audit: Store, new_move: NewMove) -> None:
    audit.open().open_record(new_move())
    assert len(audit.lines()) == 5
    assert audit.open().verify_audit() == []


def test_an_audit_chain_without_its_first_lines_is_reported_later(audit: Store, new_move: NewMove) -> None:
    audit.set_lines(audit.lines()[2:])
    audit.open().open_record(new_move())
    assert audit.open().verify_audit() != []
