# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import (
    SWITCHOVER_MS,
    converged_pause_ms,
    pause_ms,
    pending_bytes,
    suspended_bytes,
)

MIB = 1024**2


@pytest.mark.parametrize(
    ("remaining", "dirty_set", "expected"),
    [(10, 0, 50), (10, 64, 50), (10, 30, 30), (40, 30, 40)],
    ids=["without a working set", "below the working set", "limited to the working set", "at least the remaining memory"],
)
def test_pending_bytes_when_the_guest_stops_at_a_poll(remaining: int, dirty_set: int, expected: int) -> None:
    assert pending_bytes(remaining * MIB, 20 * MIB, 2.0, dirty_set * MIB) == expected * MIB


@pytest.mark.parametrize(("dirty_set", "expected"), [(0, 50), (64, 50), (30, 40)])
def test_pending_bytes_when_the_guest_stops_between_two_polls(dirty_set: int, expected: int) -> None:
    """The iteration is ended first, and pages that were written meanwhile are sent again."""
    assert suspended_bytes(10 * MIB, 20 * MIB, 2.0, dirty_set * MIB) == expected * MIB


def test_the_downtime_is_pending_bytes_divided_by_the_rate() -> None:
    assert pause_ms(64 * MIB, 8 * MIB) == SWITCHOVER_MS + 8000
    assert pause_ms(64 * MIB, 0) == SWITCHOVER_MS


def test_the_predicted_downtime_of_a_converging_guest_is_at_most_the_allowed_one() -> None:
    assert converged_pause_ms(64 * MIB, 8 * MIB, 80 * MIB, 100) <= SWITCHOVER_MS + 100
    assert converged_pause_ms(64 * MIB, 80 * MIB, 8 * MIB, 100) == SWITCHOVER_MS + 8000
