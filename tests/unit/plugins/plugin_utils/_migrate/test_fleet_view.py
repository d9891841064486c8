# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as one task sees it."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED, Survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control


def test_facts_whose_domains_cannot_be_read_are_not_used(control: Control) -> None:
    control.say("kvm3", domains="none")
    view = FleetView(control.ledger, control.settings, "kvm1", Survey(HostFacts(), {}, ()), {}, RecentMoves(control.ledger))
    assert view.build_fleet(NOT_SURVEYED, "", {}).states.keys() == {"kvm1"}


def test_only_a_choice_that_is_judged_again_uses_entries_that_were_just_read(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    now = [100.0]

    def list_hosts() -> list[Document]:
        reads.append(now[0])
        return []

    monkeypatch.setattr(control.ledger, "list_hosts", list_hosts)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view = FleetView(control.ledger, control.settings, "kvm1", Survey(HostFacts(), {}, ()), {}, RecentMoves(control.ledger))
    for seconds, is_binding, count in ((0, False, 1), (0.9, False, 1), (0.1, True, 2), (0.9, False, 2), (0.2, False, 3), (0, True, 4)):
        now[0] += seconds
        view.build_fleet(NOT_SURVEYED, "", {}, is_binding=is_binding)
        assert len(reads) == count
