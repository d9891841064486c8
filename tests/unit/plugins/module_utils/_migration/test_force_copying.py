# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import ForcingPoll, ForcingState, ForcingTerms, SetDowntime, decide_forcing
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats

MIB = 1024**2
CONNECTING = JobStats(elapsed_ms=1000)
COPYING = JobStats(elapsed_ms=1000, disk_total_bytes=900 * MIB, disk_remaining_bytes=500 * MIB)
MOVING = JobStats(
    elapsed_ms=1000, disk_total_bytes=900 * MIB, memory_total_bytes=64 * MIB, memory_remaining_bytes=8 * MIB, bandwidth_bytes=100 * MIB, iteration=2
)


def forcing_terms(post_copy: bool) -> ForcingTerms:
    return ForcingTerms(post_copy=post_copy, capped=False, suspend_seconds=10, pause_max_seconds=30, downtime_ms=500)


def forcing_poll(stats: JobStats, elapsed: float) -> ForcingPoll:
    return ForcingPoll(stats, elapsed, paused=False, since_sync_seconds=0.1, dirty_set_bytes=8 * MIB, allowed_ms=50)


@pytest.mark.parametrize("stats", [CONNECTING, COPYING])
@pytest.mark.parametrize("post_copy", [False, True])
def test_nothing_is_forced_before_memory_is_sent(post_copy: bool, stats: JobStats) -> None:
    forcing = ForcingState(began_at=1.0)
    for elapsed in (1.0, 12.0, 600.0):
        actions, forcing = decide_forcing(forcing_poll(stats, elapsed), forcing_terms(post_copy), forcing)
        assert actions == []
        assert forcing.rung is None


def test_force_suspend_seconds_count_from_the_end_of_the_disk_copy() -> None:
    dummy, forcing = decide_forcing(forcing_poll(COPYING, 600.0), forcing_terms(False), ForcingState(began_at=1.0))
    actions, forcing = decide_forcing(forcing_poll(MOVING, 601.0), forcing_terms(False), forcing)
    assert [type(action) for action in actions] == [SetDowntime]
    assert decide_forcing(forcing_poll(MOVING, 609.0), forcing_terms(False), forcing)[0] == []
    assert decide_forcing(forcing_poll(MOVING, 611.0), forcing_terms(False), forcing)[0] != []
