# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The use of the capacity of a host: the domains that are active on it, and the records that reserve capacity of it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostDevice
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import COPIED_BYTES, MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DeviceNeed, DomainGroup, DomainRequest

from .._ledger.rules import holds_domain
from .request import Request

Bindings = tuple[tuple[frozenset[int], int], ...]
_NO_CPUS: t.Final[frozenset[int]] = frozenset()
# The parts of a request that use a host's resources exclusively.
_EXCLUSIVE_NEEDS = ("pinning", "numa", "hugepages", "devices")


@dataclass(frozen=True)
class Guest:
    """The resources that a domain uses on its host.

    :arg arrived: whether it was active there when the facts were gathered, so that the host's free resources exclude it.
    :arg dedicated: host CPUs that carry one of its vCPUs alone.
    :arg bindings: NUMA cells it is strictly bound to, and the MiB on them.
    :arg pages: C((size in KiB or None, cells or empty, MiB)) of its huge pages.
    :arg devices: host devices that it holds, by kind and address.
    :arg copies: C((path, bytes)) of disks that are being copied there; the path is empty if it is not known.
    """

    uuid: str
    name: str
    memory_mib: int
    vcpus: int
    arrived: bool = False
    group: t.Optional[DomainGroup] = None
    dedicated: frozenset[int] = _NO_CPUS
    bindings: Bindings = ()
    pages: tuple[tuple[t.Optional[int], frozenset[int], int], ...] = ()
    devices: frozenset[tuple[str, str]] = frozenset()
    copies: tuple[tuple[str, int], ...] = ()

    @property
    def page_mib(self) -> int:
        """How many MiB of its memory are in huge pages."""
        return sum(mib for _size, _cells, mib in self.pages)

    @classmethod
    def from_request(cls, request: Request) -> Guest:
        """Return what the domain of a request uses after it has arrived."""
        return replace(_of_request(request), copies=_copies_for(request))

    @classmethod
    def from_domain(cls, domain: DomainFacts) -> Guest:
        """Return what an active domain of a host uses."""
        needs = domain.request or {}
        memory_mib = max(domain.memory_mib or 0, _positive_int(needs.get("memory_mib")))
        vcpus = max(domain.vcpus or 0, _positive_int(needs.get("vcpus")))
        guest = cls(domain.uuid, domain.name or domain.uuid, memory_mib, vcpus, arrived=True, group=_group_of(needs))
        if not any(needs.get(key) for key in _EXCLUSIVE_NEEDS):
            return guest
        try:
            request = Request(guest.uuid, guest.name, "", "", memory_mib, vcpus, decode(DomainRequest, needs))
        except ShapeError:
            return guest
        return replace(_of_request(request), arrived=True)

    @classmethod
    def from_record(cls, record: MoveRecord) -> Guest:
        """Return what a record reserves at its destination. Of a damaged request only memory and vCPUs count, as far as they are numbers."""
        needs, uuid = record.request, record.domain.uuid
        name = record.domain.name or uuid
        try:
            guest = cls.from_request(Request.from_needs(needs, uuid, name))
        except InvalidArgument:
            guest = cls(uuid, name, _positive_int(needs.get("memory_mib")), _positive_int(needs.get("vcpus")))
        return replace(guest, copies=_reserved_copies(record))

    def with_reservation(self, booked: Guest) -> Guest:
        """Return the guest combined with the reservation of its record: the larger value counts."""
        return replace(self, memory_mib=max(self.memory_mib, booked.memory_mib), vcpus=max(self.vcpus, booked.vcpus), copies=booked.copies)


def _of_request(request: Request) -> Guest:
    devices = frozenset(device_key(device) for device in request.devices if device.address)
    held = (request.dedicated_cpus, request.bindings, pages_of(request), devices)
    return Guest(request.uuid, request.name, request.memory_mib, request.vcpus, False, request.group, *held)


def _group_of(needs: JsonObject) -> t.Optional[DomainGroup]:
    """Return the group of a domain by its request; None if it has none, or an invalid one."""
    try:
        return decode(DomainGroup, needs["group"]) if needs.get("group") else None
    except ShapeError:
        return None


def device_key(device: DeviceNeed | HostDevice) -> tuple[str, str]:
    """Return kind and address of a device; the address is empty if it is chosen by vendor and product."""
    return device.kind, device.address or ""


def pages_of(request: Request) -> tuple[tuple[t.Optional[int], frozenset[int], int], ...]:
    """Return the huge pages of a request: size in KiB (None: the host's default), the cells they must be on (empty: any), MiB."""
    if not request.hugepages:
        return ()
    bound = frozenset().union(*(nodes for nodes, _mib in request.bindings))
    return tuple((page.size_kib or None, bound, page.mib) for page in request.hugepages)


def _copies_for(request: Request) -> tuple[tuple[str, int], ...]:
    if not request.copied:
        return ()
    paths = {disk.target: disk.source or "" for disk in request.disks}
    return tuple((paths.get(target, ""), size) for target, size in request.copied.items())


def _reserved_copies(record: MoveRecord) -> tuple[tuple[str, int], ...]:
    if record.storage:
        return tuple((disk.path, disk.bytes) for disk in record.storage.disks)
    booked = record.request.get(COPIED_BYTES)
    sizes = booked.values() if isinstance(booked, Mapping) else booked if isinstance(booked, list) else [booked]
    return tuple(("", size) for size in map(_positive_int, sizes) if size)


def _positive_int(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


STARTED_STATUSES = frozenset({s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY})
# A reservation starts with scheduled. Two records that are only accepted must not refuse each other the last capacity.
_RESERVING_STATUSES = s.UNSETTLED - {s.ACCEPTED}
_ARRIVED_STATUSES = frozenset({s.COMPLETED, s.DONE})


def arriving_records(records: Iterable[MoveRecord], host: HostRef) -> dict[str, MoveRecord]:
    """Return, by domain UUID, the records whose domain is on this host, or moving to it, although the facts may not show it.

    That is every record that has reserved this destination, and otherwise the newest one of a domain if it arrived here. Clocks do not decide whether a guest
    arrived before the facts were gathered: ended records are given only if they are newer.
    """
    reserved: dict[str, MoveRecord] = {}
    newest: dict[str, MoveRecord] = {}
    for record in records:
        uuid = record.domain.uuid
        if record.status in _RESERVING_STATUSES:
            if holds_domain(record) and record.destination.is_same(host):
                reserved[uuid] = record
        elif record.status in _ARRIVED_STATUSES and (uuid not in newest or _generation_order(record) > _generation_order(newest[uuid])):
            newest[uuid] = record
    arrived = {uuid: record for uuid, record in newest.items() if record.destination.is_same(host)}
    return {**arrived, **reserved}


def _generation_order(record: MoveRecord) -> tuple[int, str]:
    """Return the sort key of the records of a domain: the generation always rises."""
    return record.generation, record.updated_at


def list_moves_in(records: Iterable[MoveRecord], host: HostRef) -> frozenset[str]:
    """Return the UUIDs of domains whose live migration to this host has begun."""
    return frozenset(record.domain.uuid for record in records if _is_moving(record) and record.destination.is_same(host))


def list_moves_out(records: Iterable[MoveRecord], host: HostRef) -> frozenset[str]:
    """Return the UUIDs of domains whose live migration away from this host has begun."""
    return frozenset(record.domain.uuid for record in records if _is_moving(record) and record.source.is_same(host))


def _is_moving(record: MoveRecord) -> bool:
    return record.status in STARTED_STATUSES and record.type == s.LIVE_MIGRATION and holds_domain(record)
