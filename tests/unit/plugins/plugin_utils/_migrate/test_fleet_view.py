# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as one task sees it."""

from __future__ import annotations

import pathlib
import time
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED, Survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import LedgerHosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control


def test_facts_whose_domains_cannot_be_read_are_not_used(control: Control) -> None:
    control.say("kvm3", domains="none")
    view = FleetView(control.ledger, control.settings, "kvm1", Survey(HostFacts(), {}, ()), {}, RecentMoves(control.ledger))
    assert view.build_fleet(NOT_SURVEYED, "", {}).states.keys() == {"kvm1"}


def test_only_a_choice_that_is_judged_again_uses_entries_that_were_just_read(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    now = [100.0]

    def read_hosts() -> LedgerHosts:
        reads.append(now[0])
        return LedgerHosts()

    monkeypatch.setattr(control.ledger, "read_hosts", read_hosts)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view = FleetView(control.ledger, control.settings, "kvm1", Survey(HostFacts(), {}, ()), {}, RecentMoves(control.ledger))
    for seconds, is_binding, count in ((0, False, 1), (0.9, False, 1), (0.1, True, 2), (0.9, False, 2), (0.2, False, 3), (0, True, 4)):
        now[0] += seconds
        view.build_fleet(NOT_SURVEYED, "", {}, is_binding=is_binding)
        assert len(reads) == count


@pytest.mark.parametrize("reports_id", [True, False])
def test_a_host_whose_document_was_damaged_is_no_destination(control: Control, reports_id: bool) -> None:
    host_id = str(uuid.UUID(int=2))
    document = control.ledger.put_host(host_entry({"name": "kvm2", "host_id": host_id, "host_uuid": str(uuid.UUID(int=9)), "state": "fenced"}), None)
    pathlib.Path(control.ledger.name, "hosts", f"{document.host.host_id}.json").write_text("torn")
    control.fleet.guest()
    if reports_id:
        control.say("kvm2", host_id=host_id)
    control.say("kvm3", host_id=str(uuid.UUID(int=3)))
    result = control.check(name="web1")
    (refused,) = [verdict for verdict in result["verdicts"] if not verdict["passed"]]
    assert (result["selected"], refused["host"], [failure["filter"] for failure in refused["failures"]]) == ("kvm3", "kvm2", ["enabled"])
    assert refused["failures"][0]["reason"].startswith("Its state in the ledger is 'unknown' (its document was damaged and set aside")
