# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long a guest will be paused at the end of a move, by what was measured of it (libvirt.md, section 8.1)."""

from __future__ import annotations

# What the switch-over takes besides the pages: device state and the hand-over. Measured on idle machines 8 ms, on busy ones 20 to 30.
SWITCHOVER_MS = 12

_MAX_ROUNDS = 50


def pending_bytes(remaining_bytes: int, dirty_rate_bytes: int, since_sync_seconds: float, dirty_set_bytes: int) -> int:
    """Return how much would be sent if the guest stopped now.

    The hypervisor counts pages that were dirtied since its last look only at the next one, so C(remaining_bytes) alone is too little.

    :arg since_sync_seconds: how long ago the current iteration began.
    :arg dirty_set_bytes: the most that was ever left at the start of an iteration after the first; 0 where none was seen.
    """
    guessed = remaining_bytes + int(dirty_rate_bytes * since_sync_seconds)
    return max(remaining_bytes, min(guessed, dirty_set_bytes)) if dirty_set_bytes else guessed


def suspended_bytes(remaining_bytes: int, dirty_rate_bytes: int, since_sync_seconds: float, dirty_set_bytes: int) -> int:
    """Return how much is sent after a guest was suspended in the middle of an iteration; arguments as for L(pending_bytes).

    The hypervisor first ends the iteration, then looks, and sends again what was written since its last look: a page may count twice.
    """
    guessed = int(dirty_rate_bytes * since_sync_seconds)
    return remaining_bytes + (min(guessed, dirty_set_bytes) if dirty_set_bytes else guessed)


def pause_ms(pending: int, rate_bytes: int) -> int:
    """Return the pause in ms in which C(pending) bytes cross a link of that rate."""
    return SWITCHOVER_MS + int(pending * 1000 / rate_bytes) if rate_bytes else SWITCHOVER_MS


def converged_pause_ms(pending: int, dirty_rate_bytes: int, rate_bytes: int, allowed_ms: int) -> int:
    """Return the pause when the hypervisor may go on copying until what is left fits into the allowed pause."""
    if not rate_bytes:
        return SWITCHOVER_MS
    left = pending
    for _round in range(_MAX_ROUNDS):
        if left * 1000 / rate_bytes <= allowed_ms:
            break
        following = min(pending, int(dirty_rate_bytes * left / rate_bytes))
        if following >= left:
            break
        left = following
    return pause_ms(left, rate_bytes)
