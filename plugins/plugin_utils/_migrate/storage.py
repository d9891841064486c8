# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The storage of a move: which disks are copied to which destination, how their targets are created, and what may move without a copy. Pure functions."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.renamed_request import rename_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import DATA, SEPARATE, SHARED, UNPROVED, Pools, locate_volume
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.device_names import is_identity, may_be_numbered
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    KvmfleetError,
    NotSupported,
    Unsafe,
    error_for_code,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import clean_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import INCREMENTAL, NO_COPY
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import CREATE, FILL, REPLACE, DiskCopy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming, rename_folders
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.surveyed_disks import ExistingImage, SurveyedDisk, SurveyedImage
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain, UnprovedDevice, UnsharedFile
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest

AUTO = "auto"
_FORMATS = ("raw", "qcow2")
MIB = 1024**2
_NOTHING = "Nothing was moved."


class CopyRequest(t.NamedTuple):
    """The storage options of one move.

    :arg renaming: what the destination calls the files of the source; null if both have the same names.
    """

    mode: str
    overwrite: t.Sequence[str] = ()
    unsafe: bool = False
    renaming: t.Optional[Renaming] = None


def plan_copies(request: CopyRequest, disks: t.Sequence[SurveyedDisk], domain: str, host: str) -> list[DiskCopy]:
    """Return a copy for each disk that is to be copied to that host.

    Raises L(Unsafe) if a disk is neither proved shared nor proved separate, or is shared but was to be copied;
    L(Conflict) if the target exists or there is not enough space; L(NotSupported) if the target has to be created first; L(InvalidArgument) for an unknown
    disk in copy_storage_overwrite.
    """
    if request.mode == NO_COPY:
        return []
    unknown = sorted(set(request.overwrite) - {disk.image.target for disk in disks})
    if unknown:
        raise InvalidArgument(f"copy_storage_overwrite names {', '.join(unknown)}, which domain {domain} does not write to.", _NOTHING)
    chosen = [disk for disk in disks if _is_copied(request, disk, domain, host)]
    copies = [_plan_copy(request, disk, domain, host) for disk in chosen]
    _check_capacity(copies, chosen, domain, host)
    return copies


def _is_copied(request: CopyRequest, disk: SurveyedDisk, domain: str, host: str) -> bool:
    what = _name_disk(disk, domain)
    if disk.verdict == SEPARATE:
        return True
    if disk.verdict == UNPROVED and not (request.unsafe and request.mode == AUTO):
        raise Unsafe(
            f"{what} could not be proved to be shared with {host} or separate from it: {disk.why}.",
            f"Make its folder known at {host}, or move the disk to shared storage. {_NOTHING}",
        )
    if disk.verdict == SHARED and request.mode != AUTO and disk.image.kind == "file":
        raise Unsafe(f"{what} is on storage that {host} shares: a copy would overwrite the image with itself.", f"Set copy_storage to auto or none. {_NOTHING}")
    return False


def _plan_copy(request: CopyRequest, disk: SurveyedDisk, domain: str, host: str) -> DiskCopy:
    image, existing = disk.image, disk.existing
    problem = _find_problem(request, disk, domain, host)
    if problem:
        raise problem
    action = CREATE if not existing else FILL if request.mode == INCREMENTAL else REPLACE
    return DiskCopy(image.target, image.path, image.format, image.capacity_bytes, _count_bytes(image, action), action, made=False)


def _count_bytes(image: SurveyedImage, action: str) -> int:
    """Return the size of a copy. One that is not filled in has the data of all images below; if their size is not known, as much as the guest sees."""
    if image.format == "raw":
        return image.capacity_bytes
    if action == FILL or not image.has_backing:
        return image.allocation_bytes
    if not isinstance(image.below_bytes, int):
        return max(image.capacity_bytes, image.allocation_bytes)
    # Data of lower images that upper ones hide is not copied.
    return max(image.allocation_bytes, min(image.capacity_bytes, image.allocation_bytes + image.below_bytes))


def _find_problem(request: CopyRequest, disk: SurveyedDisk, domain: str, host: str) -> t.Optional[KvmfleetError]:
    image, existing = disk.image, disk.existing
    what = _name_disk(disk, domain)
    if image.shareable:
        return NotSupported(f"{what} is shareable: a copy would separate it from the other domains that write to it.", _NOTHING)
    if disk.used_by:
        users = ", ".join(disk.used_by)
        return Conflict(f"{what} cannot be copied: {users} uses {image.path} on {host}.", f"Give one of the two another path. {_NOTHING}")
    if existing and image.target not in request.overwrite:
        return Conflict(
            f"{host} has a file {image.path} already, where {what} would be copied to.",
            f"Remove it there, or name {image.target} in copy_storage_overwrite if its content may be lost. {_NOTHING}",
        )
    return _incremental_problem(request, disk, what, host) if request.mode == INCREMENTAL else _format_problem(image, what)


