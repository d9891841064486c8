# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The quarantine: files are moved within their file system instead of being deleted, listed, and deleted when the control node reports them as due.

A manifest lists where each file came from and how to restore it. It is on disk before the first file is moved, so that an interrupted run can be continued
and every file can be found. The clock of this host is not used, because it may have been stepped since a file was moved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import stat
import typing as t
import uuid as uuid_module

from .._facts.mounts import read_mounts
from .._files import replace_file, sync_folder
from .._model.cleanup import (
    COMPLETE,
    DELETED,
    QUARANTINE_SCHEMA,
    WORKING,
    QuarantinedFile,
    QuarantineEntry,
    QuarantineExpiry,
    QuarantineListing,
    QuarantineManifest,
)
from .._model.clock import utc_now
from .._model.codec import ABSENT, ShapeError, decode, encode
from .._model.errors import Internal, KvmfleetError, Unsafe
from .._model.references import DomainRef
from .qemu_locks import LOCKED, probe_lock

QUARANTINE_ROOT = "/var/lib/kvmfleet/quarantine"
QUARANTINE_FOLDER = ".kvmfleet-quarantine"
_MAX_BYTES = 4 * 1024**2

Step = t.Callable[[str], None]


def _skip_step(_name: str) -> None:
    return None


class Quarantine:
    """The quarantine of one record of an evacuation.

    :arg root: the folder of the manifests and definitions, which contain passwords: only root may read them.
    :arg step: called with the name of each step after the step; tests end the process at that point.
    """

    def __init__(self, record_id: str, root: str = QUARANTINE_ROOT, step: Step = _skip_step) -> None:
        self.record_id = str(uuid_module.UUID(record_id))
        self._root = root
        self._step = step
        self._manifest_file = os.path.join(root, f"{self.record_id}.json")
        self._definition_file = os.path.join(root, self.record_id, "definition.xml")

    def read_manifest(self) -> t.Optional[QuarantineManifest]:
        """Return the manifest; null if the file does not exist. Raises L(Internal) if it is damaged."""
        return read_manifest(self._manifest_file)

    def record_files(self, domain: DomainRef, host_id: str, definition: t.Optional[str], files: t.Sequence[QuarantinedFile]) -> QuarantineManifest:
        """Write the list of files to move, and keep the definition; entries of an earlier run stay. Returns the manifest.

        :arg definition: with passwords; null if the domain is no longer defined on this host.
        :arg files: as L(locate_file) gives them.
        """
        known = self.read_manifest()
        if definition is not None:
            self._keep_definition(definition)
        base = dataclasses.replace(known or self._new_manifest(domain, host_id), domain=domain, host_id=host_id)
        manifest = self._add_files(base, files, definition is not None)
        if manifest != known:
            self._write_manifest(manifest)
            self._step("manifest")
        return manifest

    def _new_manifest(self, domain: DomainRef, host_id: str) -> QuarantineManifest:
        return QuarantineManifest(QUARANTINE_SCHEMA, self.record_id, domain, host_id, utc_now(), None, (), WORKING, completed_at=None, restore=None)

    def _add_files(self, base: QuarantineManifest, files: t.Sequence[QuarantinedFile], has_definition: bool) -> QuarantineManifest:
        known = {file.destination for file in base.items}
        added = [file for file in files if file.destination not in known]
        if not added and not has_definition:
            return base
        definition = self._definition_file if has_definition else base.definition
        return dataclasses.replace(base, definition=definition, items=(*base.items, *added), state=WORKING, deleted_at=ABSENT)

    def locate_file(self, kind: str, target: t.Optional[str], path: str, mount: str) -> QuarantinedFile:
        """Return the path of a file, and its path in quarantine on the same file system. Raises L(Unsafe) for a target with a slash."""
        if target and "/" in target:
            raise Unsafe(
                f"{path} cannot be moved to quarantine: the definition calls it {target!r}, which is not the name of a device.", "Check the definition."
            )
        name = f"{target}-{os.path.basename(path)}" if target else os.path.basename(path)
        return QuarantinedFile(kind, target, path, os.path.join(mount, QUARANTINE_FOLDER, self.record_id, name))

    def move_file(self, file: QuarantinedFile) -> bool:
        """Move a file to quarantine; return false if that was done before. Raises L(Unsafe) if another file would be lost, or C(OSError)."""
        source, target = file.source, file.destination
        if is_moved(file):
            return False
        if os.path.lexists(target):
            raise Unsafe(
                f"{source} cannot be moved to quarantine: {target} already exists, and is another file.", "Compare both files, and remove the wrong one."
            )
        _own_folder(os.path.dirname(os.path.dirname(target)))
        _own_folder(os.path.dirname(target))
        os.rename(source, target)
        for folder in (os.path.dirname(target), os.path.dirname(source)):
            sync_folder(folder)
        self._step(f"move {file.kind}")
        return True

    def drop_file(self, file: QuarantinedFile) -> None:
        """Remove from the manifest a file that could not be moved and is still at its original path."""
        manifest = self._require_manifest()
        self._write_manifest(dataclasses.replace(manifest, items=tuple(known for known in manifest.items if known.destination != file.destination)))

    def mark_complete(self) -> QuarantineManifest:
        """Write that the quarantine is complete, and how to undo it."""
        manifest = self._require_manifest()
        if manifest.state == WORKING:
            manifest = dataclasses.replace(manifest, state=COMPLETE, completed_at=utc_now(), restore=restore_command(manifest))
            self._write_manifest(manifest)
            self._step("finish")
        return manifest

    def mark_deleted(self) -> None:
        """Write that the files were deleted; their list stays readable."""
        self._write_manifest(dataclasses.replace(self._require_manifest(), state=DELETED, deleted_at=utc_now(), definition=None, restore=None))

    def _require_manifest(self) -> QuarantineManifest:
        manifest = self.read_manifest()
        if manifest is None:
            raise Internal(f"{self._manifest_file}, which lists the files in quarantine, is missing.", "Check the folder, then run the task again.")
        return manifest

    def _keep_definition(self, definition: str) -> None:
        _own_folder(self._root)
        _own_folder(os.path.dirname(self._definition_file))
        replace_file(self._definition_file, definition, 0o600)
        self._step("definition")

    def _write_manifest(self, manifest: QuarantineManifest) -> None:
        _own_folder(self._root)
        replace_file(self._manifest_file, json.dumps(encode(manifest), indent=2, sort_keys=True) + "\n", 0o600)


