# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a host has the disk images and boot files that are not copied, the secrets of disks, and enough space for the disks that are copied."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import (
    BACKING,
    DATA,
    FILE_LABELS,
    locate_volume,
    nvram_folder,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import PATHS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed

from ..fleet import Fleet, HostState
from ..guests import Guest
from ..hardware import StorageLocation, Store, find_image_path, find_location, find_store, has_shared_mount, has_store, is_silent_store
from ..request import DiskImage, Request
from .base import PASS, Finding, Rule, names_text

_PATH_KINDS = ("file", "dir", "block")
_DEVICE_KIND = "block"
_MEDIA = ("cdrom", "floppy")
_FILE_KIND, _NETWORK_KIND, _VOLUME_KIND = "file", "network", "volume"


class Storage(Rule):
    """A host without the image is refused.

    An image that exists but is not proved to be the same is a warning, unless the operator confirms it. If it is on shared storage, and the path there is on a
    file system of that host alone, or a survey has proved it, it is another file: that is refused. If the path was not checked there, the stores of both hosts
    are compared. A volume is what the pool of that name has on that host. A file system that does not answer is refused, on either host: libvirt
    would hang there, and answer nothing else.
    """

    name = "storage"

    def applies_to(self, request: Request) -> bool:
        """Return whether any disk is not copied."""
        return bool(request.uncopied_disks)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name disk, image and store."""
        pairs = zip(request.images, (request.at_source or request).images, strict=True)
        findings = [finding for pair in pairs if (finding := _judge_pair(*pair, request, host, fleet)) is not PASS]
        findings += [Finding(warnings=(_unknown_backing_text(disk),)) for disk in request.uncopied_disks if disk.files_problem and not request.unsafe]
        if not findings:
            return PASS
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _unknown_backing_text(disk: DiskNeed) -> str:
    return f"The backing files of {_name(DiskImage(disk), start=False)} are not known: {disk.files_problem}."


def explain_silent_images(request: Request, host: HostState) -> str:
    """Return which images of the domain are on file systems of the host that do not answer; empty if none."""
    return " ".join(filter(None, (_explain_silence(image, host) for image in request.images)))


def _explain_silence(image: DiskImage, host: HostState) -> str:
    if not host.hardware.has_silent_mount:
        return ""
    path = _path_on(image, host)
    found = find_store(host.hardware, path) if path.startswith("/") else None
    # A path through a link shows another mount than that of the image.
    where = str(found) if found is not None and found.mount.silent else image.store if image.store and is_silent_store(host.hardware, image.store) else None
    return f"{_name(image)} is on {where} on {host.name}, and that file system does not answer." if where else ""


def _judge_pair(image: DiskImage, own: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    source = fleet.source_of(request)
    silence = _explain_silence(image, host) or (_explain_silence(own, source) if source else "")
    if silence:
        return Finding(silence)
    if image.source in host.other_files and not request.unsafe:
        return Finding(f"{_name(image)} is another file on {host.name}: the folder there is not that of the shared storage. Is the storage mounted there?")
    return _judge_renamed(image, own, request, host, fleet) if image.source != own.source else _judge_image(image, request, host, fleet)


def _judge_image(image: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    if image.kind == _VOLUME_KIND:
        return _judge_by_pool(image, request, host, fleet)
    if image.kind not in _PATH_KINDS:
        return _judge_pathless(image, request)
    present = host.paths.get(image.source)
    if present is not False and image.source in host.seen_devices:
        return PASS
    if present is None:
        return _judge_by_store(image, request, host, fleet)
    return _judge_present(image, request, host, fleet) if present else _judge_absent(image)


def _judge_renamed(image: DiskImage, own: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    """Judge an image that has another path there. A map that leads to another file would give the guest other data: the file must be proved to be the same.

    On shared storage without an identity, the kinds of both file systems are compared, which proves less and is a warning.
    """
    if host.paths.get(image.source) is False:
        return _judge_absent(image)
    source, found = fleet.source_of(request), find_store(host.hardware, image.source)
    home = find_store(source.hardware, own.source) if source else None
    if image.is_readonly or request.unsafe or (found is not None and image.store and found.identity == image.store):
        return PASS
    where = f"{_name(image, start=False)}, which is {own.source} on {request.source},"
    if found is None or (not image.store and home is not None and home.mount.kind == found.mount.kind):
        return Finding(warnings=(f"Whether {where} is the same file on {host.name} is not known.",))
    return Finding(f"It is not proved that {where} is the same file: it is on {image.store or home or 'storage that is not known'}, and there on {found}.")


def _judge_absent(image: DiskImage) -> Finding:
    if image.disk.optional:
        return PASS
    # A writable medium that was copied is not proved to be the same one.
    copy = ", or copy it to the same path there" if image.is_readonly else ""
    step = f" Eject it from the running guest{copy}." if image.disk.device in _MEDIA and image.file is None else ""
    return Finding(f"{_name(image)} is not there.{step}")


def _judge_pathless(image: DiskImage, request: Request) -> Finding:
    """Judge what is neither a file nor a device: an image of the network, or a device of its host of a kind that has no identity."""
    if image.is_readonly or request.unsafe or (image.kind == _NETWORK_KIND and image.shared is True):
        return PASS
    if image.kind == _NETWORK_KIND:
        return Finding(warnings=(f"{_name(image)} is served by its own host: what another host has under that name may be another image.",))
    return Finding(warnings=(f"{_name(image)} is of the kind {image.kind!r}, which cannot be proved to be the same one: it moves only with unsafe.",))


def _judge_present(image: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    if image.is_readonly or request.unsafe:
        return PASS
    if image.shared is not True:
        return Finding(warnings=(f"{_name(image)} exists on {host.name}, but is not proved to be the same one: {_doubt_text(image)}.",))
    found = _find_store(image, host)
    if found is None or (image.store and found.identity == image.store):
        return PASS
    if found.mount.is_local and not _may_be_linked(image, host, fleet.source_of(request)):
        return _refuse_store(image, host, found)
    if not image.store:
        return PASS
    return Finding(warnings=(f"{_name(image)} exists on {host.name}, but its store has another name: {image.store}, and there {found}.",))


def _doubt_text(image: DiskImage) -> str:
    if image.shared is False:
        return "it is on storage of its host alone, and moves only with copy_storage or unsafe"
    if image.kind == "block" and not image.is_identified:
        return "the device has no identity, and moves only with unsafe"
    if image.kind == "block":
        return "it moves only once protect has seen the device on both hosts, or with unsafe"
    return "it is not known to be shared"


def _judge_by_store(image: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    if image.disk.optional:
        return PASS
    if image.shared is False and not image.is_readonly and not request.unsafe:
        return Finding(warnings=(f"{_name(image)} is on storage of {request.source} alone, and moves only with copy_storage or unsafe.",))
    found = _find_store(image, host)
    if found is not None and image.store and found.identity == image.store:
        return PASS
    is_other = found is not None and (bool(image.store) or (image.shared is True and found.mount.is_local))
    if found is None or not is_other or _may_be_linked(image, host, fleet.source_of(request)) or (found.identity and request.unsafe):
        return Finding(warnings=(f"Whether {_name(image, start=False)} exists on {host.name} is not known.",))
    return _refuse_store(image, host, found)


def _refuse_store(image: DiskImage, host: HostState, found: Store) -> Finding:
    there = "different storage" if found.identity else "not shared"
    path = _path_on(image, host)
    where = "that path" if path == image.source else path
    return Finding(f"{_name(image)} is on {image.store or 'shared storage'}, but on {host.name} {where} is on {found}, which is {there}.")


def _may_be_linked(image: DiskImage, host: HostState, source: HostState | None) -> bool:
    """Whether the path contains a link at the source, and the host also has the store: then it may have that link too."""
    at_source = find_store(source.hardware, _path_on(image, source)) if source else None
    if at_source is None:
        return False
    if image.store:
        return at_source.identity != image.store and has_store(host.hardware, image.store)
    return at_source.mount.is_local and has_shared_mount(host.hardware)


def _find_store(image: DiskImage, host: HostState) -> Store | None:
    """Return the mount of the image; None if it is not known, and for a device: its node shows nothing about its data."""
    return None if image.kind == _DEVICE_KIND else find_store(host.hardware, _path_on(image, host))


def _path_on(image: DiskImage, host: HostState) -> str:
    return find_image_path(host.hardware, image.kind, image.source)


def _judge_by_pool(image: DiskImage, request: Request, host: HostState, fleet: Fleet) -> Finding:
    if host.hardware.pools is None:
        return Finding(warnings=(f"Whether {_name(image, start=False)} exists on {host.name} is not known.",))
    name = image.source.partition("/")[0]
    pool = host.hardware.pools.get(name)
    if pool is None or not pool.active:
        return PASS if image.disk.optional else Finding(f"{_name(image)} is in the pool {name}, which {'is not active' if pool else 'it does not have'}.")
    if image.is_readonly or request.unsafe:
        return PASS
    source = fleet.source_of(request)
    own = (source.hardware.pools or {}).get(name) if source else None
    kind = locate_volume(image.source, (pool,))[0]
    if own and (kind != locate_volume(image.source, (own,))[0] or (kind == _NETWORK_KIND and own.type != pool.type)):
        types = f"of the type {own.type} on its host and of the type {pool.type} on {host.name}"
        return Finding(f"{_name(image)} is in the pool {name}, which is {types}.")
    if kind == _DEVICE_KIND and own and source and (there := _path_on(image, host)) != (here := _path_on(image, source)):
        return Finding(f"{_name(image)} is {here or 'a device that is not known'} on its host and {there or 'not there'} on {host.name}.")
    if image.source in host.seen_devices:
        return PASS
    finding = _judge_by_store(image, request, host, fleet) if kind == _FILE_KIND and image.shared is True else None
    if finding is not None and not finding.warnings:
        return finding
    return Finding(warnings=(f"The pool {name} of {_name(image, start=False)} exists on {host.name}, but is not proved to be the same one.",))


def _name(image: DiskImage, start: bool = True) -> str:
    what = {BACKING: "backing file", DATA: "data file"}.get(image.file.role if image.file else "", "image")
    return f"{'The' if start else 'the'} {what} {image.source} of disk {image.disk.target or 'without a target'}"


MIB = 1024**2


class Disk(Rule):
    """Counted in bytes by pool or file system: capacity x ratio, less the used space and what other moves will still copy to it."""

    name = "disk"

    def applies_to(self, request: Request) -> bool:
        """Return whether any disk is copied."""
        return bool(request.copied)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return how many MiB are missing, and where. An unknown location is a warning."""
        needed: dict[StorageLocation, int] = {}
        unknown = []
        for path, size in Guest.from_request(request).copies:
            location = find_location(host.hardware, path) if path else None
            if location is None:
                unknown.append(path or "an unnamed disk")
            else:
                needed[location] = needed.get(location, 0) + size
        short = [reason for reason in (_shortage_text(host, request, location, size) for location, size in needed.items()) if reason]
        warnings = (f"How much space {host.name} has for the copy of {names_text(unknown)} is not known.",) if unknown else ()
        return Finding(" ".join(short) or None, warnings)


