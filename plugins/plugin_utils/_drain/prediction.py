# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The prediction for the moves of a plan: from the used memory and the dirty rate of each guest, the link, and the window. L(predict_moves) simulates them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import size_gib
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import resolve_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.prediction import (
    PAYLOAD,
    SETUP_SECONDS,
    Capacity,
    MoveLoad,
    Prediction,
    drain_seconds,
    predict_moves,
    range_of,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_WINDOW

from .inputs import DrainInputs, DrainOptions
from .plan_entries import PlannedMove
from .sorting import LeavingDomain

MIB = 1024**2
# The rate of a link of 1 Gbit/s, if nothing else is known.
DEFAULT_LINK_MIB = 117.0
# What one processor sends or receives: 90 to 540 were measured on machines of two processors, which send and receive at once.
CPU_MIB = 450.0
# The time of a drain besides its moves: reserving the destinations, starting the watcher, and closing the records.
DRAIN_SECONDS = 0.5
# And for each of them: the turn of the window, and writing the record.
TURN_SECONDS = 0.08

# A move teaches the rate of a link if it sent at least this much.
_LEAST_MIB = 64
# A move that sent less than this tells the time of the setup, if there are at least so many of them.
_TINY_MIB, _LEAST_TINY = 8, 3
# The longest time of a setup that is believed: of a host that is very busy, or emulated.
_MOST_SETUP_SECONDS = 2.5
_MOST_RECORDS = 40
# The rate that a probe finds counts if it is lower than the learned one by this factor, or higher by that one: a fast link cannot be probed exactly.
_SLOWER, _FASTER = 1.5, 3.0


@dataclass(frozen=True)
class SourcePrediction:
    """The prediction for the moves of one source.

    :arg moves: in their order, with their predictions.
    :arg seconds: of all of them, between C(low) and C(high).
    """

    moves: tuple[PlannedMove, ...]
    seconds: float
    low: float
    high: float


def predict_source(
    source: str, moves: Sequence[PlannedMove], leavers: Mapping[str, LeavingDomain], inputs: DrainInputs, wanted: DrainOptions
) -> SourcePrediction:
    """Return the prediction for the moves of a source that start in this order.

    :arg leavers: by UUID of the domain.
    """
    capacity = find_capacity(source, {move.destination for move in moves}, inputs, wanted)
    # A move that has begun keeps the cap that it was started with.
    begun = {record.domain.uuid: record.connection.bandwidth_mib or 0 for record in inputs.records if record.source.host == source and record.connection}
    loads = [make_load(leavers[move.uuid], capacity.link_mib, begun.get(move.uuid, wanted.bandwidth_mib)) for move in moves]
    found = predict_moves(loads, capacity)
    seconds = round(drain_seconds(found) + DRAIN_SECONDS + TURN_SECONDS * len(moves), 1) if moves else 0.0
    low, high = range_of(seconds)
    predicted = tuple(_with_prediction(*one, leavers) for one in zip(moves, loads, found, strict=True))
    return SourcePrediction(predicted, seconds, low, high)


def find_capacity(source: str, destinations: Set[str], inputs: DrainInputs, wanted: DrainOptions) -> Capacity:
    """Return what the moves of a source to these hosts share: the link as the operator has set it, or as it was learned or probed."""
    history = [record for record in inputs.history if record.source.host == source]
    counts = [facts.cpus for host in (source, *destinations) if (facts := inputs.hosts.get(host)) and facts.cpus]
    cpus = min(counts, default=64)
    link = wanted.link_mib or _measured_link(source, destinations, inputs, history) or DEFAULT_LINK_MIB
    return Capacity(min(float(link), cpus * CPU_MIB), wanted.parallel, cpus, learn_setup_seconds(history), bool(wanted.link_mib))


def _measured_link(source: str, destinations: Set[str], inputs: DrainInputs, history: Sequence[MoveRecord]) -> float | None:
    facts = inputs.hosts.get(source)
    links = (facts.links or {}) if facts else {}
    probed = [links[host] for host in destinations if host in links] or list(links.values())
    # If no guest has moved between these hosts yet, other moves of the source tell what its own side carries.
    learned = learn_link_mib([record for record in history if record.destination.host in destinations]) or learn_link_mib(history)
    return choose_link(learned, min(probed, default=None))


def choose_link(learned: float | None, probed: float | None) -> float | None:
    """Return the rate of a link: the one that moves have reached, unless a probe shows that the link has changed."""
    if learned is None or probed is None:
        return probed if learned is None else learned
    return probed if probed * _SLOWER < learned or probed > learned * _FASTER else learned


def learn_link_mib(history: Iterable[MoveRecord]) -> float | None:
    """Return the rate of the link that earlier moves between the same hosts have reached; None if they did not send enough without a limit.

    Moves that ran at the same time count together: what one of them had of the link at each moment is not known, because it may have waited for its share.
    """
    streams = sorted((stream for record in history if (stream := _Stream.from_record(record))), key=lambda one: one.ended)[-_MOST_RECORDS:]
    together: list[_Stream] = []
    for stream in sorted(streams, key=lambda one: one.begun):
        if together and stream.begun < together[-1].ended:
            together[-1] = together[-1].join(stream)
        else:
            together.append(stream)
    rates = sorted(one.mib / one.seconds for one in together if one.mib >= _LEAST_MIB)
    return rates[len(rates) * 3 // 4] / PAYLOAD if rates else None


def learn_setup_seconds(history: Iterable[MoveRecord]) -> float:
    """Return the time of a move besides its stream: what the shortest of the moves took that sent next to nothing. Others waited, or ran beside more."""
    tiny = [record.result for record in history if record.result.elapsed_ms and record.result.bytes and record.result.bytes < _TINY_MIB * MIB]
    seconds = [(result.elapsed_ms or 0) / 1000 for result in tiny][-_MOST_RECORDS:]
    return min(max(min(seconds), SETUP_SECONDS / 2), _MOST_SETUP_SECONDS) if len(seconds) >= _LEAST_TINY else SETUP_SECONDS


@dataclass(frozen=True)
class _Stream:
    """What a completed move has sent, or several at the same time, and when, in seconds since the epoch."""

    begun: float
    ended: float
    mib: float

    @classmethod
    def from_record(cls, record: MoveRecord) -> _Stream | None:
        result = record.result
        has_cap = bool(record.connection and record.connection.bandwidth_mib)
        if not result.elapsed_ms or not result.bytes or has_cap:
            return None
        ended = datetime.datetime.fromisoformat(record.updated_at).timestamp()
        # A short stream cannot be told from the setup.
        seconds = max(result.elapsed_ms / 1000 - SETUP_SECONDS, 0.5)
        return cls(ended - seconds, ended, result.bytes / MIB)

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    def join(self, later: _Stream) -> _Stream:
        return _Stream(self.begun, max(self.ended, later.ended), self.mib + later.mib)


def make_load(leaver: LeavingDomain, link_mib: float, cap_mib: float = 0.0) -> MoveLoad:
    """Return what the move of a domain has to send. All of its memory counts if it is not known how much is used."""
    memory_mib = leaver.request.memory_mib
    copied = [size for size in leaver.request.copied.values() if size]
    policy = resolve_policy(leaver.policy, size_gib(memory_mib * MIB, copied))
    used_mib = memory_mib if leaver.used_mib is None else leaver.used_mib
    # Without a ramp: whether its iterations shrink is known once all of its memory has been sent.
    ramp = policy.ramp if policy.is_stepped else (policy.ramp[0], (used_mib / link_mib, policy.downtime_ms))
    return MoveLoad(memory_mib, used_mib, leaver.dirty_rate_mib, ramp, policy.timeout_seconds, sum(copied) / MIB, cap_mib)


def _with_prediction(move: PlannedMove, load: MoveLoad, found: Prediction, leavers: Mapping[str, LeavingDomain]) -> PlannedMove:
    return replace(
        move,
        predicted_seconds=found.seconds,
        predicted_range=(found.low, found.high),
        predicted_downtime_ms=found.downtime_ms,
        sends_mib=round(load.used_mib + load.copied_mib),
        warnings=(*move.warnings, *_slow_warnings(found, leavers[move.uuid].policy)),
    )


def _slow_warnings(expected: Prediction, policy: GivenPolicy) -> list[str]:
    if expected.converges is not False:
        return []
    allowed = policy.features
    what = "According to its measured dirty rate, it writes memory too fast to finish within its limits on this link"
    return [f"{what}: it depends on {' or '.join(allowed)}." if allowed else f"{what}: allow post_copy or auto_converge, or a longer pause."]


def predict_alone(leaver: LeavingDomain, rate_mib: float) -> float:
    """Return the seconds of a move with a stream of that rate, which decide about the order of the moves."""
    return predict_moves([make_load(leaver, rate_mib)], Capacity(rate_mib, 1))[0].seconds


def stream_rate(capacity: Capacity, moves: int, cap_mib: float) -> float:
    """Return the rate of one of so many moves of a source in MiB/s."""
    rate = capacity.link_mib / max(1, min(capacity.window or AUTO_WINDOW, moves))
    return min(rate, cap_mib) if cap_mib else rate
