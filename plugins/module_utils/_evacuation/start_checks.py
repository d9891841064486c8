# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Checks before a domain of a dead host is started on this host: the saved definition is its own, and this host sees the disks and files that it names.

The ledger may be a folder of files that anybody can edit. Disks and files are proved by tokens and identities that were read while all hosts were healthy.
"""

from __future__ import annotations

import functools
import os
import stat
import typing as t
from xml.etree import ElementTree

from .._facts.disks import list_files_below
from .._facts.image_header import RAW, Unreadable
from .._facts.storage_queries import STORAGE_SECONDS, StorageQueries
from .._model.codec import Absent
from .._model.definition_files import BACKING, DATA, Pools, describe_file, source_of
from .._model.domain_states import SHUTOFF
from .._model.errors import NotSupported, Unsafe
from .._model.libvirt_formats import NotXml, parse_libvirt_xml, parse_xml
from .._model.requests import DomainRequest
from .._model.saved_domains import HostTokens, RestartOrder, SavedDisk, SavedFile
from . import images, qemu_locks
from .images import VOLUME, ImageLocator, locate_saved_volume

# What earlier releases of Ubuntu, Debian and Fedora called their QEMU in definitions. Their packages still have these names; libvirt no longer lists them.
_OLDER_EMULATORS = ("/usr/bin/kvm", "/usr/bin/kvm-spice", "/usr/bin/qemu-kvm")


def check_definition(order: RestartOrder, emulators: t.Collection[str], list_pools: t.Callable[[], Pools]) -> None:
    """Raise L(Unsafe) unless the definition is one of this domain, with exactly the disks that were proved.

    :arg emulators: the programs that this host runs guests with.
    :arg list_pools: returns the pools of this host; called for a domain with a volume. libvirt opens what its own pool of that name has.
    """
    root = _parse_definition(order)
    found_uuid, found_name = (root.findtext("uuid") or "").strip().lower(), root.findtext("name") or ""
    for what, found, wanted in (("UUID", found_uuid, order.uuid), ("name", found_name, order.name)):
        if found != wanted:
            raise _unusable_definition(order, f"it belongs to a domain with the {what} {found[:80]!r}")
    emulator = (root.findtext("devices/emulator") or "").strip()
    if root.find("devices/emulator") is not None and not _has_emulator(emulator, emulators):
        raise _unusable_definition(order, f"its emulator is {emulator[:80]!r}, which this host does not have ({', '.join(emulators)})")
    volumes = {_read_target(disk): source_of(disk.find("source")) for disk in root.findall("devices/disk[@type='volume']")}
    there = sorted((_read_target(disk), source_of(disk.find("source"))) for disk in root.findall("devices/disk"))
    if there != sorted((target, source) for target, source in order.sources):
        raise _unusable_definition(order, f"its disks are {_format_disks(there)}, not those that were saved with it: {_format_disks(order.sources)}")
    proved = {disk.target: disk for disk in order.disks}
    # A volume was saved as its file or device in the pool.
    strange = [target for target, source in there if target not in proved or (proved[target].path != source and target not in volumes)]
    if strange or len(proved) != len(there):
        raise _unusable_definition(order, f"the proved disks are not those of the definition: they differ in {', '.join(strange) or 'all of them'}")
    others = find_other_volumes(order.disks, volumes, list_pools()) if volumes else {}
    if others:
        raise _unusable_definition(order, "; ".join(f"its {what} is {why}" for what, why in sorted(others.items())))


def _has_emulator(path: str, emulators: t.Collection[str]) -> bool:
    return path in emulators or (path in _OLDER_EMULATORS and os.access(path, os.X_OK))


def find_other_volumes(disks: t.Iterable[SavedDisk], volumes: t.Mapping[str, str], pools: Pools) -> t.Dict[str, str]:
    """Return, by the name for messages, each volume that is not the saved file, device or image of the network in the pools of this host.

    :arg volumes: C(pool/volume) of each disk of that kind, by target.
    """
    named = [(disk, volumes[disk.target]) for disk in disks if disk.target in volumes]
    reasons = {f"disk {disk.target}": _explain_other_volume(disk, volume, pools) for disk, volume in named}
    return {what: why for what, why in reasons.items() if why}


def list_volumes(request: DomainRequest) -> t.Dict[str, str]:
    """Return C(pool/volume) of each disk that is a volume, by target."""
    return {disk.target: disk.source or "" for disk in request.disks or () if disk.kind == VOLUME}


def _explain_other_volume(disk: SavedDisk, volume: str, pools: Pools) -> str:
    kind, path = locate_saved_volume(volume, pools)
    if (kind, os.path.normpath(path)) == (disk.kind, os.path.normpath(disk.path)):
        return ""
    found = f"the {kind} {path} on this host" if path else "in a pool that this host does not have, or that is not active"
    return f"the volume {volume}, which is {found}, not the {disk.kind} {disk.path} that was proved"


def _parse_definition(order: RestartOrder) -> ElementTree.Element:
    text = order.definition
    if not text or not text.strip():
        raise _unusable_definition(order, "there is none")
    try:
        root = parse_xml(text)
    except NotXml as error:
        raise _unusable_definition(order, str(error)) from error
    if root.tag != "domain":
        raise _unusable_definition(order, f"it is not a domain but {root.tag[:80]!r}")
    return root


def _read_target(disk: ElementTree.Element) -> str:
    target = disk.find("target")
    return target.get("dev", "") if target is not None else ""


def _format_disks(disks: t.Iterable[t.Sequence[str]]) -> str:
    return ", ".join(f"{target} on {source[:200] or 'nothing'}" for target, source in disks) or "none"


def _unusable_definition(order: RestartOrder, why: str) -> Unsafe:
    return Unsafe(
        f"The saved definition of domain {order.name} ({order.uuid}) cannot be used: {why}. It was not started.",
        "See its document in the ledger; protect the host that has the domain again once it is back.",
    )


# What an older libvirt drops of a definition, without an error. It then starts the guest with fresh variables or a fresh TPM, or writes over variables in
# qcow2, which it takes for raw.
_FORMATS = ("os/loader", "os/nvram")
_SOURCES = ("os/nvram/source", "os/varstore", "devices/tpm/backend/source")


def check_kept(order: RestartOrder, definition: str) -> None:
    """Raise L(NotSupported) if the definition that this host has now lacks where firmware and TPM keep their state, or its format.

    An earlier run may have defined it with other names: resource maps may have changed since.
    """
    there = _list_state(parse_libvirt_xml(definition, "a domain definition"))
    lost = [what for what in _list_state(_parse_definition(order)) if what not in there]
    if lost:
        raise NotSupported(
            f"Domain {order.name} ({order.uuid}) was not started: the libvirt of this host does not keep {' and '.join(lost)} of its definition.",
            "Update libvirt on this host, or choose one with a later libvirt.",
        )


def _list_state(root: ElementTree.Element) -> t.List[str]:
    """Return where firmware and TPM keep their state, and formats other than raw: what the definition has of this, without values."""
    formats = {f"{path}/@format": element.get("format", RAW) for path, element in ((path, root.find(path)) for path in _FORMATS) if element is not None}
    sources = {path: source_of(root.find(path)) for path in _SOURCES}
    return [what for what, value in {**formats, **sources}.items() if value not in ("", RAW)]


_BLOCK, _NETWORK, _FILE = "block", "network", "file"

Image = t.Union[SavedDisk, SavedFile]


class WantedDomain(t.Protocol):
    """What a host must have before it starts a domain; see L(RestartOrder)."""

    @property
    def disks(self) -> t.Tuple[SavedDisk, ...]:
        """Its disks, as they were saved."""

    @property
    def files(self) -> t.Tuple[SavedFile, ...]:
        """The proved files that it needs in addition to its disks."""

    @property
    def fresh(self) -> t.Tuple[str, ...]:
        """The paths of files that the start has to create."""

    @property
    def tokens(self) -> HostTokens:
        """The tokens of the host that the domain was saved on."""

    @property
    def wanted(self) -> t.Union[str, Absent]:
        """The state that it is to have."""


def find_unproved(domain: WantedDomain, locator: t.Optional[ImageLocator] = None) -> t.Dict[str, str]:
    """Return, by the name for messages, why a disk or file that a start would use is not proved to be the saved one; empty if all are.

    :arg locator: one for all domains that are asked about together, because it waits only a few times for a file system that does not answer.
    """
    locator = locator or ImageLocator()
    disks = find_unproved_disks(domain.disks, domain.tokens, locator, starts=domain.wanted != SHUTOFF)
    return {
        **{f"disk {target}": why for target, why in disks.items()},
        **find_unproved_files(domain.files, domain.tokens, locator),
        **find_stale_files(domain.fresh, locator.storage),
    }


def find_unproved_disks(disks: t.Iterable[SavedDisk], tokens_of_host: HostTokens, locator: ImageLocator, starts: bool = True) -> t.Dict[str, str]:
    """Return, by target, why a disk that the start would use is not proved to be that of the saved definition; empty if all are.

    :arg tokens_of_host: those of the host that the domain was saved on.
    :arg starts: false for a domain that stays off, which may be the template of later images.
    """
    storage = locator.storage
    reasons = {
        disk.target: _explain_unproved(disk, tokens_of_host, locator)
        or _explain_new_backing(disk, storage)
        or (_explain_later_image(disk, storage) if starts else "")
        for disk in disks
        if _is_used(disk, storage)
    }
    return {target: why for target, why in reasons.items() if why}


def _is_used(disk: SavedDisk, storage: StorageQueries) -> bool:
    """Whether the start would use the disk, or whatever has its path here. Of the disks that libvirt may leave out, it leaves out those that do not exist.

    A read-only one may be another one: the guest can do without it, and cannot write to it.
    """
    if disk.is_needed or not disk.path or disk.readonly:
        return disk.is_needed
    return not disk.path.startswith("/") or storage.path_exists(disk.path) is not False


def find_unproved_files(files: t.Iterable[SavedFile], tokens_of_host: HostTokens, locator: ImageLocator) -> t.Dict[str, str]:
    """Return, by name, why a file that a domain needs in addition to its disks is not proved to be the one that was saved; empty if all are."""
    reasons = {
        describe_file(file.what, file.path): _explain_unproved(file, tokens_of_host, locator) or _explain_absence(file, locator.storage) for file in files
    }
    return {name: why for name, why in reasons.items() if why}


def find_stale_files(paths: t.Iterable[str], storage: StorageQueries) -> t.Dict[str, str]:
    """Return, by path, why a start would not create a fresh file: one exists already, from an earlier stay or of another owner, or may exist."""
    found = {path: storage.path_exists(path) for path in paths}
    exists = "it already exists on this host, and would be used instead of a fresh one: move it away"
    return {path: exists if there else f"{_SILENT} whether it already exists on this host" for path, there in found.items() if there is not False}


# Of a question that was asked too late, or not at all.
_SILENT = "its file system does not answer, so that it is not known"


def _explain_absence(file: SavedFile, storage: StorageQueries) -> str:
    # libvirt creates missing firmware variables, and QEMU missing persistent memory.
    if not file.is_expected or (exists := storage.path_exists(file.path)):
        return ""
    return f"{_SILENT} whether it still exists" if exists is None else "it no longer exists on this host"


def _explain_unproved(image: Image, tokens_of_host: HostTokens, locator: ImageLocator) -> str:
    missing = [folder for folder in image.folders if not _is_token_seen(folder, tokens_of_host, locator.storage)]
    if missing:
        late = [folder for folder in missing if locator.storage.was_late(folder)]
        also = f" (the file system of {', '.join(late)} does not answer)" if late else ""
        return f"the token that its host left in {', '.join(missing)} is not visible on this host{also}"
    lacking = [wwn or path for path, wwn in _required_devices(image).items() if not wwn or locator.find_device_identity(path) != wwn]
    if lacking:
        return f"the device {', '.join(lacking)} is not on this host"
    if isinstance(image, SavedDisk) and image.is_served_locally:
        return "it is served by its own host: what this host has under that name may be another image"
    if not (image.folders or image.kind in (_BLOCK, _NETWORK)):
        return f"a disk of the kind {image.kind!r} cannot be proved to be the same one on this host"
    return ""


def _required_devices(image: Image) -> t.Dict[str, t.Optional[str]]:
    """Return the identity of each device that this host must have."""
    below = image.backing_devices if isinstance(image, SavedDisk) else None
    own = {image.path: image.wwn or None} if image.kind == _BLOCK else {}
    return {**(below or {}), **own}


def _explain_new_backing(disk: SavedDisk, storage: StorageQueries) -> str:
    """Return the backing files that the image has now and did not have when it was saved: they are not proved."""
    if disk.kind not in (_FILE, _BLOCK) or not disk.format or disk.format == RAW:
        return ""
    known = {*(disk.backing or ()), *(disk.backing_devices or ())}
    files = storage.ask(disk.path, lambda: _list_backing_files(disk.path))
    if files is None:
        return _explain_silence(disk, storage)
    others = sorted(set(files) - known)
    return f"it is built on {', '.join(others)} now, which was not proved when it was saved" if others else ""


def _explain_silence(disk: SavedDisk, storage: StorageQueries) -> str:
    """Return why an image whose content could not be read may be an old one; empty if its file system has answered, with an error that a start meets, too."""
    return f"{_SILENT} whether a snapshot was made or merged since it was saved" if storage.was_late(disk.path) else ""


def _explain_later_image(disk: SavedDisk, storage: StorageQueries) -> str:
    """Return which image of its chain the guest has written after this one: a snapshot was made or merged since the disk was saved.

    Only overlays whose names begin like the image are found, as libvirt and backup programs name them: a folder may have thousands of images.
    """
    if disk.kind != _FILE or disk.readonly or disk.shareable:
        return ""
    later = storage.ask(disk.path, lambda: _find_later_base(disk) or _find_later_overlay(disk.path))
    return _explain_silence(disk, storage) if later is None else later


def _find_later_base(disk: SavedDisk) -> str:
    if not disk.format or disk.format == RAW:
        return ""
    try:
        files = list_files_below(disk.path)
    except Unreadable:
        return ""
    # The bytes of an image may be in an external data file.
    written = max(_last_write(path) for path in [disk.path, *(file.path for file in files if file.role == DATA)])
    base = next((file.path for file in files if file.role == BACKING and file.kind == _FILE and _last_write(file.path) > written), "")
    return f"its base {base} was written later: a snapshot was merged since it was saved. If this is not so, touch {disk.path}" if base else ""


def _find_later_overlay(path: str) -> str:
    folder, name = os.path.split(path)
    begin, written = name.partition(".")[0], _last_write(path)
    beside = [os.path.join(folder, other) for other in os.listdir(folder) if other != name and other.startswith(begin)]
    later = sorted((at, other) for other in beside if (at := _last_write(other)) > written)
    overlay = next((other for _at, other in reversed(later) if _is_built_on(other, path)), "")
    return f"{overlay} is built on it and was written later: a snapshot was made since it was saved. If it is not needed, move it away" if overlay else ""


def _is_built_on(overlay: str, path: str) -> bool:
    # One path can be written in many ways, with links and double slashes.
    real = os.path.realpath(path)
    return any(os.path.realpath(file) == real for file in _list_backing_files(overlay))


def _last_write(path: str) -> int:
    """Return when a regular file was written last, in nanoseconds; 0 for anything else."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else 0


