# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether this host sees a dead host's disks now, by the tokens and identities that were read while all was well."""

from __future__ import annotations

import os
import typing as t

from .._facts.image_files import files_below
from .._facts.image_header import RAW, Unreadable
from .._facts.needed_files import name_of
from .._patience import within
from . import locks, tokens
from .images import PATIENCE_SECONDS, Images

Json = t.Mapping[str, t.Any]

_NETWORK, _BLOCK, _FILE = "network", "block", "file"


def is_needed(disk: Json) -> bool:
    """Whether a domain cannot be started without the disk; an empty drive and one that libvirt may leave out can be missing."""
    return bool((disk["path"] and not disk["optional"]) or disk["kind"] == "volume")


def why_unseen(domain: Json) -> t.Dict[str, str]:
    """Return, by what a message calls it, why what a start would use is not what the saved definition means; empty where all is.

    :arg domain: C(disks), C(files), C(fresh) and C(tokens), see L(Restart).
    """
    disks = {f"disk {target}": why for target, why in unseen(domain["disks"], domain["tokens"]).items()}
    return {**disks, **unseen_files(domain.get("files") or (), domain["tokens"]), **stale_files(domain.get("fresh") or ())}


def unseen(disks: t.Sequence[Json], given: Json) -> t.Dict[str, str]:
    """Return, by target, why a needed disk is not proved to be the one that the saved definition means; empty where all are.

    :arg given: C(host_id) of the host that the domain was saved on, and C(folders), its tokens.
    """
    images = Images()
    reasons = {disk["target"]: _unseen(disk, given, images) for disk in disks if is_needed(disk)}
    return {target: why for target, why in reasons.items() if why}


def is_everywhere(image: Json) -> bool:
    """Whether every host sees an image by its nature: one of the network that is built on nothing of its host."""
    return bool(image["kind"] == _NETWORK and not (image["folders"] or image.get("backing_devices") or image.get("backing_problem")))


def unseen_files(files: t.Sequence[Json], given: Json) -> t.Dict[str, str]:
    """Return, by name, why a file that a domain needs beside its disks is not proved to be the one that was saved; empty where all are.

    :arg files: as the ledger keeps them, see L(Images.files).
    """
    images = Images()
    reasons = {name_of(file): _unseen(file, given, images) or _absent(file) for file in files}
    return {name: why for name, why in reasons.items() if why}


def stale_files(paths: t.Iterable[str]) -> t.Dict[str, str]:
    """Return, by path, why a file that is to be made afresh by a start would not be: there is one already, from an earlier stay or of somebody else."""
    return {path: "it is here already, and would be used in place of a fresh one: move it away" for path in paths if _is_there(path)}


def _absent(file: Json) -> str:
    # Libvirt makes firmware variables that are missing, and QEMU persistent memory.
    is_kept = file["kind"] in ("file", "dir") and file.get("present", True)
    return "it is not here any more" if is_kept and not _is_there(file["path"]) else ""


def _is_there(path: str) -> bool:
    return bool(within(PATIENCE_SECONDS, lambda: os.path.lexists(path)))


def _unseen(disk: Json, given: Json, images: Images) -> str:
    missing = [folder for folder in disk["folders"] if not _sees(folder, given)]
    if missing:
        return f"the token that its host left in {', '.join(missing)} is not seen here"
    wanted = {**(disk.get("backing_devices") or {}), **({disk["path"]: disk["wwn"]} if disk["kind"] == _BLOCK else {})}
    lacking = [wwn or path for path, wwn in wanted.items() if not wwn or images.identity_of(path) != wwn]
    if lacking:
        return f"the device {', '.join(lacking)} is not here"
    if not (disk["folders"] or disk["kind"] in (_BLOCK, _NETWORK)):
        return f"of a disk of the kind {disk['kind']!r} it cannot be proved that it is the same one here"
    return _built_on_another(disk)


def _built_on_another(disk: Json) -> str:
    """Say what the image is built on now that was not there when it was saved: that was proved by nobody."""
    if disk["kind"] != _FILE or disk.get("format") in (None, RAW):
        return ""
    known = {*disk.get("backing", ()), *(disk.get("backing_devices") or ())}
    others = sorted(set(within(PATIENCE_SECONDS, lambda: _files_now(disk["path"])) or ()) - known)
    return f"it is built on {', '.join(others)} now, which was not so when it was saved" if others else ""


def _files_now(path: str) -> t.List[str]:
    try:
        return [file.path for file in files_below(path) if file.path]
    except Unreadable:
        return []


def _sees(folder: str, given: Json) -> bool:
    nonce = given["folders"].get(folder)
    return bool(nonce) and bool(within(PATIENCE_SECONDS, lambda: tokens.is_seen(folder, given["host_id"], nonce)))


def lock_states(paths: t.Iterable[str], may_take: bool) -> t.Dict[str, t.Dict[str, str]]:
    """Return C(state) (L(LOCKED), L(FREE), L(UNPROVABLE)) and C(why) of each image.

    :arg may_take: true only when the host that had the images is proved to be off; see L(probe).
    """
    silent = locks.LockFinding(locks.UNPROVABLE, f"its file system did not answer within {PATIENCE_SECONDS:.0f} s")
    found = {path: within(PATIENCE_SECONDS, lambda path=path: locks.probe(path, may_take)) or silent for path in sorted(set(paths))}  # type: ignore[misc]
    return {path: {"state": finding.state, "why": finding.why} for path, finding in found.items()}


def lockable(disks: t.Iterable[Json]) -> t.List[str]:
    """Return the paths of the images that QEMU locks against all other writers; of a C(shareable) disk a lock says nothing."""
    return [disk["path"] for disk in disks if disk["path"].startswith("/") and not (disk["readonly"] or disk.get("shareable"))]
