# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maintenance runs in a report."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, DrilledGuest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, Scope, build_document, gather_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.formats import as_markdown
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights


@pytest.fixture
def maintained(empty: Ledger) -> Ledger:
    """A ledger with the run of the night."""
    empty.put_maintenance_run(nights.maintenance_run(), None)
    return empty


def document_of(ledger: Ledger, scope: Scope | None = None) -> Report:
    wanted = scope or Scope()
    return build_document(gather_records(ledger, wanted), wanted, nights.MADE_AT)


def test_a_run_is_in_every_format_that_shows_hosts(maintained: Ledger) -> None:
    report = document_of(maintained)
    (run,) = report.maintenance_runs or ()
    assert [(host.name, host.status, host.error) for host in run.hosts] == [
        ("kvm1", "done", None),
        ("kvm2", "failed", nights.MARKUP),
        ("kvm3", "waiting", "kvm2 failed, and max_failures is 0"),
    ]
    assert [(step.step, step.seconds, step.is_fenced) for step in run.hosts[0].steps][-3:] == [
        ("reboot", 60, True),
        ("verify", 60, False),
        ("recover", 60, False),
    ]
    assert run.hosts[1].steps[-1].seconds is None
    told = json.loads(json.dumps(report.as_json()))
    assert decode(Report, told) == report
    text = as_markdown(report)
    assert "## Maintenance runs" in text
    assert "reboot \\(fenced\\) 60 s" in text
    assert "pause\\_requested by ann@control pid 4" in text
    page = as_html(report)
    assert 'id="runs"' in page
    assert nights.MARKUP not in page


def test_a_drill_shows_its_verdict_and_the_stages_of_each_guest(empty: Ledger) -> None:
    guests = (
        DrilledGuest("u-1", "web", "r-1", "kvm1", 21.04, {"detection": 12.0, "start": 1.5}, None),
        DrilledGuest("u-2", nights.MARKUP, None, None, None, {}, "it was not started elsewhere"),
    )
    drill = Drill(90, 300, "run", guests, (), nights.moment(0), (), False, 21.04, 21.04, (f"{nights.MARKUP}: it was not started elsewhere",))
    run = nights.maintenance_run()
    empty.put_maintenance_run(dataclasses.replace(run, hosts=run.hosts[:1], drill=drill), None)
    report = document_of(empty)
    assert decode(Report, json.loads(json.dumps(report.as_json()))) == report
    text = as_markdown(report)
    assert "| drill failed |  | median 21.0 s, longest 21.0 s, limit 90 s |" in text
    assert "| web | to kvm1 | 21.0 s | detection 12.0 s, start 1.5 s |" in text
    assert nights.MARKUP not in as_html(report)


@pytest.mark.parametrize(
    ("scope", "is_shown"),
    [
        (Scope(host="kvm3"), True),
        (Scope(host="kvm9"), False),
        (Scope(domain="web1"), False),
        (Scope(ids=[]), False),
        (Scope(since="2026-11-21T01:00:00Z"), True),
        (Scope(since="2026-11-22"), False),
        (Scope(until="2026-11-21T01:00:00Z"), False),
    ],
)
def test_a_report_has_the_runs_of_its_scope(maintained: Ledger, scope: Scope, is_shown: bool) -> None:
    assert ("maintenance_runs" in document_of(maintained, scope).as_json()) is is_shown


def test_a_ledger_without_runs_has_no_section(empty: Ledger) -> None:
    report = document_of(empty)
    assert "maintenance_runs" not in report.as_json()
    assert "Maintenance runs" not in as_markdown(report)
