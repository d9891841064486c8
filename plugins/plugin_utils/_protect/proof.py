# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts see a disk, by what all hosts have read while all was well; and which disks could not be used elsewhere, and why."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.needed_files import name_of

from .._ledger.store import Body

_FILES = ("file", "dir")


def proved(disks: Sequence[Body], host_id: t.Optional[str], hosts: Sequence[Body]) -> list[Body]:
    """Return the disks with C(seen_by), the IDs of the hosts that see them, this one included.

    :arg disks: as the host told them.
    :arg hosts: all entries of the ledger, with C(folders), C(devices) and C(sees).
    A network disk is seen by every host, by its nature.
    """
    own = next((entry for entry in hosts if host_id and entry.get("host_id") == host_id), {})
    peers = {entry["host_id"]: (entry.get("sees") or {}).get(host_id) or {} for entry in hosts if entry.get("host_id") and entry.get("host_id") != host_id}
    return [_with_proof(disk, host_id, own, peers) for disk in disks]


def _with_proof(disk: Body, host_id: t.Optional[str], own: Body, peers: Mapping[str, Mapping[str, str]]) -> Body:
    wanted = _wanted(disk, own)
    seeing = [peer for peer, sees in peers.items() if wanted is not None and all(sees.get(path) == token for path, token in wanted.items())]
    return {**disk, "shared": True if seeing else disk["shared"], "seen_by": sorted([*seeing, *([host_id] if host_id else [])])}


def _wanted(disk: Body, own: Body) -> t.Optional[dict[str, str]]:
    """Return what a host has to see to have this disk, as path to token; null where nothing can prove it."""
    folders = own.get("folders") or {}
    wanted = {folder: folders.get(folder) for folder in disk["folders"]}
    wanted.update(disk.get("backing_devices") or {})
    if disk["kind"] == "block":
        wanted[disk["path"]] = disk["wwn"]
    elif disk["kind"] != "network" and not (disk["kind"] in _FILES and disk["folders"]):
        return None
    if disk.get("backing_problem"):
        return None
    return None if None in wanted.values() else t.cast("dict[str, str]", wanted)


def unproved(domain: Body, host_id: t.Optional[str], own: Body) -> Iterator[Body]:
    """Yield C({uuid, name, target, path, reason}) for each disk or other file without which the domain would not be started on another host.

    :arg domain: its C(uuid), C(name), C(disks) and C(files), with C(seen_by).
    :arg own: the host's entry.
    """
    needed = [disk for disk in domain["disks"] if (disk["path"] and not disk["optional"]) or disk["kind"] == "volume"]
    lacking = [disk for disk in needed if not set(disk["seen_by"]) - {host_id}]
    for disk in lacking:
        yield {"uuid": domain["uuid"], "name": domain["name"], "target": disk["target"], "path": disk["path"], "reason": _reason(disk, own)}
    for file in domain.get("files") or ():
        if not set(file["seen_by"]) - {host_id}:
            reason = f"no other host was proved to see its {name_of(file)}"
            yield {"uuid": domain["uuid"], "name": domain["name"], "target": None, "path": file["path"], "reason": reason}
    everywhere = set.intersection(*(set(disk["seen_by"]) for disk in needed)) - {host_id} if needed else {host_id}
    if not lacking and not everywhere:
        yield {
            "uuid": domain["uuid"],
            "name": domain["name"],
            "target": None,
            "path": None,
            "reason": "each of its disks is seen elsewhere, but no other host sees all",
        }


def _reason(disk: Body, own: Body) -> str:
    if disk.get("backing_problem"):
        return f"what its image is built on is not known: {disk['backing_problem']}"
    devices = [path for path, wwn in (disk.get("backing_devices") or {}).items() if not wwn]
    if devices:
        return f"the device {', '.join(devices)}, which its image is built on, has no identity (WWN) by which another host could know it"
    if disk["kind"] == "network":
        return "the ledger has no other host"
    if disk["kind"] == "block":
        return f"no other host sees the device {disk['wwn']}" if disk["wwn"] else "the device has no identity (WWN) by which another host could know it"
    if not disk["folders"]:
        return f"of a disk of the kind {disk['kind']!r} it cannot be proved that another host sees it"
    problems = own.get("unwritable") or {}
    refused = [f"no token could be left in {folder}: {problems[folder]}" for folder in disk["folders"] if folder in problems]
    return "; ".join(refused) or f"no other host has seen this host's token in {', '.join(disk['folders'])}"
