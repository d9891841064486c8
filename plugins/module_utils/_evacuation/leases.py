# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What becomes of the locks of a host that has died, by the kind of its storage.

An NFS 4 server drops them after the client's lease (90 s by default on Linux; RFC 8881, section 8.3), a CephFS server when it evicts the client (its
C(session_autoclose), 300 s by default). The lock manager beside NFS 3 knows no lease: it drops them when the client is back and says so.
"""

from __future__ import annotations

import typing as t

from .._hypervisor.storage import Mount

# LEASED: they end by themselves. KEPT: they stay until their host is back. LOCAL: they never left it.
LEASED, KEPT, LOCAL = "leased", "kept", "local"

_SECONDS = {"ceph": 300, "fuse.ceph": 300, "fuse.ceph-fuse": 300}
_USUAL_SECONDS = 90
# Servers look for leases that are over from time to time.
_SLACK_SECONDS = 15
_NFS_WITHOUT_LEASES = ("vers=2", "vers=3")
_NOT_SENT = ("nolock", "local_lock=all", "local_lock=posix")

Disk = t.Mapping[str, t.Any]


def locks_on(mount: Mount) -> str:
    """Return L(LEASED), L(KEPT) or L(LOCAL) for QEMU's locks on images there."""
    options = mount.options.split(",")
    if not mount.kind.startswith("nfs") or not any(option in _NFS_WITHOUT_LEASES for option in options):
        return LEASED
    return LOCAL if any(option in _NOT_SENT for option in options) else KEPT


def is_kept(disk: Disk) -> bool:
    """Whether the locks on a saved disk outlive their host."""
    return disk.get("locks") == KEPT


def lease_seconds(disks: t.Iterable[Disk]) -> int:
    """Return after how long the locks of a dead host on all of these saved disks have ended; those that do not end aside."""
    kinds = [str((disk.get("mount") or {}).get("kind")) for disk in disks if not is_kept(disk)]
    return max((_SECONDS.get(kind, _USUAL_SECONDS) + _SLACK_SECONDS for kind in kinds), default=0)
