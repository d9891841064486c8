# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decisions of a drill: what refuses it, whether the power is cut now, and which guests are still waited for. Pure functions."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, DrilledGuest, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.documents import HostEntry
from .._ledger.protection import ahead_text, is_protected_ahead
from .transitions import Now, with_event

MOST_SECONDS = 3600
# What is done about the power of the host.
CUT, GO_ON, IS_BACK, REFUSED = "cut", "go_on", "is_back", "refused"
# The number of problems and reasons that a drill keeps.
MOST_REASONS = 50


def make_drill(limit_seconds: int, deadline_seconds: int, reaction: str, accept_lost: Sequence[str], guests: Mapping[str, str]) -> Drill:
    """Return a new drill. Raises L(InvalidArgument) for limits that cannot be, and for a guest that may stay off and does not run there.

    :arg guests: the names of the guests on the host, by UUID.
    """
    if not 1 <= limit_seconds <= MOST_SECONDS:
        raise InvalidArgument(f"drill_limit_seconds is {limit_seconds}.", f"Give a number from 1 to {MOST_SECONDS}. Nothing was changed.")
    if not limit_seconds <= deadline_seconds <= MOST_SECONDS:
        raise InvalidArgument(
            f"drill_deadline_seconds is {deadline_seconds}, and the limit is {limit_seconds} s.",
            f"Give a number from {limit_seconds} to {MOST_SECONDS}: the drill waits for guests until then. Nothing was changed.",
        )
    strangers = sorted(set(accept_lost) - set(guests.values()))
    if guests and strangers:
        raise InvalidArgument(f"drill_accept_lost names {', '.join(strangers)}, and no such guest runs on the host.", "Correct the list. Nothing was changed.")
    listed = tuple(DrilledGuest(uuid, name, None, None, None, {}, None) for uuid, name in sorted(guests.items(), key=lambda one: one[1]))
    return Drill(limit_seconds, deadline_seconds, reaction, listed, tuple(accept_lost), None, (), None, None, None, ())


