# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which the moves of a plan start."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.order import busy_rate
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record

# One stream of four carries 16 MiB/s.
LINK = {"link_mib": 64}


def order_of(*domains: dict[str, t.Any], records: t.Sequence[t.Any] = ()) -> list[str]:
    """Return the names in the order in which they start, and check the numbers of the plan."""
    inputs = DrainInputs({"kvm1": facts("kvm1", *domains, gib=64), "kvm2": facts("kvm2", gib=64)}, records=records)
    moves = make_plan(inputs, ["kvm1"], ["kvm2"], DrainOptions.from_values(options=LINK)).moves
    assert [move.order for move in moves] == list(range(1, len(moves) + 1))
    return [move.name for move in moves]


def test_busy_domains_start_first_and_then_long_moves_before_short_ones() -> None:
    domains = [
        domain("small", 256),
        domain("large", 2048),
        domain("busy", 128, dirty_rate_mib=12),
        domain("busiest", 128, dirty_rate_mib=28),
        domain("calm", 512, dirty_rate_mib=1),
    ]
    assert order_of(*domains) == ["busiest", "busy", "large", "calm", "small"]
    assert order_of(*reversed(domains)) == ["busiest", "busy", "large", "calm", "small"]


def test_a_priority_comes_before_everything_else() -> None:
    first = domain("first", 128, policy={"priority": 10})
    assert order_of(domain("busy", 1024, dirty_rate_mib=28), first, domain("large", 4096)) == ["first", "busy", "large"]


def test_domains_whose_dirty_rate_was_not_measured_start_by_length_and_name() -> None:
    assert order_of(domain("b", 256), domain("a", 256), domain("c", 512)) == ["c", "a", "b"]


def test_a_move_under_way_comes_first() -> None:
    begun = domain("begun", 128, state="running", reason="booted")
    moving = record("begun", "kvm1", "kvm2", status="queued")
    assert order_of(domain("busy", 1024, dirty_rate_mib=28), begun, records=[moving])[0] == "begun"


def test_an_affinity_group_stays_together() -> None:
    group = {"group": {"name": "shop", "policy": "affinity"}}
    domains = [domain("shop1", 128, policy=group), domain("large", 2048), domain("shop2", 128, policy=group, dirty_rate_mib=28), domain("small", 64)]
    assert order_of(*domains) == ["shop1", "shop2", "large", "small"]


@pytest.mark.parametrize(("measured", "busy"), [(None, 0.0), (0.0, 0.0), (1.5, 0.0), (1.6, 1.6), (28.0, 28.0)])
def test_a_domain_is_busy_from_a_quarter_of_its_stream(measured: float | None, busy: float) -> None:
    assert busy_rate(measured, 16.0) == busy
