# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a balance is planned from, and why it may not be planned: facts that are too old or have no signals, clocks that differ, hosts in maintenance."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._drain.inputs import DrainInputs
from .._scheduler.filters.base import names_text, one_or_many
from .._scheduler.fleet import OTHER_LEDGER, HostState
from .load import has_signals
from .options import NOTHING_PLANNED, BalanceOptions

# The clocks of machines differ by a little; a larger difference makes the age of a move unknown.
CLOCK_TOLERANCE_SECONDS: t.Final = 60.0
# A balance needs a host to move domains away from, and one to move them to.
_LEAST_HOSTS = 2


@dataclass(frozen=True)
class BalanceInputs:
    """What is known when a balance is planned.

    :arg drain: facts, ledger and settings, as for a drain.
    :arg now: the time of the control node.
    :arg ages: how many seconds ago this control node received the facts, by host; None if that is not known.
    :arg last_moves: when domains moved last, by UUID, see L(find_last_moves).
    """

    drain: DrainInputs
    now: datetime.datetime
    ages: Mapping[str, t.Optional[float]] = field(default_factory=dict)
    last_moves: Mapping[str, datetime.datetime] = field(default_factory=dict)


def find_last_moves(completed: Iterable[MoveRecord], drain: DrainInputs) -> dict[str, datetime.datetime]:
    """Return when each domain moved last, by UUID: according to the records of completed moves, and to those that nobody has settled since it arrived."""
    found: dict[str, datetime.datetime] = {}
    for record in (*completed, *filter(drain.has_arrived, drain.records)):
        at = parse_timestamp(record.updated_at)
        if at is not None and (record.domain.uuid not in found or at > found[record.domain.uuid]):
            found[record.domain.uuid] = at
    return found


def select_hosts(states: Mapping[str, HostState], inputs: BalanceInputs, options: BalanceOptions) -> dict[str, HostState]:
    """Return the hosts that take part: those that answered and are enabled.

    :raises Conflict: a host is in maintenance or fenced, and the options do not allow that.
    :raises InvalidArgument: the hosts are too few, or what is known about them does not suffice.
    """
    if not states:
        raise InvalidArgument("The fleet has no hosts.", f"Add hosts to the group kvmfleet_hosts. {NOTHING_PLANNED}")
    closed = sorted(name for name, state in states.items() if state.state not in (s.ENABLED, OTHER_LEDGER))
    if closed and not options.maintenance_allowed:
        raise Conflict(
            f"{names_text(closed)} {one_or_many(len(closed), 'is', 'are')} not in service ({states[closed[0]].state}).",
            "Wait until the maintenance has ended, or allow a balance beside it (maintenance_allowed, or balance_maintenance_allowed of the role). "
            f"{NOTHING_PLANNED}",
        )
    chosen = {name: state for name, state in sorted(states.items()) if state.state == s.ENABLED and state.unanswered is None}
    if len(chosen) < _LEAST_HOSTS:
        answered = f"Only {next(iter(chosen))} is" if chosen else "No host is"
        raise InvalidArgument(f"{answered} in service and answered: a balance needs two hosts at least.", NOTHING_PLANNED)
    _check_facts(chosen, inputs, options)
    return chosen


def _check_facts(states: Mapping[str, HostState], inputs: BalanceInputs, options: BalanceOptions) -> None:
    old = sorted(name for name in states if not _is_fresh(inputs.ages.get(name), options))
    if old:
        raise InvalidArgument(
            f"The facts of {names_text(old)} are older than {options.max_age_seconds:g} s, or their age is not known.",
            f"Run host_facts on all hosts first. {NOTHING_PLANNED}",
        )
    silent = sorted(name for name, state in states.items() if not has_signals(state.hardware.facts))
    if silent:
        raise InvalidArgument(
            f"The facts of {names_text(silent)} do not say how busy the host is: neither pressure nor CPU time.",
            f"Run host_facts of this version there as root. {NOTHING_PLANNED}",
        )
    _check_clocks(states, inputs)


def _is_fresh(age: float | None, options: BalanceOptions) -> bool:
    return age is not None and age <= options.max_age_seconds


def _check_clocks(states: Mapping[str, HostState], inputs: BalanceInputs) -> None:
    """Raise L(InvalidArgument) if the clock of a host, or of another control node, differs so much that the age of a move cannot be known."""
    ahead = [host for host, state in states.items() if (off := _clock_difference(state, inputs)) is not None and abs(off) > CLOCK_TOLERANCE_SECONDS]
    if ahead:
        raise InvalidArgument(
            f"The {one_or_many(len(ahead), 'clock', 'clocks')} of {names_text(ahead)} and of this control node differ by more than "
            f"{CLOCK_TOLERANCE_SECONDS:g} s.",
            f"Synchronize them. {NOTHING_PLANNED}",
        )
    latest = max(inputs.last_moves.values(), default=inputs.now)
    if (latest - inputs.now).total_seconds() > CLOCK_TOLERANCE_SECONDS:
        raise InvalidArgument(
            f"According to the ledger, a move ended at {latest.isoformat()}, which is in the future: the clocks of control nodes differ.",
            f"Synchronize them. {NOTHING_PLANNED}",
        )


def _clock_difference(state: HostState, inputs: BalanceInputs) -> float | None:
    """Return by how many seconds the clock of a host is ahead; None if that is not known."""
    gathered, age = parse_timestamp(state.hardware.facts.gathered_at or None), inputs.ages.get(state.name)
    return None if gathered is None or age is None else (gathered - inputs.now).total_seconds() + age
