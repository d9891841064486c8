# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices of maintenance runs."""

from __future__ import annotations

import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.run_notices import events_of_run, is_in_run, make_run_events
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import RUN_ID, at, done, night

LEDGER_ID = str(uuid.UUID(int=7))


def test_each_change_has_its_events_once() -> None:
    before = night("kvm1", "kvm2")
    begun = transitions.begin_host(before, "kvm1", at(1))
    drained = transitions.begin_step(begun, "kvm1", m.DRAIN, at(2))
    failed = transitions.fail_host(drained, "kvm1", "no room", at(3))
    kinds = [[one.kind for one in events_of_run(*pair)] for pair in ((None, before), (before, begun), (begun, drained), (drained, failed))]
    assert kinds == [["maintenance.started"], ["maintenance.host_started"], ["maintenance.step"], ["maintenance.host_failed", "maintenance.stopping"]]


def test_an_event_has_the_form_of_the_schema_and_its_own_id() -> None:
    run = done(night("kvm1"), "kvm1")
    events = make_run_events(None, run, LEDGER_ID)
    for event in events:
        check_document("maintenance-notice.json", event)
    assert len({str(event["id"]) for event in events}) == len(events) == 10
    assert {event["subject"] for event in events} == {RUN_ID}
    assert make_run_events(None, run, LEDGER_ID) == events


def test_an_event_is_true_if_the_document_has_it() -> None:
    before, after = night("kvm1"), done(night("kvm1"), "kvm1", seconds=5)
    for one in events_of_run(before, after):
        data = {"host": one.data.host, "step": one.data.step}
        assert is_in_run(data, one.at, one.kind, after)
        assert not is_in_run(data, one.at, one.kind, before)
