# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reading C(kvmfleet_host), what C(host_facts) gathered of a host and its domains."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

MOVABLE = (h.RUNNING, h.PAUSED)

Body = Mapping[str, t.Any]


def is_leaving(domain: Body) -> bool:
    """Whether an outgoing migration of the domain is in progress, post-copy included."""
    in_post_copy = domain["state"] == h.PAUSED and domain["reason"] in (h.POST_COPY, h.POST_COPY_FAILED)
    return bool(domain["active"] and (domain["job"] == h.JOB_OUTGOING or in_post_copy))


def is_arriving(domain: Body) -> bool:
    """Whether the domain is being received there."""
    return bool(domain["active"] and domain["job"] == h.JOB_INCOMING)


def local_disks(needs: Body) -> dict[str, int]:
    """Return the bytes of each disk, by target, that the domain writes to and that lies on storage of its host alone; 0 where the size is not known."""
    disks = needs.get("disks") or []
    return {disk["target"]: disk.get("bytes") or 0 for disk in disks if disk.get("shared") is False and not disk.get("readonly") and disk.get("source")}


def find(facts: Body, uuid: str) -> t.Optional[Body]:
    """Return the domain of that UUID."""
    return next((domain for domain in facts["domains"] if domain["uuid"] == uuid), None)


def instant(stamp: str) -> datetime.datetime:
    """Return the point in time of a record's RFC 3339 stamp."""
    return datetime.datetime.fromisoformat(stamp)
