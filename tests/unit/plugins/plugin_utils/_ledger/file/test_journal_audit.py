# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of audit lines: what is lost shows, a crash's torn end is repaired."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


@pytest.fixture
def audit(ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord) -> Path:
    """The file after four transitions of one move."""
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.QUEUED, s.CANCELLED, by="alice@control pid 7")
    return Path(path, "audit.jsonl")


def test_a_lost_audit_file_is_reported_also_after_the_next_transition(ledger: FileLedger, audit: Path, new_move: NewMove) -> None:
    audit.unlink()
    assert len(ledger.verify_audit()) == 1
    ledger.open_record(new_move())
    assert ["Before line 1" in problem for problem in ledger.verify_audit()] == [True]


def test_audit_lines_lost_at_the_end_are_reported_after_the_next_transition(ledger: FileLedger, audit: Path, new_move: NewMove) -> None:
    audit.write_text("".join(audit.read_text().splitlines(keepends=True)[:2]))
    ledger.open_record(new_move())
    assert ledger.verify_audit() != []


@pytest.mark.parametrize("cut", [1, 2, 50, 300])
def test_a_torn_last_audit_line_is_repaired_by_the_next_writer_and_reported(ledger: FileLedger, audit: Path, new_move: NewMove, cut: int) -> None:
    whole = audit.read_text()
    audit.write_text(whole[:-cut])
    assert ledger.verify_audit() != [] or cut == 1  # a line that lacks its end alone says all it said
    ledger.open_record(new_move())
    assert audit.read_text().startswith(whole)
    assert ledger.verify_audit() == []
    assert [("was torn" in problem, str(audit) in problem) for problem in ledger.problems] == [(True, True)]


def test_audit_lines_of_another_ledger_are_reported(ledger: FileLedger, audit: Path, tmp_path: Path) -> None:
    other = FileLedger(str(tmp_path / "other"))
    (tmp_path / "other" / "audit.jsonl").write_text(audit.read_text())
    assert ["Before line 1" in problem for problem in other.verify_audit()] == [True]
