# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Balance runs in a report."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, Scope, build_document, gather_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.formats import as_markdown
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import ended, measured_run, move
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights


def document_of(ledger: Ledger, scope: Scope | None = None) -> Report:
    wanted = scope or Scope()
    return build_document(gather_records(ledger, wanted), wanted, nights.MADE_AT)


def test_a_balance_is_in_every_format_that_shows_hosts(empty: Ledger) -> None:
    empty.put_balance_run(measured_run(nights.MARKUP), None)
    report = document_of(empty)
    (run,) = report.balance_runs or ()
    assert (run.score_before, run.score_measured, run.predicted_gain, run.measured_gain) == (1.5, 0.25, 1.0, 0.375)
    assert [(one.domain, one.outcome, one.measured_gain) for one in run.moves] == [("g3", "completed", 0.375), (nights.MARKUP, "completed", None)]
    assert decode(Report, json.loads(json.dumps(report.as_json()))) == report
    text = as_markdown(report)
    assert "## Balances" in text
    assert "| score 1.500, predicted 0.500, measured 0.250 | finished, begun 2026-11-24 01:00:00 | 1.000 | 0.375 |" in text
    assert "| g3 | kvm1 → kvm2 | completed | 0.500 | 0.375 |" in text
    page = as_html(report)
    assert 'id="balances"' in page
    assert nights.MARKUP not in page


def test_what_was_not_measured_is_null(empty: Ledger) -> None:
    empty.put_balance_run(ended(move("g3")), None)
    (run,) = document_of(empty).balance_runs or ()
    assert (run.measured_at, run.score_measured, run.measured_gain, run.moves[0].measured_gain) == (None, None, None, None)


@pytest.mark.parametrize(
    ("scope", "is_shown"),
    [
        (Scope(host="kvm3"), True),
        (Scope(host="kvm9"), False),
        (Scope(domain="g3"), False),
        (Scope(since="2026-11-24T01:00:00Z"), True),
        (Scope(until="2026-11-24T01:00:00Z"), False),
    ],
)
def test_a_report_has_the_balances_of_its_scope(empty: Ledger, scope: Scope, is_shown: bool) -> None:
    empty.put_balance_run(measured_run(), None)
    report = document_of(empty, scope)
    assert (report.balance_runs is not ABSENT) is is_shown
    assert ("balance_runs" in report.as_json()) is is_shown