def _shortage_text(host: HostState, request: Request, location: StorageLocation, size: int) -> str:
    if size > location.capacity_bytes:
        return f"The copied disks have {_mib_of(size)} MiB, the whole {location.name} has {location.capacity_bytes // MIB} MiB."
    used = location.capacity_bytes - location.available_bytes
    free = int(location.capacity_bytes * host.settings.disk_allocation_ratio) - used - _reserved_bytes(host, request, location)
    if size <= free:
        return ""
    return f"It is {_mib_of(size - free)} MiB short of disk space: {_mib_of(size)} MiB are copied, {max(0, free) // MIB} MiB of the {location.name} are free."


def _reserved_bytes(host: HostState, request: Request, location: StorageLocation) -> int:
    copies = [copy for guest in host.guests.values() if guest.uuid != request.uuid for copy in guest.copies]
    # A copy whose target is not known may go to any location.
    return sum(size for path, size in copies if not path or find_location(host.hardware, path) in (location, None))


def _mib_of(size: int) -> int:
    return -(-size // MIB)


class BootFiles(Rule):
    """Refuses a host on which a boot file was looked for and is missing. Contents are not compared, because the guest's memory already has them.

    A file that this user may not look for is a warning.
    """

    name = "boot_files"

    def applies_to(self, request: Request) -> bool:
        """Return whether the guest has such files."""
        return bool(request.boot_files or request.nvram)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name each absent or unknown file, and the folder of the firmware variables."""
        absent = [f"The {FILE_LABELS.get(file.what, file.what)} {file.path} is not there." for file in request.boot_files if _is_absent(file.path, host)]
        folder = nvram_folder(request.nvram)
        if folder and _is_absent(folder, host):
            absent.append(f"The folder {folder}, where its firmware variables belong, is not there.")
        unknown = _warn_unknown_files(request, host, [*(file.path for file in request.boot_files), *([folder] if folder else [])])
        return Finding(" ".join(absent) or None, unknown) if absent or unknown else PASS


def _warn_unknown_files(request: Request, host: HostState, paths: Iterable[str]) -> tuple[str, ...]:
    """Return a warning if the files could not be looked for with the rights of this user."""
    why = host.hardware.explain_unknown(PATHS)
    unknown = {path for path in paths if path not in host.paths} if why else None
    return (f"Whether {host.name} has {names_text(unknown)}, with which {request.name} boots, is not known: {why}.",) if unknown else ()


def _is_absent(path: str, host: HostState) -> bool:
    return host.paths.get(path) is False


class Secrets(Rule):
    """Refuses a host without a libvirt secret that opens a disk, a device or the TPM of the guest: libvirt would neither receive nor start it there."""

    name = "secrets"

    def applies_to(self, request: Request) -> bool:
        """Return whether the definition refers to any secret."""
        return bool(request.needs.secrets)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name those that are missing. Unknown secrets are a warning."""
        wanted, found = request.needs.secrets or (), host.hardware.secrets
        if found is None:
            return Finding(warnings=(f"Whether {host.name} has the libvirt secrets of {request.name} ({', '.join(wanted)}) is not known.",))
        missing = [name for name in wanted if name not in found]
        return Finding(f"It has no libvirt secret {', '.join(missing)}.") if missing else PASS
