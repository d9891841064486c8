# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices of the brake: one for each incident, and none that is not in the ledger."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import ISOLATED, SILENT_TOGETHER, BrakeDocument, BrakeIncident
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake_notices import make_brake_events
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.conftest import Site

HOST_ID = "11111111-0000-4000-8000-000000000001"
AT = "2026-11-26T03:00:00.000Z"
SILENT = BrakeIncident(SILENT_TOGETHER, "evacuate", ("kvm1", "kvm2"), AT, AT, "ann@control1 pid 7", "Two hosts are silent at once.")
ALONE = BrakeIncident(ISOLATED, "evacuate", ("kvm3",), AT, AT, "ann@control1 pid 7", "Its lease is renewed.", HOST_ID)


def brake(ledger_id: str, *incidents: BrakeIncident) -> BrakeDocument:
    return BrakeDocument(ledger_id, (), incidents)


def test_each_incident_is_sent_once_and_fits_its_schema(any_site: Site, receiver: Receiver) -> None:
    ledger, notices = any_site.begin()
    first = ledger.put_brake(brake(ledger.ledger_id, SILENT), None)
    ledger.put_brake(brake(ledger.ledger_id, SILENT, ALONE), first)
    assert notices.finish() == []
    assert receiver.kinds() == ["brake.held", "host.isolated"]
    held, isolated = receiver.events()
    check_document("brake-notice.json", held)
    check_document("host-notice.json", isolated)
    assert (held["subject"], held["data"]["hosts"]) == (ledger.ledger_id, ["kvm1", "kvm2"])
    assert (isolated["subject"], isolated["data"]["state"]) == (HOST_ID, "isolated")
    assert any_site.spooled() == []


def test_an_incident_that_another_control_node_has_written_is_not_sent(site: Site, receiver: Receiver) -> None:
    ledger, notices = site.begin()
    ledger.put_brake(brake(ledger.ledger_id), None)
    with pytest.raises(Conflict):
        ledger.put_brake(brake(ledger.ledger_id, SILENT), None)
    assert notices.finish() == []
    assert (receiver.kinds(), site.spooled()) == ([], [])


@pytest.mark.parametrize("is_written", [True, False])
def test_a_task_that_was_killed_leaves_a_notice_that_the_next_one_checks(site: Site, receiver: Receiver, is_written: bool) -> None:
    plain = site.ledger()
    first = plain.put_brake(brake(plain.ledger_id), None)
    _ledger, notices = site.begin()
    for event in make_brake_events(None, brake(plain.ledger_id, SILENT), plain.ledger_id):
        notices._spool_event(event, sure=False)
    if is_written:
        plain.put_brake(brake(plain.ledger_id, SILENT), first)
    assert len(site.spooled()) == 1
    notices.finish()
    _ledger, later = site.begin()
    site.await_sent()
    later.finish()
    assert receiver.kinds() == (["brake.held"] if is_written else [])
