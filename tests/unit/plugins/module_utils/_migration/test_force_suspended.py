# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The predicted downtime of a guest that is suspended after the other rungs had no effect."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import SWITCHOVER_MS
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import (
    RUNG_DOWNTIME,
    ForcingPoll,
    ForcingState,
    ForcingTerms,
    Suspend,
    decide_forcing,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats

MIB = 1024**2


@pytest.mark.parametrize(
    ("link_mib", "waited", "expected_ms"),
    [(0, 4.0, 8000), (0, 0.5, 2000), (32, 4.0, 2000)],
    ids=["mean rate since the last rung", "best rate without a mean", "configured rate of the link"],
)
def test_the_downtime_of_a_suspend_is_predicted_from_the_mean_rate(link_mib: int, waited: float, expected_ms: int) -> None:
    """8 MiB/s went over in the mean, 32 MiB/s in the best moment; 16 MiB are left, and 48 MiB were written since the last look."""
    terms = ForcingTerms(post_copy=False, capped=False, suspend_seconds=waited, pause_max_seconds=30, downtime_ms=500, link_rate_bytes=link_mib * MIB)
    forcing = ForcingState(began_at=10.0, rung=RUNG_DOWNTIME, rung_at=10.0, rung_processed_bytes=100 * MIB, rate_bytes=32 * MIB)
    processed = 100 * MIB + int(waited * 8 * MIB)
    stats = JobStats(memory_total_bytes=256 * MIB, memory_processed_bytes=processed, memory_remaining_bytes=16 * MIB, dirty_rate_bytes=24 * MIB)
    actions, after = decide_forcing(ForcingPoll(stats, 10.0 + waited, False, 2.0, 64 * MIB, 500), terms, forcing)
    assert actions == [Suspend()]
    assert after.predicted_ms == SWITCHOVER_MS + expected_ms
