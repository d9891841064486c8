# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of a move and the terms of its forced end: from the order and its record."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import AdaptiveSchedule, SteppedSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order_terms import limits_of, terms_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import order_of, record_of


def test_limits_are_taken_from_the_record() -> None:
    record = record_of(timeout_seconds=600, downtime_ms=400, downtime_steps=10, stall_seconds=7, downtime_strategy="stepped")
    record = dataclasses.replace(record, request={"memory_mib": 8 * 1024})
    limits = limits_of(order_of(record))
    assert (limits.timeout_seconds, limits.stall_seconds) == (600, 7)
    assert isinstance(limits.downtime, SteppedSchedule)
    assert [limits.downtime.ramp[0], limits.downtime.ramp[-1]] == [(0, 40), (300, 400)]


def test_the_adaptive_schedule_is_taken_from_the_record() -> None:
    record = record_of(timeout_seconds=600, downtime_ms=400, downtime_steps=10)
    record = dataclasses.replace(record, connection=Connection(link_mib=100))
    assert limits_of(order_of(record)).downtime == AdaptiveSchedule(40, 400, full_from_seconds=300, link_rate_bytes=100 * MIB)
    order = order_of(record_of(timeout_seconds=0))
    assert limits_of(dataclasses.replace(order, flags=(*order.flags, "COMPRESSED"))).downtime == AdaptiveSchedule(50, 500, is_compressed=True)


def test_the_ramp_without_a_timeout_ends_at_half_of_the_computed_timeout() -> None:
    record = record_of(downtime_strategy="stepped")
    record = dataclasses.replace(record, request={"memory_mib": 16 * 1024})
    limits = limits_of(order_of(record))
    assert limits.timeout_seconds == 12_800
    assert isinstance(limits.downtime, SteppedSchedule)
    assert limits.downtime.ramp[-1] == (6_400, 500)


def test_the_limit_without_a_timeout_follows_the_size_of_the_guest() -> None:
    assert limits_of(order_of(record_of())).timeout_seconds == 1600
    assert limits_of(order_of(record_of(timeout_seconds=0))).timeout_seconds == 0


@pytest.mark.parametrize(("paused", "expected"), [(False, True), (True, False)])
def test_the_terms_of_forcing_are_taken_from_the_record(paused: bool, expected: bool) -> None:
    record = record_of(post_copy=True, force_suspend_seconds=7, force_pause_max_seconds=9, downtime_ms=300)
    connection, before = Connection(bandwidth_mib=5, link_mib=100), Before(state=domain_states.PAUSED if paused else domain_states.RUNNING)
    record = dataclasses.replace(record, connection=connection, before=before)
    terms = terms_of(order_of(record))
    assert (terms.post_copy, terms.capped, terms.link_rate_bytes) == (expected, True, 100 * MIB)
    assert (terms.suspend_seconds, terms.pause_max_seconds, terms.downtime_ms) == (7, 9, 300)


@pytest.mark.parametrize("post_copy", [False, True])
def test_a_guest_with_auto_converge_is_never_switched_to_post_copy(post_copy: bool) -> None:
    assert not terms_of(order_of(record_of(auto_converge=True, post_copy=post_copy))).post_copy
