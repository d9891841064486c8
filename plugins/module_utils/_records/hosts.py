# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether two descriptions mean one host: the one comparison, which both halves use.

A description is anything with C(host_id), C(host_uuid) (libvirt's) and C(host) (the inventory name), each of which may be missing: a place of a record, facts,
an answer, an entry of the ledger. Where the firmware has no usable UUID libvirt makes a random one at each start of its daemon, and some boards all have the
same one. Therefore libvirt's UUID counts only where one of the two has no host ID.
"""

from __future__ import annotations

import typing as t

Described = t.Mapping[str, t.Any]


def same_host(one: Described, other: Described) -> bool:
    """Whether both mean one host: by the first of host ID, libvirt's UUID and name that both have."""
    for key in ("host_id", "host_uuid", "host"):
        if one.get(key) and other.get(key):
            return bool(one[key] == other[key])
    return False


def may_be_host(one: Described, other: Described) -> bool:
    """Whether both can mean one host: they do, or one of them has no host ID and they have one name. Permits nothing by itself."""
    has_ids = bool(one.get("host_id") and other.get("host_id"))
    return same_host(one, other) or (not has_ids and bool(one.get("host")) and one.get("host") == other.get("host"))


def same_answer(one: Described, other: Described) -> bool:
    """Whether two answers of one moment came from one host, which was reached in two ways.

    A daemon that runs has one UUID. So two answers with one host ID and different UUIDs come from two hosts, of which one has a copy of the other's ID.
    """
    if is_twin(one, other):
        return False
    by_id = bool(one.get("host_id") and other.get("host_id"))
    return same_host(one, other) if by_id else bool(one.get("host_uuid") and one.get("host_uuid") == other.get("host_uuid"))


def is_twin(one: Described, other: Described) -> bool:
    """Whether two answers of one moment have one host ID, and come from two hosts all the same."""
    return _equal("host_id", one, other) and _differ("host_uuid", one, other)


def shares_uuid(one: Described, other: Described) -> bool:
    """Whether two hosts have the same libvirt UUID, so that libvirt refuses to migrate between them."""
    return _equal("host_uuid", one, other) and _differ("host_id", one, other)


def _equal(key: str, one: Described, other: Described) -> bool:
    return bool(one.get(key)) and one.get(key) == other.get(key)


def _differ(key: str, one: Described, other: Described) -> bool:
    return bool(one.get(key) and other.get(key)) and one[key] != other[key]
