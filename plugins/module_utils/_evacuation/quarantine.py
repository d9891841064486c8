# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Files that are put aside instead of deleted: moved within their file system, with a manifest that says what came from where and how to put it back.

The manifest is on disk before the first file is moved, so that a run that died on its way is continued, and nothing is ever forgotten.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import typing as t
import uuid as uuid_module

from .._durable import replace_file, sync_folder
from .._errors import Internal, Unsafe
from .._records.clock import utc_now

ROOT = "/var/lib/kvmfleet/quarantine"
FOLDER = ".kvmfleet-quarantine"
WORKING, COMPLETE, DELETED = "working", "complete", "deleted"
_SCHEMA = 1
_MAX_BYTES = 4 * 1024**2

Manifest = t.Dict[str, t.Any]
Item = t.Dict[str, t.Any]
Step = t.Callable[[str], None]


def _no_step(_name: str) -> None:
    return None


class Quarantine:
    """What is put aside for one record of an evacuation.

    :arg root: the folder of the manifests and definitions, which hold passwords: root's alone.
    :arg step: called with the name of each step after it was made; tests end the process there.
    """

    def __init__(self, record_id: str, root: str = ROOT, step: Step = _no_step) -> None:
        self.record_id = str(uuid_module.UUID(record_id))
        self._root = root
        self._step = step
        self._manifest_file = os.path.join(root, f"{self.record_id}.json")
        self._definition_file = os.path.join(root, self.record_id, "definition.xml")

    def read(self) -> t.Optional[Manifest]:
        """Return the manifest, null where there is none. Raises L(Internal) for a damaged one."""
        return read_manifest(self._manifest_file)

    def begin(self, domain: t.Mapping[str, str], host_id: str, definition: t.Optional[str], items: t.Sequence[Item]) -> Manifest:
        """Write down what is going to be moved, and keep the definition; what an earlier run wrote down stays. Returns the manifest.

        :arg definition: with passwords; null where the domain is not defined here any more.
        :arg items: C({kind, target, from, to}) as L(item) gives them.
        """
        known = self.read()
        if definition is not None:
            self._keep(definition)
        before = known["items"] if known else []
        added = [new for new in items if all(new["to"] != old["to"] for old in before)]
        manifest = {
            "schema": _SCHEMA,
            "record": self.record_id,
            "domain": {"uuid": domain["uuid"], "name": domain["name"]},
            "host_id": host_id,
            "created_at": known["created_at"] if known else utc_now(),
            "definition": self._definition_file if definition is not None else (known or {}).get("definition"),
            "items": [*before, *added],
            "state": known["state"] if known and not added and definition is None else WORKING,
            "completed_at": known["completed_at"] if known else None,
            "restore": (known or {}).get("restore"),
        }
        if manifest != known:
            self._write(manifest)
            self._step("manifest")
        return manifest

    def item(self, kind: str, target: t.Optional[str], path: str, mount: str) -> Item:
        """Return what is written of a file: where it is, and where it is put on the same file system. Raises L(Unsafe) for a target with a slash."""
        if target and "/" in target:
            raise Unsafe(f"{path} cannot be put aside: the definition calls it {target!r}, which is no device.", "Look at the definition.")
        name = f"{target}-{os.path.basename(path)}" if target else os.path.basename(path)
        return {"kind": kind, "target": target, "from": path, "to": os.path.join(mount, FOLDER, self.record_id, name)}

    def move(self, item: Item) -> bool:
        """Put a file aside; return false where that was done before. Raises L(Unsafe) where it cannot be done without losing another, or C(OSError)."""
        source, target = item["from"], item["to"]
        if is_moved(item):
            return False
        if os.path.lexists(target):
            raise Unsafe(f"{source} cannot be put aside: {target} is there already, and is another file.", "Look at both, and remove the wrong one.")
        _own_folder(os.path.dirname(os.path.dirname(target)))
        _own_folder(os.path.dirname(target))
        os.rename(source, target)
        for folder in (os.path.dirname(target), os.path.dirname(source)):
            sync_folder(folder)
        self._step(f"move {item['kind']}")
        return True

    def drop(self, item: Item) -> None:
        """Take a file out of the manifest that could not be moved and is where it was."""
        manifest = t.cast(Manifest, self.read())
        self._write({**manifest, "items": [known for known in manifest["items"] if known["to"] != item["to"]]})

    def finish(self) -> Manifest:
        """Write that all is done, and how it is undone."""
        manifest = t.cast(Manifest, self.read())
        if manifest["state"] == WORKING:
            manifest = {**manifest, "state": COMPLETE, "completed_at": utc_now(), "restore": restore_command(manifest)}
            self._write(manifest)
            self._step("finish")
        return manifest

    def mark_deleted(self) -> None:
        """Write that the files were deleted; what they were stays to be read."""
        self._write({**t.cast(Manifest, self.read()), "state": DELETED, "deleted_at": utc_now(), "definition": None, "restore": None})

    def _keep(self, definition: str) -> None:
        _own_folder(self._root)
        _own_folder(os.path.dirname(self._definition_file))
        replace_file(self._definition_file, definition, 0o600)
        self._step("definition")

    def _write(self, manifest: Manifest) -> None:
        _own_folder(self._root)
        replace_file(self._manifest_file, json.dumps(manifest, indent=2, sort_keys=True) + "\n", 0o600)


