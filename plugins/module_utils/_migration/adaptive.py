# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The adaptive downtime: a small pause while the move converges by itself, and what the rest needs as soon as it does not, up to the longest permitted one."""

from __future__ import annotations

import dataclasses

from .estimate import pause_ms
from .iterations import Iterations
from .schedule import Allowance, Moment

MIB = 1024**2

# The hypervisor judges by the rate of its last tenth of a second, which wavers.
MARGIN = 1.25
# Less than the rate wavers is no reason to change a limit.
_OVER = 1.1
_MAX_DOWNTIME_MS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """Holds C(first_ms) while iterations shrink what remains; from the first that does not, allows what the rest needs.

    The hypervisor compares what remains with the allowed pause at the rate it sends at, which a cap may hold down; the guest lives the pause at the link's
    rate, for the last pages are sent without the cap. So with a known link more than C(longest_ms) may be allowed, and the pause stays within it.

    :arg longest_ms: the longest pause that the guest may have.
    :arg full_from_seconds: from then on C(longest_ms) is allowed whatever the iterations do; 0 is never.
    :arg link_rate_bytes: what the link is known to carry, bytes a second; 0 where all that is known is what is measured.
    :arg is_compressed: what is sent is less than what is moved, so the first iteration says nothing.
    """

    first_ms: int
    longest_ms: int
    full_from_seconds: float = 0
    link_rate_bytes: int = 0
    is_compressed: bool = False
    is_attentive: bool = True

    def allow(self, moment: Moment) -> Allowance:
        seen, before = moment.iterations, moment.allowed_ms or self.first_ms
        most = self._most_ms(seen)
        if self._is_due(seen):
            needed = min(most, int(MARGIN * pause_ms(seen.began_with or 0, seen.rate)))
            if needed > _OVER * before or before < self.longest_ms <= needed:
                return self._grown(needed, seen)
        if self.full_from_seconds and moment.elapsed_seconds >= self.full_from_seconds and before < self.longest_ms:
            return Allowance(self.longest_ms, reason="Half of the time is over: the longest pause that is permitted is allowed.")
        return Allowance(most if before > _OVER * most else before)

    def _is_due(self, seen: Iterations) -> bool:
        if not seen.rate or (self.is_compressed and seen.number <= 2):
            return False
        return not seen.shrinks

    def _most_ms(self, seen: Iterations) -> int:
        """Return the limit whose pause, at the link's rate, is the longest that is permitted."""
        if not self.link_rate_bytes or not seen.rate:
            return self.longest_ms
        return min(_MAX_DOWNTIME_MS, max(self.longest_ms, self.longest_ms * self.link_rate_bytes // seen.rate))

    def _grown(self, allowed_ms: int, seen: Iterations) -> Allowance:
        written, sent = (seen.rewritten or 0) // MIB, (seen.sent or 0) // MIB
        why = f"Of {sent} MiB that iteration {seen.number - 1} sent the guest has written {written} MiB again: a pause of {allowed_ms} ms is allowed."
        return Allowance(allowed_ms, pause_ms(seen.began_with or 0, max(seen.rate, self.link_rate_bytes)), why)
