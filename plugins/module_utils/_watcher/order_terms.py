# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The limits of a move and the terms of its forced end, as its start order asks for them."""

from __future__ import annotations

from .._migration.downtime import AdaptiveSchedule, DowntimeSchedule, SteppedSchedule, size_gib
from .._migration.force import ForcingTerms
from .._migration.monitor import Limits
from .._migration.policy import resolve_policy
from .._model import domain_states
from .._model.policies import ResolvedPolicy, read_given_policy
from .._model.records import MoveRecord
from .._model.watched_moves import StartOrder


def limits_of(order: StartOrder) -> Limits:
    """Return the limits that the order's record asks for, for a guest of its size."""
    gib = size_gib(order.record.memory_bytes, order.record.copied_bytes)
    policy = resolve_policy(read_given_policy(order.record.policy), gib)
    return Limits(_schedule_of(order, policy), policy.timeout_seconds, policy.stall_seconds, force_on_timeout=policy.is_forced_on_timeout)


def _schedule_of(order: StartOrder, policy: ResolvedPolicy) -> DowntimeSchedule:
    if policy.is_stepped:
        return SteppedSchedule(policy.ramp)
    return AdaptiveSchedule(
        first_ms=policy.ramp[0][1],
        longest_ms=policy.downtime_ms,
        full_from_seconds=policy.full_downtime_from_seconds,
        link_rate_bytes=_link_rate_bytes(order.record),
        is_compressed="COMPRESSED" in order.flags,
    )


def _link_rate_bytes(record: MoveRecord) -> int:
    return (record.connection.link_mib or 0) * 1024**2 if record.connection else 0


def terms_of(order: StartOrder) -> ForcingTerms:
    """Return what forcing this move may use."""
    record, policy = order.record, read_given_policy(order.record.policy)
    return ForcingTerms(
        post_copy=policy.post_copy and not policy.auto_converge and record.before.state != domain_states.PAUSED,
        capped=bool(record.connection and (record.connection.bandwidth_mib or record.connection.is_shared)),
        suspend_seconds=policy.force_suspend_seconds,
        pause_max_seconds=policy.force_pause_max_seconds,
        downtime_ms=policy.downtime_ms,
        link_rate_bytes=_link_rate_bytes(record),
    )
