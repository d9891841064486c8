# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.estimate import (
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
    ids=["no set was seen", "less than the set", "never more than the set", "never less than what is left"],
)
def test_what_is_sent_when_the_guest_stops_at_a_look(remaining: int, dirty_set: int, expected: int) -> None:
    assert pending_bytes(remaining * MIB, 20 * MIB, 2.0, dirty_set * MIB) == expected * MIB


@pytest.mark.parametrize(("dirty_set", "expected"), [(0, 50), (64, 50), (30, 40)])
def test_what_is_sent_when_the_guest_stops_between_two_looks(dirty_set: int, expected: int) -> None:
    """The iteration is ended first, and pages that were written meanwhile are sent again."""
    assert suspended_bytes(10 * MIB, 20 * MIB, 2.0, dirty_set * MIB) == expected * MIB


def test_a_pause_is_what_is_sent_over_the_rate() -> None:
    assert pause_ms(64 * MIB, 8 * MIB) == SWITCHOVER_MS + 8000
    assert pause_ms(64 * MIB, 0) == SWITCHOVER_MS


def test_a_guest_that_converges_pauses_no_longer_than_allowed() -> None:
    assert converged_pause_ms(64 * MIB, 8 * MIB, 80 * MIB, 100) <= SWITCHOVER_MS + 100
    assert converged_pause_ms(64 * MIB, 80 * MIB, 8 * MIB, 100) == SWITCHOVER_MS + 8000
