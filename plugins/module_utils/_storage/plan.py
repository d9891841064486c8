# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which disks of a move are copied, and how their targets come to be. Decides only; touches nothing."""

from __future__ import annotations

import os
import typing as t

from .._errors import Conflict, InvalidArgument, KvmfleetError, NotSupported, Unsafe
from .._migration.flags import NO_COPY
from .token import SEPARATE, SHARED, UNPROVED

# What becomes of the target: made, removed and made again, or filled as it is.
CREATE = "create"
REPLACE = "replace"
FILL = "fill"

INCREMENTAL = "incremental"
AUTO = "auto"
_FORMATS = ("raw", "qcow2")
MIB = 1024**2
_NOTHING = "Nothing was moved."

Facts = t.Mapping[str, t.Any]
Copy = t.Dict[str, t.Any]


class Wish(t.NamedTuple):
    """What the operator wants of the storage of one move."""

    mode: str
    overwrite: t.Sequence[str] = ()
    unsafe: bool = False


def plan(wish: Wish, disks: t.Sequence[Facts], domain: str, host: str) -> t.List[Copy]:
    """Return a copy C({target, path, format, capacity_bytes, bytes, action}) for each disk that is to be copied to that host.

    :arg disks: as L(inspect) returned them.
    Raises L(Unsafe) where a disk is neither proved shared nor proved separate, or is shared and was to be copied; L(Conflict) where the target is
    taken or there is no room; L(NotSupported) where the target has to be made first; L(InvalidArgument) for an overwriting of no disk.
    """
    if wish.mode == NO_COPY:
        return []
    unknown = sorted(set(wish.overwrite) - {disk["image"]["target"] for disk in disks})
    if unknown:
        raise InvalidArgument(f"copy_storage_overwrite names {', '.join(unknown)}, which domain {domain} does not write to.", _NOTHING)
    chosen = [disk for disk in disks if _is_copied(wish, disk, domain, host)]
    copies = [_copy(wish, disk, domain, host) for disk in chosen]
    _check_room(copies, chosen, domain, host)
    return copies


def _is_copied(wish: Wish, disk: Facts, domain: str, host: str) -> bool:
    what = _what(disk, domain)
    if disk["verdict"] == SEPARATE:
        return True
    if disk["verdict"] == UNPROVED and not (wish.unsafe and wish.mode == AUTO):
        raise Unsafe(
            f"{what} could be proved neither one store with {host} nor separate: {disk['why']}.",
            f"Make its folder known at {host}, or move the disk to shared storage. {_NOTHING}",
        )
    if disk["verdict"] == SHARED and wish.mode != AUTO and disk["image"]["kind"] == "file":
        raise Unsafe(f"{what} is on a store that {host} shares: copied, it would be written onto itself.", f"Set copy_storage to auto or none. {_NOTHING}")
    return False


def _copy(wish: Wish, disk: Facts, domain: str, host: str) -> Copy:
    image, existing = disk["image"], disk["existing"]
    problem = _problem(wish, disk, domain, host)
    if problem:
        raise problem
    action = CREATE if not existing else FILL if wish.mode == INCREMENTAL else REPLACE
    return {
        "target": image["target"],
        "path": image["path"],
        "format": image["format"],
        "capacity_bytes": image["capacity_bytes"],
        "bytes": image["capacity_bytes"] if image["format"] == "raw" else image["allocation_bytes"],
        "action": action,
    }


def _problem(wish: Wish, disk: Facts, domain: str, host: str) -> t.Optional[KvmfleetError]:
    image, existing = disk["image"], disk["existing"]
    what = _what(disk, domain)
    if image["shareable"]:
        return NotSupported(f"{what} is shareable: a copy would part it from the others that write to it.", _NOTHING)
    if disk["used_by"]:
        users = ", ".join(disk["used_by"])
        return Conflict(f"{what} cannot be copied: {users} uses {image['path']} on {host}.", f"Give one of the two another path. {_NOTHING}")
    if existing and image["target"] not in wish.overwrite:
        return Conflict(
            f"{host} has a file {image['path']} already, where {what} would be copied to.",
            f"Remove it there, or name {image['target']} in copy_storage_overwrite if its content may be lost. {_NOTHING}",
        )
    return _incremental_problem(wish, disk, what, host) if wish.mode == INCREMENTAL else _format_problem(image, what)


def _format_problem(image: Facts, what: str) -> t.Optional[KvmfleetError]:
    if image["format"] in _FORMATS:
        return None
    return NotSupported(f"{what} has the format {image['format']}, of which no target can be made.", f"Copied are: {', '.join(_FORMATS)}. {_NOTHING}")


def _incremental_problem(wish: Wish, disk: Facts, what: str, host: str) -> t.Optional[KvmfleetError]:
    """Judge a target that is to be filled: only what the top image holds is sent, so all the rest has to be there already."""
    image, existing = disk["image"], disk["existing"]
    if not existing:
        return NotSupported(
            f"{what} has no target on {host}: an incremental copy needs the image there, with the backing chain it has here.",
            f"Make {image['path']} there first, or set copy_storage to full. {_NOTHING}",
        )
    if bool(existing["backing_path"]) != image["has_backing"] or existing["format"] != image["format"]:
        return NotSupported(f"{what} and its target on {host} differ in format or backing file.", f"Make the target as the image is. {_NOTHING}")
    if existing["capacity_bytes"] != image["capacity_bytes"]:
        return NotSupported(f"{what} has {image['capacity_bytes']} bytes, its target on {host} has {existing['capacity_bytes']}.", _NOTHING)
    if disk.get("other_base") and not wish.unsafe:
        return Unsafe(
            f"{what} would be built on something else on {host}: {disk['other_base']}.",
            f"Copy its base there byte for byte, or set copy_storage to full. {_NOTHING}",
        )
    if disk["same_file"]:
        return Unsafe(f"{what} and its target on {host} could be one file: {disk['same_file']}.", f"Wait for half a minute and try again. {_NOTHING}")
    return None


def _check_room(copies: t.Sequence[Copy], disks: t.Sequence[Facts], domain: str, host: str) -> None:
    folders = {os.path.dirname(copy["path"]): disk["available_bytes"] for copy, disk in zip(copies, disks)}
    for folder, available in folders.items():
        here = [(copy, disk) for copy, disk in zip(copies, disks) if os.path.dirname(copy["path"]) == folder]
        needed = sum(copy["bytes"] for copy, _disk in here)
        freed = sum(disk["existing"]["allocation_bytes"] for copy, disk in here if copy["action"] in (REPLACE, FILL))
        missing = needed - freed - available
        if missing > 0:
            raise Conflict(
                f"{host} is {-(-missing // MIB)} MiB short of room in {folder}: the disks of domain {domain} need {-(-needed // MIB)} MiB there.", _NOTHING
            )


def _what(disk: Facts, domain: str) -> str:
    return f"Disk {disk['image']['target']} of domain {domain}"