def is_moved(file: QuarantinedFile) -> bool:
    """Whether a file is only in quarantine."""
    return os.path.lexists(file.destination) and not os.path.lexists(file.source)


def find_unmounted(file: QuarantinedFile, mounts: t.Container[str]) -> t.Optional[str]:
    """Return the mount point of a file that is at neither of its paths because its file system is not mounted; null for any other file.

    :arg mounts: the mount points of this host.
    """
    mount = os.path.dirname(os.path.dirname(os.path.dirname(file.destination)))
    is_there = os.path.lexists(file.destination) or os.path.lexists(file.source)
    return None if is_there or mount in mounts else mount


def restore_command(manifest: QuarantineManifest) -> t.Optional[str]:
    """Return the shell command that restores everything, to be run as root on the host; null if there is nothing to restore.

    The command overwrites no file and starts no domain.
    """
    steps = []
    for file in manifest.items:
        source, target = shlex.quote(file.destination), shlex.quote(file.source)
        steps.append(f"test ! -e {target} && mv -T -- {source} {target}")
    if manifest.definition:
        steps.append(f"virsh -c qemu:///system define {shlex.quote(manifest.definition)}")
    return " && ".join(steps) or None


def read_manifest(path: str) -> t.Optional[QuarantineManifest]:
    """Return a manifest; null if the file does not exist. Raises L(Internal) if it is torn or edited."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged_manifest(path, error.strerror or str(error)) from error
    with os.fdopen(handle, "rb") as stream:
        try:
            document = json.loads(stream.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged_manifest(path, "it is not JSON") from error
    try:
        manifest = decode(QuarantineManifest, document)
    except ShapeError as error:
        raise _damaged_manifest(path, str(error)) from error
    problem = _find_manifest_problem(manifest, os.path.basename(path)[: -len(".json")], os.path.dirname(path))
    if problem:
        raise _damaged_manifest(path, problem)
    return manifest


def _find_manifest_problem(manifest: QuarantineManifest, record_id: str, root: str) -> str:
    if manifest.record != record_id:
        return f"it is the manifest of another record ({manifest.record})"
    if manifest.definition not in (None, os.path.join(root, record_id, "definition.xml")):
        return f"its definition is {manifest.definition!r}"
    wrong = [file for file in manifest.items if not _is_inside(file.destination, record_id)]
    return f"it names a file that is not in the folder of its record: {wrong[0].destination!r}" if wrong else ""


def _is_inside(path: str, record_id: str) -> bool:
    folder, name = os.path.split(path)
    return os.path.normpath(path) == path and bool(name) and folder.endswith(f"/{QUARANTINE_FOLDER}/{record_id}")


def _damaged_manifest(path: str, why: str) -> Internal:
    return Internal(f"{path}, which lists the files in quarantine, cannot be read: {why}. Nothing was touched.", "Check the file, and repair or remove it.")


def _own_folder(path: str) -> None:
    """Make a folder that only root can enter. Raises L(Unsafe) if something else has that name."""
    try:
        os.makedirs(path, mode=0o700)
        sync_folder(os.path.dirname(path))
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Unsafe(f"{path} is not a folder that root owns. Nothing was moved there.", "Find out what it is, then remove it.") from None
        os.chmod(path, 0o700)


def list_quarantined(root: str = QUARANTINE_ROOT) -> QuarantineListing:
    """Return all complete quarantines, and the manifests that cannot be read."""
    quarantined, kept = [], []
    for path in _list_manifests(root):
        try:
            manifest = read_manifest(path)
        except KvmfleetError as error:
            kept.append(QuarantineEntry(os.path.basename(path)[: -len(".json")], reason=error.message))
            continue
        if manifest is not None and manifest.state == COMPLETE:
            quarantined.append(_build_entry(manifest))
    return QuarantineListing(tuple(quarantined), tuple(kept))


def expire_quarantine(due: t.Sequence[str], in_use: t.Callable[[str], t.Sequence[str]], check: bool, root: str = QUARANTINE_ROOT) -> QuarantineExpiry:
    """Delete the quarantines of these records; return what was deleted, and what was kept.

    :arg due: IDs of records whose retention is over.
    :arg in_use: names of the domains of this host that use a file.
    :arg check: delete nothing, and return what would be deleted.
    """
    deleted, kept = [], []
    for record in due:
        manifest = Quarantine(record, root).read_manifest()
        if manifest is None or manifest.state != COMPLETE:
            continue
        reason = _explain_kept_files(manifest, in_use)
        if reason:
            kept.append(dataclasses.replace(_build_entry(manifest), reason=reason))
            continue
        if not check:
            _delete_files(manifest, root)
        deleted.append(_build_entry(manifest))
    return QuarantineExpiry(tuple(deleted), tuple(kept))


def _build_entry(manifest: QuarantineManifest) -> QuarantineEntry:
    return QuarantineEntry(manifest.record, manifest.domain.uuid, manifest.domain.name, tuple(file.destination for file in manifest.items))


def _list_manifests(root: str) -> t.List[str]:
    try:
        return [os.path.join(root, name) for name in sorted(os.listdir(root)) if name.endswith(".json")]
    except FileNotFoundError:
        return []


def _explain_kept_files(manifest: QuarantineManifest, in_use: t.Callable[[str], t.Sequence[str]]) -> str:
    for file in manifest.items:
        path = file.destination
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return f"{path} is not the regular file that was put there"
        except FileNotFoundError:
            mount = find_unmounted(file, {mount.path for mount in read_mounts()})
            if mount:
                return f"{path} is not there, and {mount} is not mounted"
            continue
        users = in_use(path)
        if users:
            return f"{path} is used by {', '.join(users)}"
        if probe_lock(path).state == LOCKED:
            return f"a process has {path} open for writing"
    return ""


def _delete_files(manifest: QuarantineManifest, root: str) -> None:
    for path in [*(file.destination for file in manifest.items), *([manifest.definition] if manifest.definition else [])]:
        folder = os.path.dirname(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            sync_folder(folder)
        # The folder of the record, which is empty now, and the folder on its file system if that was the last record.
        for parent in (folder, os.path.dirname(folder)):
            with contextlib.suppress(OSError):
                if os.path.realpath(parent) != os.path.realpath(root):
                    os.rmdir(parent)
    Quarantine(manifest.record, root).mark_deleted()
