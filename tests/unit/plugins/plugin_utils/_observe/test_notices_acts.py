# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices of what others have done to a domain."""

from __future__ import annotations

import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import MOVED, STARTED, STOPPED, ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import make_domain_event, make_event
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.conftest import Site, new_move

DOMAIN, LEDGER_ID = "55555555-0000-4000-8000-000000000005", str(uuid.UUID(int=7))
KVM1, KVM2 = HostRef("kvm1", "id-1", None), HostRef("kvm2", "id-2", None)
ACT = ForeignAct(MOVED, "2026-11-21T03:00:00.000Z", "me", KVM2, KVM1, "running", "running", "migrated", 3)


def domain() -> DomainEntry:
    return domain_entry({"uuid": DOMAIN, "name": "web1", "possible_hosts": [encode(KVM1)]})


@pytest.mark.parametrize("act", [MOVED, STOPPED, STARTED])
def test_an_event_has_the_keys_of_all_events_and_names_no_record(act: str) -> None:
    event = make_domain_event(domain(), ForeignAct(act, ACT.at, "me", KVM2, None, None, "running", "", 3), LEDGER_ID)
    record = new_move()
    other = make_event(record, "move.started", record.history[0], LEDGER_ID)
    assert event.keys() == other.keys()
    data, others = event["data"], other["data"]
    assert isinstance(data, dict)
    assert isinstance(others, dict)
    assert data.keys() == others.keys()
    assert event["type"] == f"io.github.kvmfleet.migration.domain.{act}"
    assert (event["subject"], event["time"], data["record"], data["by"]) == (DOMAIN, ACT.at, None, "me")


def test_the_event_of_an_act_has_the_form_of_the_schema() -> None:
    check_document("notice.json", make_domain_event(domain(), ACT, LEDGER_ID))


def test_a_move_names_both_hosts() -> None:
    event = make_domain_event(domain(), ACT, LEDGER_ID)
    data = event["data"]
    assert isinstance(data, dict)
    assert (data["source"], data["destination"]) == ({"host": "kvm1", "host_id": "id-1"}, {"host": "kvm2", "host_id": "id-2"})
    assert data["detail"] == "It was moved from kvm1 to kvm2 without this collection."


def test_an_act_is_sent_when_it_is_written(any_site: Site, receiver: Receiver) -> None:
    ledger, notices = any_site.begin()
    ledger.put_domain(domain(), None)
    ledger.put_domain(domain(), 1, ACT)
    assert notices.finish() == []
    assert receiver.kinds() == ["domain.moved"]
    assert any_site.spooled() == []


def test_an_act_that_another_control_node_has_written_is_not_sent(site: Site, receiver: Receiver) -> None:
    ledger, notices = site.begin()
    ledger.put_domain(domain(), None)
    with pytest.raises(Conflict):
        ledger.put_domain(domain(), 7, ACT)
    assert notices.finish() == []
    assert receiver.kinds() == []
    assert site.spooled() == []


@pytest.mark.parametrize("is_written", [True, False])
def test_a_task_that_was_killed_leaves_a_notice_that_the_next_one_checks(site: Site, receiver: Receiver, is_written: bool) -> None:
    plain = site.ledger()
    plain.put_domain(domain(), None)
    _ledger, notices = site.begin()
    notices._spool_event(make_domain_event(domain(), ACT, plain.ledger_id), sure=False)
    if is_written:
        plain.put_domain(domain(), 1, ACT)
    assert len(site.spooled()) == 1
    notices.finish()
    _ledger, later = site.begin()
    site.await_sent()
    later.finish()
    assert receiver.kinds() == (["domain.moved"] if is_written else [])
