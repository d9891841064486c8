# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether this host sees a dead host's disks now, by the tokens and identities that were read while all was well."""

from __future__ import annotations

import typing as t

from .._patience import within
from . import locks, tokens
from .images import PATIENCE_SECONDS, Images

Json = t.Mapping[str, t.Any]

_NETWORK, _BLOCK = "network", "block"


def is_needed(disk: Json) -> bool:
    """Whether a domain cannot be started without the disk; an empty drive and one that libvirt may leave out can be missing."""
    return bool((disk["path"] and not disk["optional"]) or disk["kind"] == "volume")


def unseen(disks: t.Sequence[Json], given: Json) -> t.Dict[str, str]:
    """Return, by target, why a needed disk is not proved to be the one that the saved definition means; empty where all are.

    :arg given: C(host_id) of the host that the domain was saved on, and C(folders), its tokens.
    """
    images = Images()
    reasons = {disk["target"]: _unseen(disk, given, images) for disk in disks if is_needed(disk)}
    return {target: why for target, why in reasons.items() if why}


def _unseen(disk: Json, given: Json, images: Images) -> str:
    if disk["kind"] == _NETWORK:
        return ""
    missing = [folder for folder in disk["folders"] if not _sees(folder, given)]
    if missing:
        return f"the token that its host left in {', '.join(missing)} is not seen here"
    if disk["kind"] == _BLOCK:
        return "" if disk["wwn"] and images.identity_of(disk["path"]) == disk["wwn"] else f"the device {disk['wwn'] or disk['path']} is not here"
    return "" if disk["folders"] else f"of a disk of the kind {disk['kind']!r} it cannot be proved that it is the same one here"


def _sees(folder: str, given: Json) -> bool:
    nonce = given["folders"].get(folder)
    return bool(nonce) and bool(within(PATIENCE_SECONDS, lambda: tokens.is_seen(folder, given["host_id"], nonce)))


def lock_states(paths: t.Iterable[str]) -> t.Dict[str, t.Dict[str, str]]:
    """Return C(state) (L(LOCKED), L(FREE), L(UNPROVABLE)) and C(why) of each image."""
    silent = locks.LockFinding(locks.UNPROVABLE, f"its file system did not answer within {PATIENCE_SECONDS:.0f} s")
    found = {path: within(PATIENCE_SECONDS, lambda path=path: locks.probe(path)) or silent for path in sorted(set(paths))}  # type: ignore[misc]
    return {path: {"state": finding.state, "why": finding.why} for path, finding in found.items()}


def lockable(disks: t.Iterable[Json]) -> t.List[str]:
    """Return the paths of the images that QEMU locks against all other writers; of a C(shareable) disk a lock says nothing."""
    return [disk["path"] for disk in disks if disk["path"].startswith("/") and not (disk["readonly"] or disk.get("shareable"))]
