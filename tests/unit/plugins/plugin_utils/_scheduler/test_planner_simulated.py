# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of up to a thousand tight fleets against an exhaustive search."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import Placement, plan_placements
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets

WANTED_PERCENT = 98.0


def planned(drain: fleets.Drain) -> list[Placement]:
    return plan_placements(exhaustive.requests_of(drain), exhaustive.fleet_of(drain))


def assert_no_filter_is_broken(drain: fleets.Drain, placements: list[Placement]) -> None:
    placed = [one for one in placements if one.destination]
    assert exhaustive.is_allowed(exhaustive.fleet_of(drain), [one.request for one in placed], {one.request.uuid: str(one.destination) for one in placed})


@pytest.mark.parametrize("fleet_count", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("label", "mixed"), [("by memory alone", False), ("with groups, labels and vCPUs", True)])
def test_the_planner_places_all_domains_where_an_exhaustive_search_can(label: str, mixed: bool, fleet_count: int, capsys: pytest.CaptureFixture[str]) -> None:
    possible = found = seed = 0
    while possible < fleet_count:
        drain = fleets.loose(seed) if mixed and seed % 5 == 0 else fleets.tight(seed, mixed)
        seed += 1
        placements = planned(drain)
        assert_no_filter_is_broken(drain, placements)
        if all(one.destination for one in placements):
            possible, found = possible + 1, found + 1
        elif exhaustive.placement_of_all(exhaustive.fleet_of(drain), exhaustive.requests_of(drain), drain.candidates) is not None:
            possible += 1
    percent = 100 * found / possible
    with capsys.disabled():
        print(f"\ntight fleets {label}: {found} of {possible} that can be placed in full were ({percent:.1f} %); {seed - possible} more cannot be")
    assert percent >= WANTED_PERCENT


def test_a_thousand_hosts_are_planned_like_four() -> None:
    for hosts, domains, leaving in ((4, 8, 2), (1000, 20000, 20)):
        drain = fleets.large(hosts, domains, leaving)
        placements = planned(drain)
        assert all(one.destination for one in placements)
        assert {verdict.host for verdict in placements[0].verdicts} == {*drain.facts}
        assert_no_filter_is_broken(drain, placements)