def _format_problem(image: SurveyedImage, what: str) -> t.Optional[KvmfleetError]:
    if image.encrypted:
        return NotSupported(f"{what} is encrypted, and no encrypted target can be created.", f"Put it on storage that the hosts share. {_NOTHING}")
    if image.format in _FORMATS:
        return None
    return NotSupported(
        f"{what} has the format {image.format}, for which no target can be created.", f"Formats that can be copied: {', '.join(_FORMATS)}. {_NOTHING}"
    )


def _incremental_problem(request: CopyRequest, disk: SurveyedDisk, what: str, host: str) -> t.Optional[KvmfleetError]:
    """Judge the target of an incremental copy: only the content of the top image is sent, so all images below it must already exist."""
    image, existing = disk.image, disk.existing
    if not existing:
        return NotSupported(
            f"{what} has no target on {host}: an incremental copy needs the image there, with the backing chain it has here.",
            f"Create {image.path} there first, or set copy_storage to full. {_NOTHING}",
        )
    if existing.format != image.format:
        return NotSupported(
            f"{what} has the format {image.format}, its target on {host} has {existing.format}.", f"Create the target with the format of the image. {_NOTHING}"
        )
    base, named = _find_base(image, request.renaming), _find_named_base(image, existing)
    if base != named and not (base == _NOT_A_FILE and named):
        return NotSupported(
            f"{what} is built on {base or _NO_BASE}, its target on {host} on {named or _NO_BASE}: the next start there would use that chain.",
            f"Create the target with the base of the image, or set copy_storage to full. {_NOTHING}",
        )
    if existing.capacity_bytes != image.capacity_bytes:
        return NotSupported(f"{what} has {image.capacity_bytes} bytes, its target on {host} has {existing.capacity_bytes}.", _NOTHING)
    if disk.other_base and not request.unsafe:
        return Unsafe(
            f"{what} would have another backing file on {host}: {disk.other_base}.",
            f"Copy its base there byte for byte, or set copy_storage to full. {_NOTHING}",
        )
    if disk.same_file:
        return Unsafe(f"{what} and its target on {host} could be one file: {disk.same_file}.", f"Wait 30 seconds and try again. {_NOTHING}")
    return None


_NO_BASE = "no other image"
_NOT_A_FILE = "an image that is not a file"
_UNKNOWN_BASE = "an image that is not known"


def _find_base(image: SurveyedImage, renaming: t.Optional[Renaming]) -> str:
    """Return what the image is built on, a file by its path on the destination; empty for nothing."""
    if not image.has_backing:
        return ""
    if not image.backing:
        return _UNKNOWN_BASE
    path = clean_path(image.backing[0])
    # A name that cannot be translated is reported when the definition of the domain is rewritten.
    return (rename_folders([path], renaming).get(path, path) if renaming else path) or _NOT_A_FILE


def _find_named_base(image: SurveyedImage, existing: ExistingImage) -> str:
    """Return what the header of the target names as its base, a file by its path; empty for nothing. A relative name is in the folder of the target."""
    name = existing.backing_path
    is_relative = name and not os.path.isabs(name) and ":" not in name.partition("/")[0]
    return clean_path(os.path.join(os.path.dirname(image.path), name) if is_relative else name)


def _check_capacity(copies: t.Sequence[DiskCopy], disks: t.Sequence[SurveyedDisk], domain: str, host: str) -> None:
    folders = {os.path.dirname(copy.path): disk.available_bytes for copy, disk in zip(copies, disks, strict=True)}
    for folder, available in folders.items():
        copied = [(copy, disk) for copy, disk in zip(copies, disks, strict=True) if os.path.dirname(copy.path) == folder]
        needed = sum(copy.bytes for copy, _disk in copied)
        freed = sum(disk.existing.allocation_bytes for copy, disk in copied if disk.existing and copy.action in (REPLACE, FILL))
        missing = needed - freed - available
        if missing > 0:
            raise Conflict(
                f"{host} is {-(-missing // MIB)} MiB short of space in {folder}: the disks of domain {domain} need {-(-needed // MIB)} MiB there.", _NOTHING
            )


def _name_disk(disk: SurveyedDisk, domain: str) -> str:
    return f"Disk {disk.image.target} of domain {domain}"


def check_storage(request: MoveRequest, domain: SurveyedDomain, source: str, host: str, pools: Pools = ()) -> None:
    """Raise what L(find_copies) raises, and L(Unsafe) for a disk or backing file that is neither copied nor of a kind that hosts share.

    :arg pools: of the source.
    """
    copied = copied_bytes(request, domain, host)
    _check_paths(request, domain, host, copied)
    _check_files(request, domain, source, host, copied)
    _check_devices(request, domain, source, host, copied, pools)
    unshared = [target for target in domain.unshared_disks or () if target not in copied]
    if unshared and not request.options.unsafe:
        raise Unsafe(
            f"Domain {request.label} on {source} writes to storage of a kind that hosts do not share (disk {', '.join(unshared)}).",
            "Put the disk on shared storage, or have it copied (copy_storage); or set unsafe: true if both hosts see the same bytes for certain. "
            "Nothing was moved.",
        )


