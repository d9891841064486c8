# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last fleet check of the control node in a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import CheckedFleet, keep_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, Scope, build_document, gather_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.formats import as_markdown
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights

FINDING = "1 of 2 hosts cannot be lost."


@pytest.fixture
def checked(empty: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger whose fleet was checked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hosts, sets = {"kvm1": "cannot", "kvm2": "can"}, {"can": 1, "unknown": 0, "cannot": 1}
    lines = ("Not every host can be lost. 1 finding for a person.", f"  {nights.MARKUP}")
    keep_check(CheckedFleet(1, empty.ledger_id, "2026-11-21T00:59:00.000Z", False, 1, sets, hosts, {"capacity": 1}, (FINDING,), lines))
    return empty


def document_of(ledger: Ledger, scope: Scope | None = None) -> Report:
    wanted = scope or Scope()
    return build_document(gather_records(ledger, wanted), wanted, nights.MADE_AT)


def test_the_last_check_is_in_every_format_that_shows_hosts(checked: Ledger) -> None:
    report = document_of(checked)
    told = json.loads(json.dumps(report.as_json()))
    assert told["fleet_check"]["attention"] == [FINDING]
    assert told["attention"] == [f"Fleet check of 2026-11-21 00:59 UTC: {FINDING.rstrip('.')}. To check again: kvmfleet.migration.fleet_check"]
    assert decode(Report, told) == report
    assert "## Fleet check\n\n2026-11-21 00:59 UTC: 1 can, 1 cannot \\(1 capacity\\)\n\n- 1 of 2 hosts cannot be lost." in as_markdown(report)
    page = as_html(report)
    assert 'id="fleet-check"' in page
    assert nights.MARKUP not in page


@pytest.mark.parametrize("scope", [Scope(host="kvm1"), Scope(domain="web1"), Scope(ids=[])])
def test_a_report_about_a_part_has_no_check(checked: Ledger, scope: Scope) -> None:
    assert "fleet_check" not in document_of(checked, scope).as_json()


def test_a_fleet_that_was_never_checked_has_no_section(empty: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    report = document_of(empty)
    assert "fleet_check" not in report.as_json()
    assert "Fleet check" not in as_markdown(report)
