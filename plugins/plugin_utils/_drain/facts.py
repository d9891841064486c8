# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reading C(kvmfleet_host), what C(host_facts) gathered, into the scheduler's words."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .._scheduler.request import Request

MIB = 1024**2
MOVABLE = (h.RUNNING, h.PAUSED)

Body = Mapping[str, t.Any]


def survey_of(facts: t.Optional[Body], unreachable: t.Optional[str]) -> t.Optional[dict[str, t.Any]]:
    """Return the facts as C(HostState.from_survey) takes them; facts of a host that no longer answers do not count."""
    if unreachable is not None or not facts:
        return {"answered": False, "msg": unreachable.removeprefix("Task failed: ")} if unreachable else None
    roster = [
        {"uuid": domain["uuid"], "name": domain["name"], "active": domain["active"], "memory_bytes": domain["memory_mib"] * MIB, "vcpus": domain["vcpus"]}
        for domain in facts["domains"]
    ]
    return {"answered": True, "host_uuid": facts["host_uuid"], "memory": facts["memory"], "roster": roster}


def request_of(domain: Body, source: str, source_uuid: str) -> Request:
    """Return what a domain of C(kvmfleet_host) needs."""
    needs = domain["request"]
    return Request(domain["uuid"], domain["name"], source, source_uuid, int(needs["memory_mib"]), int(needs["vcpus"]))


def is_leaving(domain: Body) -> bool:
    """Whether an outgoing migration of the domain is in progress, post-copy included."""
    in_post_copy = domain["state"] == h.PAUSED and domain["reason"] in (h.POST_COPY, h.POST_COPY_FAILED)
    return bool(domain["active"] and (domain["job"] == h.JOB_OUTGOING or in_post_copy))


def is_arriving(domain: Body) -> bool:
    """Whether the domain is being received there."""
    return bool(domain["active"] and domain["job"] == h.JOB_INCOMING)


def find(facts: Body, uuid: str) -> t.Optional[Body]:
    """Return the domain of that UUID."""
    return next((domain for domain in facts["domains"] if domain["uuid"] == uuid), None)


def instant(stamp: str) -> datetime.datetime:
    """Return the point in time of a record's RFC 3339 stamp."""
    return datetime.datetime.fromisoformat(stamp)
