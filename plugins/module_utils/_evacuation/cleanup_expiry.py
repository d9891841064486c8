# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What was put aside on this host, and deleting it once the control node says that it is due.

This host's clock decides nothing: it may have been stepped since a file was put aside.
"""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from .._durable import sync_folder
from .._errors import KvmfleetError
from .locks import LOCKED, probe
from .quarantine import COMPLETE, ROOT, Manifest, Quarantine, read_manifest

Json = t.Dict[str, t.Any]


def list_quarantined(root: str = ROOT) -> Json:
    """Return C(quarantined), C({record, uuid, name, paths}) of all that was put aside whole; and C(kept), manifests that cannot be read, with C(reason)."""
    answer: Json = {"quarantined": [], "kept": []}
    for path in _manifests(root):
        try:
            manifest = read_manifest(path)
        except KvmfleetError as error:
            answer["kept"].append({"record": os.path.basename(path)[: -len(".json")], "reason": error.message})
            continue
        if manifest is not None and manifest["state"] == COMPLETE:
            answer["quarantined"].append(_entry(manifest))
    return answer


def expire(due: t.Sequence[str], in_use: t.Callable[[str], t.Sequence[str]], check: bool, root: str = ROOT) -> Json:
    """Delete what was put aside for these records; C(deleted) and C(kept) (with C(reason)), by record.

    :arg due: IDs of records whose retention is over.
    :arg in_use: names of the domains of this host that use a file.
    :arg check: delete nothing, say what would be.
    """
    answer: Json = {"deleted": [], "kept": []}
    for record in due:
        manifest = Quarantine(record, root).read()
        if manifest is None or manifest["state"] != COMPLETE:
            continue
        reason = _why_kept(manifest, in_use)
        if reason:
            answer["kept"].append({**_entry(manifest), "reason": reason})
            continue
        if not check:
            _delete(manifest, root)
        answer["deleted"].append(_entry(manifest))
    return answer


def _entry(manifest: Manifest) -> Json:
    return {"record": manifest["record"], **manifest["domain"], "paths": [item["to"] for item in manifest["items"]]}


def _manifests(root: str) -> t.List[str]:
    try:
        return [os.path.join(root, name) for name in sorted(os.listdir(root)) if name.endswith(".json")]
    except FileNotFoundError:
        return []


def _why_kept(manifest: Manifest, in_use: t.Callable[[str], t.Sequence[str]]) -> str:
    for item in manifest["items"]:
        path = item["to"]
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return f"{path} is not the regular file that was put there"
        except FileNotFoundError:
            continue
        users = in_use(path)
        if users:
            return f"{path} is used by {', '.join(users)}"
        if probe(path).state == LOCKED:
            return f"a process has {path} open for writing"
    return ""


def _delete(manifest: Manifest, root: str) -> None:
    for path in [*(item["to"] for item in manifest["items"]), *([manifest["definition"]] if manifest["definition"] else [])]:
        folder = os.path.dirname(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            sync_folder(folder)
        # The folder of a record, empty now, and that of its file system where it was the last.
        for place in (folder, os.path.dirname(folder)):
            with contextlib.suppress(OSError):
                if os.path.realpath(place) != os.path.realpath(root):
                    os.rmdir(place)
    Quarantine(manifest["record"], root).mark_deleted()
