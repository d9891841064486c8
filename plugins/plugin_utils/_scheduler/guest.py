# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What one domain takes of the host that it is on, or that it is booked for."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from .request import Request

Body = Mapping[str, t.Any]

Bindings = tuple[tuple[frozenset[int], int], ...]
_NO_CPUS: t.Final[frozenset[int]] = frozenset()
# What of a request takes parts of a host that nobody else may have.
_HELD = ("pinning", "numa", "hugepages", "devices")


@dataclass(frozen=True)
class Guest:
    """A domain as it counts for its host.

    :arg arrived: it was active there when the facts were gathered, so what the host told as free is without it.
    :arg dedicated: host CPUs that carry one of its vCPUs alone.
    :arg bindings: NUMA cells it is strictly bound to, and the MiB on them.
    :arg pages: C((size in KiB or None, cells or empty, MiB)) of its huge pages.
    :arg devices: host devices that it holds, by kind and address.
    :arg copies: C((path, bytes)) of disks that are being copied there; the path is empty where it is not known.
    """

    uuid: str
    name: str
    memory_mib: int
    vcpus: int
    arrived: bool = False
    group: t.Optional[Body] = None
    dedicated: frozenset[int] = _NO_CPUS
    bindings: Bindings = ()
    pages: tuple[tuple[t.Optional[int], frozenset[int], int], ...] = ()
    devices: frozenset[tuple[str, str]] = frozenset()
    copies: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, request: Request) -> Guest:
        """Return what a request will take once its domain is there."""
        return replace(_of_needs(request.uuid, request.name, request.needs, request.memory_mib, request.vcpus), copies=_copies_of(request))

    @classmethod
    def of_domain(cls, domain: Body) -> Guest:
        """Return what an active domain of C(kvmfleet_host) takes."""
        needs = domain.get("request") or {}
        memory_mib = max(_whole(domain.get("memory_mib")), _whole(needs.get("memory_mib")))
        vcpus = max(_whole(domain.get("vcpus")), _whole(needs.get("vcpus")))
        return _of_needs(domain["uuid"], domain.get("name") or domain["uuid"], needs, memory_mib, vcpus, arrived=True)

    @classmethod
    def of_record(cls, record: Body) -> Guest:
        """Return what a record books at its destination. Of a request that was spoilt only memory and vCPUs count, as far as they are numbers."""
        needs, domain = record.get("request") or {}, record["domain"]
        uuid, name = domain["uuid"], str(domain.get("name") or domain["uuid"])
        try:
            guest = cls.of(Request.of(needs, uuid, name))
        except InvalidArgument:
            guest = cls(uuid, name, _whole(needs.get("memory_mib")), _whole(needs.get("vcpus")))
        return replace(guest, copies=_booked_copies(record, needs))

    def with_booking(self, booked: Guest) -> Guest:
        """Return the guest, which is there, with what its record booked: the larger of the two counts."""
        return replace(self, memory_mib=max(self.memory_mib, booked.memory_mib), vcpus=max(self.vcpus, booked.vcpus), copies=booked.copies)


def _of_needs(uuid: str, name: str, needs: Body, memory_mib: int, vcpus: int, arrived: bool = False) -> Guest:
    if not any(needs.get(key) for key in _HELD):
        return Guest(uuid, name, memory_mib, vcpus, arrived, needs.get("group"))
    request = Request(uuid, name, "", "", memory_mib, vcpus, needs)
    devices = frozenset(device_key(device) for device in request.devices if device.get("address"))
    return Guest(uuid, name, memory_mib, vcpus, arrived, request.group, request.dedicated_cpus, request.bindings, pages_of(request), devices)


def device_key(device: Body) -> tuple[str, str]:
    """Return kind and address of a device; the address is empty where it is chosen by vendor and product."""
    return str(device["kind"]), str(device.get("address") or "")


def pages_of(request: Request) -> tuple[tuple[t.Optional[int], frozenset[int], int], ...]:
    """Return the huge pages of a request: size in KiB (None: the host's default), the cells they must be on (empty: any), MiB."""
    if not request.hugepages:
        return ()
    bound = frozenset().union(*(nodes for nodes, _mib in request.bindings))
    return tuple((page.get("size_kib"), bound, page["mib"]) for page in request.hugepages)


def _copies_of(request: Request) -> tuple[tuple[str, int], ...]:
    if not request.copied:
        return ()
    paths = {disk["target"]: disk.get("source") or "" for disk in request.disks}
    return tuple((request.copy_paths.get(target) or paths.get(target, ""), size) for target, size in request.copied.items())


def _booked_copies(record: Body, needs: Body) -> tuple[tuple[str, int], ...]:
    storage = record.get("storage")
    disks = storage.get("disks") if isinstance(storage, Mapping) else None
    if isinstance(disks, list):
        return tuple((str(disk.get("path") or ""), _whole(disk.get("bytes"))) for disk in disks if isinstance(disk, Mapping))
    booked = needs.get("copied_disk_bytes")
    sizes = booked.values() if isinstance(booked, Mapping) else booked if isinstance(booked, list) else [booked]
    return tuple(("", size) for size in map(_whole, sizes) if size)


def _whole(value: t.Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
