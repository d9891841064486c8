# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A host as the scheduler sees it: who it is, whether it may take guests, how much room it has and what of that is taken."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import UNSETTLED

from .request import Request

MIB = 1024**2
ENABLED = "enabled"

RAM_ALLOCATION_RATIO = 1.0
RESERVED_MEMORY_MIB = 512

Body = Mapping[str, t.Any]


@dataclass(frozen=True)
class HostState:
    """One host at one moment. All memory is in MiB.

    :arg unanswered: why the host did not answer; None where it did.
    :arg state: of its entry in the ledger; a host without an entry is enabled.
    :arg usage: UUID to MiB, of the domains active there and of those on their way there.
    """

    name: str
    host_uuid: str = ""
    unanswered: t.Optional[str] = None
    state: str = ENABLED
    state_reason: str = ""
    total_mib: int = 0
    ram_allocation_ratio: float = RAM_ALLOCATION_RATIO
    reserved_memory_mib: int = RESERVED_MEMORY_MIB
    usage: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_survey(
        cls, name: str, facts: t.Optional[Body], records: Iterable[Body] = (), entry: t.Optional[Body] = None, settings: t.Optional[Body] = None
    ) -> HostState:
        """Return the state of a host.

        :arg facts: C(host_uuid), C(memory) and C(roster) as the host told them; C(answered) false and C(msg) where it did not; None: never asked.
        :arg records: unsettled records; those towards this host count.
        :arg entry: the host's document in the ledger.
        :arg settings: its C(kvmfleet_scheduler). Raises L(InvalidArgument) for a value that is no such number.
        """
        state, reason = (entry.get("state") or ENABLED, entry.get("reason") or "") if entry else (ENABLED, "")
        if facts is None or not facts.get("answered", True):
            return cls(name, unanswered=str((facts or {}).get("msg") or "nothing is known of it"), state=state, state_reason=reason)
        host_uuid = str(facts["host_uuid"])
        return cls(
            name=name,
            host_uuid=host_uuid,
            state=state,
            state_reason=reason,
            total_mib=facts["memory"]["total_bytes"] // MIB,
            ram_allocation_ratio=_number(settings, "ram_allocation_ratio", RAM_ALLOCATION_RATIO, name),
            reserved_memory_mib=int(_number(settings, "reserved_memory_mib", RESERVED_MEMORY_MIB, name)),
            usage=_usage(facts["roster"], [record for record in records if is_towards(record, name, host_uuid)]),
        )

    @property
    def capacity_mib(self) -> int:
        """What all guests together may have: (total - reserved) x ratio."""
        return int((self.total_mib - self.reserved_memory_mib) * self.ram_allocation_ratio)

    def used_mib(self, without: str = "") -> int:
        """What is taken, the domain of that UUID not counted."""
        return sum(memory for uuid, memory in self.usage.items() if uuid != without)

    def free_mib(self, without: str = "") -> int:
        """What is left; less than nothing on a host that holds more than it may."""
        return self.capacity_mib - self.used_mib(without)

    def taking(self, request: Request) -> HostState:
        """Return the host as it is with that domain on it."""
        return replace(self, usage={**self.usage, request.uuid: request.memory_mib})


def is_towards(record: Body, name: str, host_uuid: str) -> bool:
    """Whether the record is unsettled and its destination is this host: by UUID, by name where the record has no UUID."""
    if record["status"] not in UNSETTLED:
        return False
    destination = record["destination"]
    return destination["host_uuid"] == host_uuid if destination.get("host_uuid") else destination.get("host") == name


def _usage(roster: Iterable[Body], records: Iterable[Body]) -> dict[str, int]:
    booked = {record["domain"]["uuid"]: int(record.get("request", {}).get("memory_mib") or 0) for record in records}
    active = {domain["uuid"]: -(-domain["memory_bytes"] // MIB) for domain in roster if domain["active"]}
    return {uuid: max(booked.get(uuid, 0), active.get(uuid, 0)) for uuid in {*booked, *active}}


def _number(settings: t.Optional[Body], key: str, default: float, name: str) -> float:
    value = (settings or {}).get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < 1e9:
        raise InvalidArgument(f"kvmfleet_scheduler.{key} of {name} is {value!r}.", "Give a number that is not negative.")
    return number