def _check_paths(request: MoveRequest, domain: SurveyedDomain, host: str, copied: t.Collection[str]) -> None:
    """Raise L(NotSupported) for a disk that would be copied to a host where it has another path: a copy is made at the path that it has on its source."""
    renaming = request.renamings.get(request.uris[host])
    if not renaming or not domain.request or not copied:
        return
    renamed = rename_request(domain.request, renaming).needs.disks or ()
    for disk, there in zip(domain.request.disks or (), renamed, strict=True):
        if disk.target in copied and disk.source != there.source:
            raise NotSupported(
                f"Disk {disk.target} of domain {request.label} would be copied to {host}, where kvmfleet_image_map gives it another path ({there.source}).",
                f"Disks that are copied keep their path: give both hosts the same folder, or put the disk on shared storage. {_NOTHING}",
            )


def _check_devices(request: MoveRequest, domain: SurveyedDomain, source: str, host: str, copied: t.Collection[str], pools: Pools) -> None:
    """Raise L(Unsafe) for a device or volume that the destination is not known to see: the device with that name there may be another one."""
    if request.options.unsafe:
        return
    seen = (domain.seen_devices or {}).get(host, ())
    devices = [device for device in domain.unproved_devices or () if device.target not in copied and device.path not in seen]
    if devices:
        named = ", ".join(f"disk {device.target}: {device.path}" for device in devices)
        raise Unsafe(
            f"Domain {request.label} on {source} uses a device that {host} is not known to see ({named}). "
            f"What {host} has under that name may be another device.",
            f"{_advise_proof(devices, source, host, pools)} Otherwise put the disk on shared storage. Nothing was moved.",
        )


def _advise_proof(devices: t.Sequence[UnprovedDevice], source: str, host: str, pools: Pools) -> str:
    """Return what lets these devices move. Where one has no identity, nothing can prove it."""
    nameless = [device.path for device in devices if not is_identity(device.store)]
    if nameless:
        return f"There is no identity by which {', '.join(nameless)} could be proved. Set unsafe: true if both hosts certainly see the same bytes."
    paths = {device.path: device.path if os.path.isabs(device.path) else locate_volume(device.path, pools)[1] for device in devices}
    numbered = [name for name, path in paths.items() if path and may_be_numbered(path)]
    facts = f" For {', '.join(numbered)}, that counts until {host} boots again, and only with its facts (host_facts) of the last minute." if numbered else ""
    return (
        f"If both hosts have the device under that name, run the playbook protect for {source} and {host}: it proves that by the device's identity (WWN, "
        f"LVM).{facts} Or set unsafe: true if both certainly see the same bytes."
    )


def _check_files(request: MoveRequest, domain: SurveyedDomain, source: str, host: str, copied: t.Collection[str]) -> None:
    """Raise L(Unsafe) for a backing or data file of which the destination may have another one.

    A disk that is copied completely no longer needs them; the base of an incremental copy was compared with that of the destination.
    """
    if request.options.unsafe:
        return
    needed = [file for file in domain.unshared_files or () if file.target not in copied]
    if needed:
        raise Unsafe(
            f"Domain {request.label} on {source} cannot move to {host}: {' '.join(_describe_file(file, host) for file in needed)}",
            "Put that file on shared storage too; or merge it into the disk's image (virsh blockpull), or have the disk copied whole (copy_storage: full); "
            "or set unsafe: true if both hosts certainly have the same bytes there. Nothing was moved.",
        )


def _describe_file(file: UnsharedFile, host: str) -> str:
    disk = f"Disk {file.target}"
    if file.path is None:
        return f"{disk} may need files that are not known: {file.why}."
    what = "has its data in" if file.role == DATA else "is built on"
    return f"{disk} {what} {file.path}, which is not on storage that hosts share: what {host} has at that path may be another file."


def copied_bytes(request: MoveRequest, domain: SurveyedDomain, host: str) -> dict[str, int]:
    """Return the bytes that are copied to that host, by the disk's target. Raises as L(find_copies)."""
    return {copy.target: copy.bytes for copy in find_copies(request, domain, host)}


def find_copies(request: MoveRequest, domain: SurveyedDomain, host: str) -> list[DiskCopy]:
    """Return what is copied to that host; nothing if the survey did not examine it. Raises what L(plan_copies), or the examination, reported for it."""
    options = request.options
    examined = (domain.storage or {}).get(request.uris[host])
    if isinstance(examined, t.Mapping):
        why = f"The disks of domain {request.label} could not be examined: {examined['msg']}"
        raise error_for_code(str(examined["error_code"]))(why, "Nothing was moved.")
    if options.copy_storage == NO_COPY or not isinstance(examined, (list, tuple)):
        return []
    disks = [decode(SurveyedDisk, disk, "storage") for disk in examined]
    copied = CopyRequest(options.copy_storage, options.copy_storage_overwrite, options.unsafe, request.renamings.get(request.uris[host]))
    return plan_copies(copied, disks, request.label, host)


def add_copies(record: MoveRecord, request: MoveRequest, domain: SurveyedDomain, host: str) -> MoveRecord:
    """Return the record with the disks that are copied to that host, and the bytes of each."""
    return record.copy_disks(request.options.copy_storage, find_copies(request, domain, host))
