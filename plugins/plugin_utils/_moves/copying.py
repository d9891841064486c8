# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The storage of a move: what is copied to which destination, and what may be moved without a copy. Decides only; touches nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe, error_for_code
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_files import DATA
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import NO_COPY
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.plan import Copy, Wish, plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest

Facts = dict[str, t.Any]


def check_storage(request: MoveRequest, domain: Facts, source: str, host: str) -> None:
    """Raise what L(copies_for) raises, and L(Unsafe) for a disk, or what it is built on, that is neither copied nor of a kind that hosts share."""
    copied = copied_bytes(request, domain, host)
    _check_files(request, domain, source, host, copied)
    _check_devices(request, domain, source, host, copied)
    unshared = [target for target in domain["unshared_disks"] if target not in copied]
    if unshared and not request.options.unsafe:
        raise Unsafe(
            f"Domain {request.label} on {source} writes to storage that is not of a kind hosts share (disk {', '.join(unshared)}).",
            "Put the disk on shared storage, or have it copied (copy_storage); or set unsafe: true if both hosts see the same bytes for certain. "
            "Nothing was moved.",
        )


def _check_devices(request: MoveRequest, domain: Facts, source: str, host: str, copied: t.Collection[str]) -> None:
    """Raise L(Unsafe) for a device or volume that the destination is not known to see: what it has under that name may be another device."""
    if request.options.unsafe:
        return
    seen = domain.get("seen_devices", {}).get(host, ())
    devices = [device for device in domain.get("unproved_devices") or () if device["target"] not in copied and device["path"] not in seen]
    if devices:
        named = ", ".join(f"disk {device['target']}: {device['path']}" for device in devices)
        raise Unsafe(
            f"Domain {request.label} on {source} writes to a device that {host} is not known to see ({named}). "
            f"What {host} has under that name may be another device.",
            f"If both hosts have the device, run the playbook protect for {source} and {host}: it proves that by the device's identity (WWN, LVM). Or set "
            "unsafe: true if both certainly see the same bytes. Otherwise put the disk on shared storage. Nothing was moved.",
        )


def _check_files(request: MoveRequest, domain: Facts, source: str, host: str, copied: t.Collection[str]) -> None:
    """Raise L(Unsafe) for a backing or data file of which the destination may have another one.

    A disk that is copied whole needs none any more; the base of an incremental copy was compared with the one there.
    """
    if request.options.unsafe:
        return
    needed = [file for file in domain.get("unshared_files") or () if file["target"] not in copied]
    if needed:
        raise Unsafe(
            f"Domain {request.label} on {source} cannot move to {host}: {' '.join(_about(file, host) for file in needed)}",
            "Put that file on shared storage too; or merge it into the disk's image (virsh blockpull), or have the disk copied whole (copy_storage: full); "
            "or set unsafe: true if both hosts certainly have the same bytes there. Nothing was moved.",
        )


def _about(file: Facts, host: str) -> str:
    disk = f"Disk {file['target']}"
    if file["path"] is None:
        return f"{disk} may need files that are not known: {file['why']}."
    what = "has its data in" if file["role"] == DATA else "is built on"
    return f"{disk} {what} {file['path']}, which is not on storage that hosts share: what {host} has at that path may be another file."


def copied_bytes(request: MoveRequest, domain: Facts, host: str) -> dict[str, int]:
    """Return the bytes that are copied to that host, by the disk's target. Raises as L(copies_for)."""
    return {copy["target"]: int(copy["bytes"]) for copy in copies_for(request, domain, host)}


def copies_for(request: MoveRequest, domain: Facts, host: str) -> list[Copy]:
    """Return what is copied to that host; nothing where the survey did not look. Raises what L(plan), or the examination, raised for it."""
    options = request.options
    examined = domain.get("storage", {}).get(request.uris[host])
    if isinstance(examined, dict):
        raise error_for_code(examined["error_code"])(f"The disks of domain {request.label} could not be examined: {examined['msg']}", "Nothing was moved.")
    if options.copy_storage == NO_COPY or not isinstance(examined, list):
        return []
    return plan(Wish(options.copy_storage, options.copy_storage_overwrite, options.unsafe), examined, request.label, host)


def plan_storage(record: schema.Record, request: MoveRequest, domain: Facts, host: str) -> None:
    """Write into the record what is copied on the way to that host, and how many bytes for each disk."""
    copies = copies_for(request, domain, host)
    if copies:
        record["storage"] = {"mode": request.options.copy_storage, "disks": [{**copy, "made": False} for copy in copies]}
        record["request"]["copied_disk_bytes"] = {copy["target"]: copy["bytes"] for copy in copies}
    else:
        record.pop("storage", None)
        record["request"].pop("copied_disk_bytes", None)
