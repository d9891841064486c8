# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decides whether the copy that an evacuation left on its returned source may be removed, and which of its disks. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._model.cleanup import DiskVerdict
from .._model.definition_files import SEPARATE, SHARED
from .._model.saved_domains import SavedDisk, SavedMount

CLEAN = "clean"
REFUSE = "refuse"
ALARM = "alarm"
# A newer record has brought the domain back, so it is not a leftover.
SUPERSEDED = "superseded"


@dataclass(frozen=True)
class LocalCopy:
    """The domain as this host has it. C(blocker) states why libvirt cannot undefine it without loss."""

    present: bool
    active: bool = False
    blocker: str = ""


@dataclass(frozen=True)
class OtherCopies:
    """Names of the other hosts on which the domain is C(active) or C(defined) (active ones included), or C(expected) according to the ledger.

    C(silent) are those that did not answer: name to why, a sentence.
    """

    active: t.Sequence[str] = ()
    defined: t.Sequence[str] = ()
    silent: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected: t.Sequence[str] = ()


@dataclass(frozen=True)
class CopyVerdict:
    """C(kind) and C(reason), a part of a sentence; C(where) is the host that has the domain now."""

    kind: str
    reason: str = ""
    where: t.Optional[str] = None


def judge_copy(
    copy: LocalCopy, others: OtherCopies, defined_only: bool = False, came_back: bool = False, fenced: bool = False, missing: bool = False
) -> CopyVerdict:
    """Return what to do with the copy on this host.

    :arg defined_only: whether the evacuation was to define the domain, not to start it: then one definition elsewhere is enough.
    :arg came_back: whether a record that is newer than the evacuation has brought the domain back to this host.
    :arg fenced: whether each host that the domain may be on is fenced, and the ledger has its definition. If all of them are silent, the domain can only be
      started by that definition, and not where an old one is left.
    :arg missing: whether the only host that the domain may be on did not have it any more when it was protected last.
    """
    if copy.active:
        return _judge_active(others, came_back)
    # If nothing is left here, nothing can be lost here: its owner may have switched it off where it is now, and a third host may have a leftover.
    where = _find_only_host(others, defined_only) if copy.present else _find_owner(others)
    if came_back:
        return _judge_returned(others)
    is_on_silent = fenced and where is None and not others.active and not others.expected
    is_deleted = missing and not copy.present and not others.defined
    if where is None and not (is_on_silent or is_deleted):
        return CopyVerdict(REFUSE, _explain_no_host(copy, others, defined_only))
    if where and where not in others.expected and others.silent:
        return CopyVerdict(REFUSE, f"it is on {where}, where the ledger does not expect it, and {_format_silent_hosts(others.silent)}", where)
    if copy.present and copy.blocker:
        return CopyVerdict(REFUSE, copy.blocker, where)
    if where is None:
        why = "the hosts that it may be on are fenced and did not answer" if is_on_silent else "it was deleted, and nothing of it is left here"
        return CopyVerdict(CLEAN, why)
    return CopyVerdict(CLEAN, "", where)


def _judge_active(others: OtherCopies, came_back: bool) -> CopyVerdict:
    if came_back and not others.active:
        return CopyVerdict(SUPERSEDED, "a newer record has brought it back to this host")
    also = f"on {_join_names(others.active)} too" if others.active else "nowhere else that answered"
    return CopyVerdict(ALARM, f"it is active on this host, from which it was evacuated, and {also}", others.active[0] if others.active else None)


def _judge_returned(others: OtherCopies) -> CopyVerdict:
    if others.active:
        return CopyVerdict(REFUSE, f"according to the newest record it is on this host again, but it is active on {_join_names(others.active)}")
    return CopyVerdict(SUPERSEDED, "a newer record has brought it back to this host")


def _find_only_host(others: OtherCopies, defined_only: bool) -> t.Optional[str]:
    found = others.active if others.active or not defined_only else others.defined
    return found[0] if len(found) == 1 else None


