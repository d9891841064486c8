# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The storage of a move: what is copied to which destination, and what may be moved without a copy. Decides only; touches nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe, error_for_code
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import NO_COPY
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.plan import Copy, Wish, plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest

Facts = dict[str, t.Any]


def check_storage(request: MoveRequest, domain: Facts, source: str, host: str) -> None:
    """Raise what L(plan), or the examination, raised for that destination, and L(Unsafe) for a disk that is neither copied nor of a kind that hosts share."""
    examined = _examined(request, domain, host)
    if isinstance(examined, dict):
        raise error_for_code(examined["error_code"])(f"The disks of domain {request.label} could not be examined: {examined['msg']}", "Nothing was moved.")
    copied = {copy["target"] for copy in _copies(request, domain, host)}
    unshared = [target for target in domain["unshared_disks"] if target not in copied]
    if unshared and not request.options.unsafe:
        raise Unsafe(
            f"Domain {request.label} on {source} writes to storage that is not of a kind hosts share (disk {', '.join(unshared)}).",
            "Put the disk on shared storage, or have it copied (copy_storage); or set unsafe: true if both hosts see the same bytes for certain. "
            "Nothing was moved.",
        )


def plan_storage(record: schema.Record, request: MoveRequest, domain: Facts, host: str) -> None:
    """Write into the record what is copied on the way to that host, and how many bytes for each disk."""
    copies = _copies(request, domain, host)
    if copies:
        record["storage"] = {"mode": request.options.copy_storage, "disks": [{**copy, "made": False} for copy in copies]}
        record["request"]["copied_disk_bytes"] = [copy["bytes"] for copy in copies]
    else:
        record.pop("storage", None)
        record["request"].pop("copied_disk_bytes", None)


def _copies(request: MoveRequest, domain: Facts, host: str) -> list[Copy]:
    options = request.options
    examined = _examined(request, domain, host)
    if options.copy_storage == NO_COPY or not isinstance(examined, list):
        return []
    return plan(Wish(options.copy_storage, options.copy_storage_overwrite, options.unsafe), examined, request.label, host)


def _examined(request: MoveRequest, domain: Facts, host: str) -> t.Any:
    """Return what the survey found of the disks for that host: a list, an error as a result, or nothing where it did not look."""
    return domain.get("storage", {}).get(request.uris[host])
