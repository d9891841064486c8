# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A host as the scheduler sees it: who it is, whether it may take guests, how much room it has and what of that is taken."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.hypervisor import JOB_INCOMING, JOB_OUTGOING
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import UNSETTLED

from .arrivals import started, towards
from .guest import Guest
from .hardware import Hardware
from .request import Request
from .settings import SchedulerSettings

ENABLED = "enabled"

Body = Mapping[str, t.Any]
_NONE: t.Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class HostState:
    """One host at one moment. All memory is in MiB.

    :arg host_id: its own ID; empty where it is not known.
    :arg unanswered: why the host did not answer; None where it did.
    :arg state: of its entry in the ledger; a host without an entry is enabled.
    :arg guests: by UUID, the domains active there and those booked for it.
    :arg used_mib: memory of all guests; C(used_vcpus) likewise.
    :arg moves_in: UUIDs of domains whose move towards it has begun; C(moves_out) away from it.
    :arg paths: whether a path is there, of the paths that were looked for.
    :arg seen_devices: paths of the source's devices that this host also has, according to what C(protect) wrote about both.
    :arg cpu_verdicts: libvirt's own comparison by domain UUID: C(passed) and C(reason).
    :arg vacated: guests that were there when the facts were gathered and have been taken out since: what they held is free beside what the facts say.
    """

    name: str
    host_uuid: str = ""
    host_id: str = ""
    unanswered: t.Optional[str] = None
    state: str = ENABLED
    state_reason: str = ""
    hardware: Hardware = field(default_factory=Hardware)
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    guests: Mapping[str, Guest] = field(default_factory=dict, hash=False)
    used_mib: int = 0
    used_vcpus: int = 0
    moves_in: frozenset[str] = _NONE
    moves_out: frozenset[str] = _NONE
    paths: Mapping[str, bool] = field(default_factory=dict, hash=False)
    seen_devices: frozenset[str] = _NONE
    cpu_verdicts: Mapping[str, Body] = field(default_factory=dict, hash=False)
    vacated: tuple[Guest, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        facts: t.Optional[Body],
        records: Iterable[Body] = (),
        entry: t.Optional[Body] = None,
        settings: t.Union[SchedulerSettings, Body, None] = None,
        paths: t.Optional[Mapping[str, bool]] = None,
        cpu_verdicts: t.Optional[Mapping[str, Body]] = None,
    ) -> HostState:
        """Return the state of a host.

        :arg facts: C(kvmfleet_host); C(answered) false and C(msg) where it did not answer; None: never asked.
        :arg records: those count that book room here, or whose move has begun; and ended ones that arrived here, which are given only where they are news.
        :arg entry: the host's document in the ledger.
        :arg settings: its C(kvmfleet_scheduler). Raises L(InvalidArgument) for one that is wrong.
        """
        known = settings if isinstance(settings, SchedulerSettings) else SchedulerSettings.of(settings, name)
        state, reason = (entry.get("state") or ENABLED, entry.get("reason") or "") if entry else (ENABLED, "")
        if facts is None or not facts.get("answered", True):
            return cls(name, unanswered=str((facts or {}).get("msg") or "nothing is known of it"), state=state, state_reason=reason, settings=known)
        here, told = place(name, facts.get("host_id"), facts.get("host_uuid")), list(records)
        guests = _guests(facts, towards(told, here))
        return cls(
            name=name,
            host_uuid=str(here["host_uuid"] or ""),
            host_id=str(here["host_id"] or ""),
            state=state,
            state_reason=reason,
            hardware=Hardware(facts),
            settings=known,
            guests=guests,
            used_mib=sum(guest.memory_mib for guest in guests.values()),
            used_vcpus=sum(guest.vcpus for guest in guests.values()),
            moves_in=started(told, "destination", here) | _with_job(facts, JOB_INCOMING),
            moves_out=started(told, "source", here) | _with_job(facts, JOB_OUTGOING),
            paths=paths or {},
            cpu_verdicts=cpu_verdicts or {},
        )

    @property
    def place(self) -> Body:
        """The host as a place of records."""
        return place(self.name, self.host_id or None, self.host_uuid or None)

    @property
    def total_mib(self) -> int:
        """The memory of the whole host."""
        return self.hardware.total_mib

    @functools.cached_property
    def capacity_mib(self) -> int:
        """What all guests together may have: (total - reserved) x ratio; nothing where more is reserved than there is."""
        return max(0, int((self.hardware.total_mib - self.settings.reserved_memory_mib) * self.settings.ram_allocation_ratio))

    @functools.cached_property
    def capacity_vcpus(self) -> int:
        """What all guests together may have: (CPUs - reserved) x ratio, counted likewise."""
        return max(0, int((self.hardware.cpus - self.settings.reserved_cpus) * self.settings.cpu_allocation_ratio))

    def free_mib(self, without: str = "") -> int:
        """What memory is left, the domain of that UUID not counted; less than nothing on a host that holds more than it may."""
        guest = self.guests.get(without)
        return self.capacity_mib - self.used_mib + (guest.memory_mib if guest else 0)

    def free_vcpus(self, without: str = "") -> int:
        """How many vCPUs are left, counted likewise."""
        guest = self.guests.get(without)
        return self.capacity_vcpus - self.used_vcpus + (guest.vcpus if guest else 0)

    def taking(self, request: Request) -> HostState:
        """Return the host as it is with that domain on it."""
        there, guest = self.guests.get(request.uuid), Guest.of(request)
        if there:
            return self._with({**self.guests, request.uuid: there.with_booking(guest)}, self.vacated)
        return replace(self, guests={**self.guests, request.uuid: guest}, used_mib=self.used_mib + guest.memory_mib, used_vcpus=self.used_vcpus + guest.vcpus)

    def without(self, uuid: str) -> HostState:
        """Return the host as it is once the domain of that UUID has left."""
        guest = self.guests.get(uuid)
        if guest is None:
            return self
        rest = {other: kept for other, kept in self.guests.items() if other != uuid}
        return self._with(rest, (*self.vacated, guest) if guest.arrived else self.vacated)

    def _with(self, guests: Mapping[str, Guest], vacated: tuple[Guest, ...]) -> HostState:
        used_mib = sum(guest.memory_mib for guest in guests.values())
        used_vcpus = sum(guest.vcpus for guest in guests.values())
        return replace(self, guests=guests, used_mib=used_mib, used_vcpus=used_vcpus, vacated=vacated)


def _guests(facts: Body, records: Mapping[str, Body]) -> dict[str, Guest]:
    """Return the union by UUID of what is active there and what its records book."""
    active = {domain["uuid"]: Guest.of_domain(domain) for domain in facts.get("domains") or () if domain["active"]}
    for uuid, record in records.items():
        booked = Guest.of_record(record)
        if uuid in active and record["status"] not in UNSETTLED:
            # What it copied is there, and counts as used.
            booked = replace(booked, copies=())
        active[uuid] = active[uuid].with_booking(booked) if uuid in active else booked
    return active


def _with_job(facts: Body, job: str) -> frozenset[str]:
    return frozenset(domain["uuid"] for domain in facts.get("domains") or () if domain["active"] and domain.get("job") == job)