def _list_backing_files(path: str) -> t.List[str]:
    try:
        return [file.path for file in list_files_below(path) if file.path]
    except Unreadable:
        return []


def _is_token_seen(folder: str, tokens_of_host: HostTokens, storage: StorageQueries) -> bool:
    nonce = tokens_of_host.folders.get(folder)
    return bool(nonce) and bool(storage.ask(folder, lambda: images.is_token_seen(folder, tokens_of_host.host_id, str(nonce))))


def read_lock_states(paths: t.Iterable[str], may_take: bool, storage: t.Optional[StorageQueries] = None) -> t.Dict[str, t.Dict[str, str]]:
    """Return C(state) (L(LOCKED), L(FREE), L(UNPROVABLE)) and C(why) of each image.

    :arg may_take: true only when the host that had the images is proved to be off; see L(probe_lock).
    """
    storage = storage or StorageQueries()
    silent = qemu_locks.LockFinding(qemu_locks.UNPROVABLE, f"its file system did not answer within {STORAGE_SECONDS:.0f} s")
    probes = {path: functools.partial(qemu_locks.probe_lock, path, may_take) for path in sorted(set(paths))}
    found = {path: storage.ask(path, probe) or silent for path, probe in probes.items()}
    return {path: {"state": finding.state, "why": finding.why} for path, finding in found.items()}