def is_moved(item: Item) -> bool:
    """Whether a file is where it was to be put, and there alone."""
    return os.path.lexists(item["to"]) and not os.path.lexists(item["from"])


def restore_command(manifest: Manifest) -> t.Optional[str]:
    """Return the shell command that puts everything back, to be run as root on the host; null where there is nothing to put back.

    It overwrites nothing, and starts nothing.
    """
    steps = []
    for item in manifest["items"]:
        source, target = shlex.quote(item["to"]), shlex.quote(item["from"])
        steps.append(f"test ! -e {target} && mv -T -- {source} {target}")
    if manifest["definition"]:
        steps.append(f"virsh -c qemu:///system define {shlex.quote(manifest['definition'])}")
    return " && ".join(steps) or None


def read_manifest(path: str) -> t.Optional[Manifest]:
    """Return a manifest, null where there is none. Raises L(Internal) for one that was torn or edited."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    with os.fdopen(handle, "rb") as stream:
        try:
            manifest = json.loads(stream.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(path, "it is no JSON") from error
    problem = _problem(manifest, os.path.basename(path)[: -len(".json")], os.path.dirname(path))
    if problem:
        raise _damaged(path, problem)
    return t.cast(Manifest, manifest)


def _problem(manifest: t.Any, record_id: str, root: str) -> str:
    if not isinstance(manifest, dict) or manifest.get("schema") != _SCHEMA or manifest.get("record") != record_id:
        return "it is no manifest of this record"
    if manifest.get("state") not in (WORKING, COMPLETE, DELETED) or not isinstance(manifest.get("items"), list):
        return "it has no proper state or items"
    if not isinstance(manifest.get("domain"), dict) or not isinstance(manifest.get("created_at"), str) or "completed_at" not in manifest:
        return "it lacks the domain or the time"
    if "definition" not in manifest or manifest["definition"] not in (None, os.path.join(root, record_id, "definition.xml")):
        return f"its definition is {manifest.get('definition')!r}"
    wrong = [item for item in manifest["items"] if not _is_item(item, record_id)]
    return f"it names a file that is not in the record's own folder: {wrong[0]!r}" if wrong else ""


def _is_item(item: t.Any, record_id: str) -> bool:
    if not isinstance(item, dict) or not all(isinstance(item.get(key), str) and os.path.isabs(item[key]) for key in ("from", "to")):
        return False
    folder, name = os.path.split(item["to"])
    return os.path.normpath(item["to"]) == item["to"] and bool(name) and folder.endswith(f"/{FOLDER}/{record_id}")


def _damaged(path: str, why: str) -> Internal:
    return Internal(f"{path}, which says what was put aside, cannot be read: {why}. Nothing was touched.", "Look at the file, and repair or remove it.")


def _own_folder(path: str) -> None:
    """Make a folder that only root can enter. Raises L(Unsafe) where something else has that name."""
    try:
        os.makedirs(path, mode=0o700)
        sync_folder(os.path.dirname(path))
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Unsafe(f"{path} is not a folder of root's own. Nothing was put there.", "Look at what it is, and remove it.") from None
        os.chmod(path, 0o700)