@dataclass(frozen=True)
class HomelessGuest:
    """A guest that no other host could start now, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class FleetBefore:
    """The fleet before the power of a host is cut.

    :arg entry: of the host in the ledger; None if it has none.
    :arg others: the entries of the other hosts of the fleet.
    :arg guests: the names of the guests on the host; None if the host did not report them now.
    :arg autostarted: the names of those guests that start with the host, or may.
    :arg records: that are not settled, and those of evacuations from the host that were not cleaned up.
    :arg open_runs: descriptions of open runs, other than the drill itself.
    :arg protected_hours: how long ago the host was protected; None for never.
    :arg homeless: guests of the host that no other host could start now; C(unclear) is why this is not known.
    :arg homes: the other hosts to which guests of the host move back, by the names of the guests; empty if the drill brings no guest back.
    :arg silent: hosts that did not answer.
    :arg power: what the fence devices of the host report; None if it has none that can switch it off and on.
    :arg is_on: whether they report it as on.
    """

    entry: t.Optional[HostEntry]
    others: Sequence[HostEntry]
    guests: t.Optional[Sequence[str]]
    autostarted: Sequence[str]
    records: Sequence[MoveRecord]
    open_runs: Sequence[str]
    protected_hours: t.Optional[int]
    homeless: Sequence[HomelessGuest]
    homes: Mapping[str, str]
    unclear: Sequence[str]
    silent: Sequence[str]
    power: t.Optional[str]
    is_on: bool


@dataclass(frozen=True)
class Accepted:
    """What a person accepts of a drill.

    :arg lost: names of guests that may stay off until the host returns.
    :arg is_unguarded: whether the boot guard need not hold the automatic starts of the host.
    """

    lost: Sequence[str]
    is_unguarded: bool
    protect_max_hours: int


def list_refusals(host: str, before: FleetBefore, accepted: Accepted) -> list[str]:
    """Return why the power of the host is not cut, as sentences; none if it may be."""
    return [
        *_hosts_refused(host, before),
        *(f"{one} is open." for one in before.open_runs),
        *(f"{_name(record)} has a record that is '{record.status}' ({record.id})." for record in before.records),
        *_protection_refused(host, before, accepted),
        *_power_refused(host, before),
        *_guests_refused(host, before, accepted),
    ]


def _hosts_refused(host: str, before: FleetBefore) -> Iterator[str]:
    if before.entry is None:
        yield f"{host} is not in the ledger: protect it first."
    for entry in (*([before.entry] if before.entry else ()), *before.others):
        if entry.state != s.ENABLED:
            yield f"{entry.name} is in the state '{entry.state}', and a drill needs every host in service."
    if before.silent:
        yield f"{', '.join(before.silent)} did not answer."


def _protection_refused(host: str, before: FleetBefore, accepted: Accepted) -> Iterator[str]:
    if before.entry is None:
        return
    hours = before.protected_hours
    if hours is None or hours >= accepted.protect_max_hours:
        if hours is None and is_protected_ahead(before.entry):
            yield f"{ahead_text(before.entry)} Run kvmfleet.migration.protect first."
        else:
            age = "was never protected" if hours is None else f"was protected {hours} h ago"
            yield f"{host} {age}: run kvmfleet.migration.protect first."
    guard = before.entry.protected.guard if before.entry.protected else None
    if guard and guard.held_at_boot:
        return
    if not accepted.is_unguarded:
        yield (
            f"No boot guard holds {host} at its next boot, so that it may start guests which run elsewhere then: protect it, or set"
            " drill_accept_unguarded if none of them starts automatically."
        )
    elif before.autostarted:
        yield (
            f"No boot guard holds {host} at its next boot, and it would start {', '.join(before.autostarted)} then, although they run elsewhere:"
            " protect it, or switch off their autostart."
        )


def _power_refused(host: str, before: FleetBefore) -> Iterator[str]:
    if before.power is None:
        yield f"{host} has no fence agent (kvmfleet_fencing) that could switch it off and on again, which is also the evidence of its death."
    elif not before.is_on:
        yield f"The fence agent of {host} does not report that it is on: {before.power}."


def _guests_refused(host: str, before: FleetBefore, accepted: Accepted) -> Iterator[str]:
    if before.guests is None:
        yield f"{host} did not report its guests now."
    elif not before.guests:
        yield f"No guest runs on {host}, so that a drill would show nothing."
    yield from (f"It is not known whether the fleet can lose {host}: {why}" for why in before.unclear)
    for guest in before.homeless:
        if guest.name not in accepted.lost:
            yield f"The fleet cannot lose {host} now, as {guest.name} could not be started elsewhere ({guest.reason})."
    for name, home in before.homes.items():
        yield (
            f"{name} would not be brought back to {host}, because a drain or an evacuation took it off {home}, which is its home. Recover {home} with"
            f" recover_host_bring_home=true first, or set drill_bring_home to false."
        )


def decide_cut(drill: Drill, is_off: bool, boot_before: t.Optional[str], boot_now: t.Optional[str]) -> str:
    """Return what is done about the power of the host: C(CUT) it, C(GO_ON) because it is cut, or nothing any more because the host C(IS_BACK).

    A process that was killed after it had recorded the cut may not have called the agent. The cut is repeated only if the host still runs the same boot.

    :arg boot_now: the boot of the host now; None if it does not answer.
    """
    if drill.cut_at is None:
        return CUT
    if is_off:
        return GO_ON
    return CUT if boot_now is not None and boot_now == boot_before else IS_BACK


def begin_cut(run: MaintenanceRun, host: str, now: Now) -> MaintenanceRun:
    """Return the run with the note that the fence agent of the host is about to cut its power."""
    drill = replace(drill_of(run), cut_at=now.at, cut=now.moment)
    return with_event(replace(run, drill=drill), now, "power_cut", host)


def note_problem(run: MaintenanceRun, host: str, problem: str, now: Now) -> MaintenanceRun:
    """Return the run with what went wrong; the verdict will name it. The drill goes on, because the host has to be brought back."""
    drill = drill_of(run)
    if problem in drill.problems:
        return run
    noted = replace(drill, problems=(*drill.problems, problem[:1000])[-MOST_REASONS:])
    return with_event(replace(run, drill=noted), now, "drill_problem", host, problem)


def find_record(guest: DrilledGuest, drill: Drill, records: Sequence[MoveRecord]) -> t.Optional[MoveRecord]:
    """Return the record by which the guest was, or is being, started elsewhere since the cut; None if there is none.

    :arg records: of evacuations from the host of the drill.
    """
    own = [one for one in records if one.domain.uuid == guest.uuid and drill.cut_at and one.created_at >= drill.cut_at]
    started = [one for one in own if started_at(one)]
    return max(started or own, key=lambda one: one.created_at, default=None)


def started_at(record: MoveRecord) -> t.Optional[str]:
    """Return when the domain was seen in its wanted state; None if it was not."""
    return next((line.at for line in record.history if line.status == s.DONE), None)


def list_waiting(drill: Drill, records: Sequence[MoveRecord]) -> list[str]:
    """Return the names of the guests that were not started elsewhere yet."""
    found = [(guest, find_record(guest, drill, records)) for guest in drill.guests if guest.name not in drill.accept_lost]
    return [guest.name for guest, record in found if record is None or started_at(record) is None]


def has_waited(drill: Drill, now: Now) -> t.Optional[bool]:
    """Whether the time for the guests is over; None if that cannot be known on this control node, or after a boot of it."""
    seconds = now.moment.seconds_since(drill.cut) if drill.cut else None
    return None if seconds is None else seconds >= drill.deadline_seconds


@dataclass(frozen=True)
class PlannedDeath:
    """The time in which a host was off because of a drill; C(ended_at) is null while the drill is open."""

    host: str
    cut_at: str
    ended_at: t.Optional[str]

    def includes(self, host: t.Optional[str], at: str) -> bool:
        """Whether a restart at that time was because of this drill."""
        return host == self.host and self.cut_at <= at and (self.ended_at is None or at <= self.ended_at)


def list_planned_deaths(runs: Sequence[MaintenanceRun]) -> list[PlannedDeath]:
    """Return when drills have cut the power of hosts: no guest has killed its host then."""
    return [PlannedDeath(run.hosts[0].host, run.drill.cut_at, None if run.is_open else run.updated_at) for run in runs if run.drill and run.drill.cut_at]


def _name(record: MoveRecord) -> str:
    return record.domain.name or record.domain.uuid


def drill_of(run: MaintenanceRun) -> Drill:
    """Return the drill of a run that is one."""
    if not run.drill:
        raise KeyError(run.id)
    return run.drill
