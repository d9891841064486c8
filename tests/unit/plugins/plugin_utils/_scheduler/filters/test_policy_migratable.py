# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judge_with, request


def test_a_domain_without_blockers_may_move() -> None:
    assert judge_with("migratable", request(), host()).reason is None


def test_each_blocker_is_part_of_the_reason() -> None:
    reason = judge_with("migratable", request(blockers=["It has snapshots.", "Its memory is protected by launch security (sev)"]), host()).reason
    assert reason == "web1 cannot be moved live: It has snapshots. Its memory is protected by launch security (sev)."
