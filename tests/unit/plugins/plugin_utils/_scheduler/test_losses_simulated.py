# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts on the losses of up to a thousand fleets against an exhaustive search."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.loss_rules import make_loss_rules
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.losses import CAN, CANNOT, LossSearch
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets

RULES = make_loss_rules()


def search_of(whole: fleets.Whole) -> LossSearch:
    guests = {name: exhaustive.requests_from(name, facts) for name, facts in whole.facts.items()}
    return LossSearch(exhaustive.whole_fleet_of(whole), guests, RULES)


@pytest.mark.parametrize("has_pages", [False, True])
@pytest.mark.parametrize("fleet_count", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_every_verdict_is_that_of_an_exhaustive_search(fleet_count: int, has_pages: bool, capsys: pytest.CaptureFixture[str]) -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(fleet_count):
        whole = fleets.with_huge_pages(fleets.whole(seed), seed) if has_pages else fleets.whole(seed)
        search = search_of(whole)
        for loss in [*search.judge_all(1), *search.judge_all(2)]:
            found = exhaustive.placement_after_loss(whole, loss.hosts, RULES.proved)
            assert loss.verdict == (CANNOT if found is None else CAN), (seed, loss)
            counts[loss.verdict] += 1
    with capsys.disabled():
        what = "fleets with huge pages" if has_pages else "fleets"
        print(f"\nlosses of one and of two hosts in {fleet_count} {what}: {counts[CAN]} can be lost, {counts[CANNOT]} cannot")
    # The fleets have both in numbers.
    assert min(counts.values()) > fleet_count


def test_the_guests_without_a_place_are_named_with_the_hosts_that_refuse_them() -> None:
    explained = 0
    for seed in range(60):
        whole = fleets.whole(seed)
        search = search_of(whole)
        for loss in search.judge_all(1):
            left = search.explain(loss) if loss.verdict == CANNOT else []
            others = set(whole.facts) - set(loss.hosts)
            assert bool(left) == (loss.verdict == CANNOT)
            for guest in left:
                assert {host for refusal in guest.refused for host in refusal.hosts} == others
                assert all(refusal.reason and (refusal.filters or guest.request.group) for refusal in guest.refused)
                explained += 1
    assert explained > 20
