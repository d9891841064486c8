# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How near the database of an etcd ledger is to its quota, at which etcd refuses every change until a person raises it."""

from __future__ import annotations

import typing as t

from .messages import DatabaseSize

# Where a member does not report its quota: the default, or the largest that etcd recommends if the database is larger than that.
_ASSUMED_QUOTAS = (2 * 1024**3, 8 * 1024**3)
_NEAR = 0.8
MAKE_ROOM = "Raise --quota-backend-bytes of its members, or free space ('etcdctl compact', 'etcdctl defrag'); then 'etcdctl alarm disarm'."


def describe_shortage(database: DatabaseSize, address: str) -> t.Optional[str]:
    """Return what is wrong with the size of a database and what to do; None if there is room."""
    if database.is_full:
        return f"The database of the etcd ledger {address} is full: nothing can be moved or evacuated. {MAKE_ROOM}"
    quota = database.quota or next((quota for quota in _ASSUMED_QUOTAS if database.size < quota), None)
    if quota is None or database.size < _NEAR * quota:
        return None
    origin = "" if database.quota else ", if --quota-backend-bytes is not larger"
    return (
        f"The database of the etcd ledger {address} has {_gib(database.size)} GiB, of which {_gib(database.in_use)} are in use. At {_gib(quota)} GiB{origin}, "
        "etcd accepts no further change, and nothing can be moved or evacuated. Run 'etcdctl defrag' if much less is in use; otherwise archive old records "
        "(kvmfleet.migration.ledger_archive), or raise that quota (docs/etcd.md, Size)."
    )


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f}"