def _find_owner(others: OtherCopies) -> t.Optional[str]:
    """Return the host that has the domain now, active or not: of several definitions, the one where the ledger expects it."""
    expected = [name for name in others.defined if name in others.expected]
    return _find_only_host(dataclasses.replace(others, defined=expected or others.defined), defined_only=True)


def _explain_no_host(copy: LocalCopy, others: OtherCopies, defined_only: bool) -> str:
    if len(others.active) > 1:
        return f"it is active on {_join_names(others.active)}: find out immediately whether it is being moved or runs twice"
    if defined_only and others.defined:
        return f"it is defined on {_join_names(others.defined)}, and only one of these definitions can be correct"
    what = "defined" if defined_only else "active"
    silent = f"; {_format_silent_hosts(others.silent)}" if others.silent else ""
    off = f"; it is shut off on {_join_names(others.defined)}" if others.defined else ""
    if copy.present:
        when = "that one is right" if off else "it was deleted"
        step = "" if silent else f". If {when}, undefine it here too (virsh undefine --keep-nvram, with --keep-tpm too if it has a TPM)"
        return f"it is {what} on no other host, so that the copy here may be the only one{off}{silent}{step}"
    if off or silent or not others.expected:
        return f"it is {what} neither here nor on another host{off}{silent}"
    return f"it is {what} neither here nor on another host. If it was deleted, protect {_join_names(others.expected)}, which notes that"


@dataclass(frozen=True)
class DiskFacts:
    """The facts about one disk of the copy.

    C(saved) is the disk as it was recorded of this host, null if it was not; C(problem) why the file here cannot be moved.
    C(verdict) and C(why) are of the token test with the host that has the domain now; C(replaced) says that the domain has a disk of that target there.
    """

    target: str
    kind: str
    path: str
    readonly: bool = False
    saved: t.Optional[SavedDisk] = None
    mount: t.Optional[SavedMount] = None
    problem: str = ""
    users: t.Sequence[str] = ()
    locked: bool = False
    verdict: str = ""
    why: str = ""
    replaced: bool = False


def judge_disk(disk: DiskFacts, host_id: str) -> DiskVerdict:
    """Return whether the disk may be quarantined; if not, why, and whether it may be the only copy."""
    reason, only_copy = _explain_kept(disk, host_id)
    return DiskVerdict(disk.target, disk.path, not reason, reason, only_copy)


def _explain_kept(disk: DiskFacts, host_id: str) -> t.Tuple[str, bool]:
    if disk.readonly:
        return "it is read-only", False
    if disk.kind != "file":
        return f"it is of the kind {disk.kind!r}: a cleanup moves only files that no other host sees", disk.kind != "network"
    if disk.saved is None:
        return "the ledger has no record of this disk on this host", True
    if disk.verdict == SHARED or disk.saved.seeing_hosts - {host_id} or disk.saved.shared:
        return "other hosts see it too", False
    if disk.problem:
        return disk.problem, True
    if not disk.mount or disk.mount != disk.saved.mount:
        return f"its file system is not the one recorded: {_format_mount(disk.mount)} now, {_format_mount(disk.saved.mount or None)} then", True
    if disk.users:
        return f"it is used by {_join_names(disk.users)}", True
    if disk.locked:
        return "a process has it open for writing", True
    if not disk.replaced:
        return "where the domain is now, it has no disk with that target", True
    if disk.verdict != SEPARATE:
        return f"it is not proved to belong to this host alone: {disk.why}", True
    return "", False


def _format_mount(mount: t.Optional[SavedMount]) -> str:
    return f"{mount.kind} on {mount.path}" if mount else "an unknown one"


def _format_silent_hosts(silent: t.Mapping[str, str]) -> str:
    return _join_names([f"{name} did not answer ({why.rstrip('.')})" for name, why in silent.items()])


def _join_names(names: t.Sequence[str]) -> str:
    return " and ".join(sorted(names)) if len(names) < 3 else ", ".join(sorted(names))
