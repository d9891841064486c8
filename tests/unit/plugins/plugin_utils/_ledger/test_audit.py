# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit chain: a line a transition; what is changed, missing or torn shows, and a crash's torn end is repaired."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file_store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


@pytest.fixture
def audit(ledger: FileLedger, path: str, new_move: NewMove, go: Go) -> Path:
    """The file after four transitions of one move."""
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.QUEUED, s.CANCELLED, by="alice@control pid 7")
    return Path(path, "audit.jsonl")


def test_a_line_a_transition(ledger: FileLedger, audit: Path) -> None:
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["from"], line["to"]) for line in lines] == [
        (None, "accepted"),
        ("accepted", "scheduled"),
        ("scheduled", "queued"),
        ("queued", "cancelled"),
    ]
    assert {line["by"] for line in lines[1:]} == {"alice@control pid 7"}
    assert [line["prev"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert ledger.verify_audit() == []


def test_an_empty_ledger_verifies(ledger: FileLedger) -> None:
    assert ledger.verify_audit() == []


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_changed_line_shows(ledger: FileLedger, audit: Path, number: int) -> None:
    lines = audit.read_text().splitlines(keepends=True)
    lines[number] = lines[number].replace('"name":"web1"', '"name":"web2"')
    audit.write_text("".join(lines))
    assert ledger.verify_audit() == [f"Line {number + 1} was changed: its hash does not match what it says."]


@pytest.mark.parametrize(("number", "problem"), [(0, "Before line 1 "), (1, "Before line 2 "), (2, "Before line 3 "), (3, "The end is missing")])
def test_a_missing_line_shows(ledger: FileLedger, audit: Path, number: int, problem: str) -> None:
    lines = audit.read_text().splitlines(keepends=True)
    del lines[number]
    audit.write_text("".join(lines))
    problems = ledger.verify_audit()
    assert [found[: len(problem)] for found in problems] == [problem]


def test_a_lost_file_shows_also_after_the_next_transition(ledger: FileLedger, audit: Path, new_move: NewMove) -> None:
    audit.unlink()
    assert len(ledger.verify_audit()) == 1
    ledger.open_record(new_move())
    assert [problem[:13] for problem in ledger.verify_audit()] == ["Before line 1"]


def test_lines_lost_at_the_end_stay_visible_after_the_next_transition(ledger: FileLedger, audit: Path, new_move: NewMove) -> None:
    audit.write_text("".join(audit.read_text().splitlines(keepends=True)[:2]))
    ledger.open_record(new_move())
    assert ledger.verify_audit() != []


@pytest.mark.parametrize("cut", [1, 2, 50, 300])
def test_a_torn_end_is_repaired_by_the_next_writer_and_noted(ledger: FileLedger, audit: Path, new_move: NewMove, cut: int) -> None:
    whole = audit.read_text()
    audit.write_text(whole[:-cut])
    assert ledger.verify_audit() != [] or cut == 1  # a line that lacks its end alone says all it said
    ledger.open_record(new_move())
    assert audit.read_text().startswith(whole)
    assert ledger.verify_audit() == []
    assert [("was torn" in problem, str(audit) in problem) for problem in ledger.problems] == [(True, True)]


def test_a_line_is_bound_to_its_ledger(ledger: FileLedger, audit: Path, tmp_path: Path) -> None:
    other = FileLedger(str(tmp_path / "other"))
    (tmp_path / "other" / "audit.jsonl").write_text(audit.read_text())
    assert [problem[:13] for problem in other.verify_audit()] == ["Before line 1"]


@pytest.mark.parametrize("number", ["NaN", "1e999", "[" * 900 + "]" * 900])
def test_a_line_that_holds_what_no_line_holds_is_named(ledger: FileLedger, audit: Path, number: str) -> None:
    first, *rest = audit.read_text().splitlines(keepends=True)
    audit.write_text("".join([first.replace('"generation":1', f'"generation":{number}'), *rest]))
    assert any(problem.startswith("Line 1") for problem in ledger.verify_audit())
