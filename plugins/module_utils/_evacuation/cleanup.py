# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""May the copy that an evacuation left on its returned source be removed, and which of its disks? Pure decisions; nothing is asked or touched here."""

from __future__ import annotations

import dataclasses
import typing as t

from .._storage.token import SEPARATE, SHARED

CLEAN = "clean"
REFUSE = "refuse"
ALARM = "alarm"
# The domain has come back by a newer record: what is here is no leftover.
SUPERSEDED = "superseded"

Disk = t.Dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Copy:
    """The domain as this host has it. C(blocker) is a sentence on why libvirt could not forget it without loss."""

    present: bool
    active: bool = False
    blocker: str = ""


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """Names of the other hosts: on which the domain is C(active), C(defined) at all (active ones too), and where it is C(expected) by the ledger.

    C(silent) are those that did not answer: name to why, a sentence.
    """

    active: t.Sequence[str] = ()
    defined: t.Sequence[str] = ()
    silent: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected: t.Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """C(kind) and C(reason), a part of a sentence; C(where) is the host that has the domain now."""

    kind: str
    reason: str = ""
    where: t.Optional[str] = None


def judge(copy: Copy, elsewhere: Elsewhere, defined_only: bool = False, came_back: bool = False) -> Verdict:
    """Return what becomes of the copy on this host (DESIGN: The evacuation's rules, Cleanup).

    :arg defined_only: the evacuation was to define the domain, not to start it: one definition elsewhere is enough.
    :arg came_back: by a record that is newer than the evacuation, this host has the domain again.
    """
    if copy.active:
        return _judge_active(elsewhere, came_back)
    where = _only_place(elsewhere, defined_only)
    if came_back:
        return _judge_returned(elsewhere)
    if where is None:
        return Verdict(REFUSE, _why_no_place(elsewhere, defined_only))
    if where not in elsewhere.expected and elsewhere.silent:
        return Verdict(REFUSE, f"it is on {where}, where the ledger does not expect it, and {_unanswered(elsewhere.silent)}", where)
    if copy.present and copy.blocker:
        return Verdict(REFUSE, copy.blocker, where)
    return Verdict(CLEAN, "", where)


def _judge_active(elsewhere: Elsewhere, came_back: bool) -> Verdict:
    if came_back and not elsewhere.active:
        return Verdict(SUPERSEDED, "it has come back to this host by a newer record")
    also = f"on {_listed(elsewhere.active)} too" if elsewhere.active else "nowhere else that answered"
    return Verdict(ALARM, f"it is active on this host, from which it was evacuated, and {also}")


def _judge_returned(elsewhere: Elsewhere) -> Verdict:
    if elsewhere.active:
        return Verdict(REFUSE, f"by the newest record it is on this host again, and it is active on {_listed(elsewhere.active)}")
    return Verdict(SUPERSEDED, "it has come back to this host by a newer record")


def _only_place(elsewhere: Elsewhere, defined_only: bool) -> t.Optional[str]:
    found = elsewhere.active if elsewhere.active or not defined_only else elsewhere.defined
    return found[0] if len(found) == 1 else None


def _why_no_place(elsewhere: Elsewhere, defined_only: bool) -> str:
    if len(elsewhere.active) > 1:
        return f"it is active on {_listed(elsewhere.active)}: find out at once whether it is being moved or runs twice"
    if defined_only and elsewhere.defined:
        return f"it is defined on {_listed(elsewhere.defined)}, and only one of these can be the right one"
    what = "defined" if defined_only else "active"
    silent = f"; {_unanswered(elsewhere.silent)}" if elsewhere.silent else ""
    off = f"; it is shut off on {_listed(elsewhere.defined)}" if elsewhere.defined else ""
    return f"it is {what} on no other host, so that the copy here may be the only one{off}{silent}"


@dataclasses.dataclass(frozen=True)
class DiskFacts:
    """What is known of one disk of the copy.

    C(saved) is the disk as it was recorded of this host, null where it was not; C(problem) why the file here is not one that could be moved.
    C(verdict) and C(why) are of the token test with the host that has the domain now; C(replaced) says that the domain has a disk of that target there.
    """

    target: str
    kind: str
    path: str
    readonly: bool = False
    saved: t.Optional[t.Mapping[str, t.Any]] = None
    mount: t.Optional[t.Mapping[str, t.Any]] = None
    problem: str = ""
    users: t.Sequence[str] = ()
    locked: bool = False
    verdict: str = ""
    why: str = ""
    replaced: bool = False


def judge_disk(disk: DiskFacts, host_id: str) -> Disk:
    """Return C({target, path, quarantine, reason, only_copy}): whether the disk may be quarantined, else why not and whether it may be the only copy."""
    reason, only_copy = _why_kept(disk, host_id)
    return {"target": disk.target, "path": disk.path, "quarantine": not reason, "reason": reason, "only_copy": only_copy}


def _why_kept(disk: DiskFacts, host_id: str) -> t.Tuple[str, bool]:
    if disk.readonly:
        return "it is read-only", False
    if disk.kind != "file":
        return f"it is of the kind {disk.kind!r}: only a file of this host alone is ever touched", disk.kind != "network"
    if disk.saved is None:
        return "the ledger has no record of this disk on this host", True
    others = sorted({*disk.saved.get("seen_by", ())} - {host_id})
    if disk.verdict == SHARED or others or disk.saved.get("shared"):
        return "other hosts see it too", False
    if disk.problem:
        return disk.problem, True
    if not disk.mount or disk.mount != disk.saved.get("mount"):
        return f"its file system is not the one recorded: {_mount(disk.mount)} now, {_mount(disk.saved.get('mount'))} then", True
    if disk.users:
        return f"it is used by {_listed(disk.users)}", True
    if disk.locked:
        return "a process has it open for writing", True
    if not disk.replaced:
        return "the domain has no disk of that target where it is now", True
    if disk.verdict != SEPARATE:
        return f"it could not be proved that it is this host's alone: {disk.why}", True
    return "", False


def _mount(mount: t.Optional[t.Mapping[str, t.Any]]) -> str:
    return f"{mount.get('kind')} on {mount.get('path')}" if mount else "none that is known"


def _unanswered(silent: t.Mapping[str, str]) -> str:
    return _listed([f"{name} did not answer ({why.rstrip('.')})" for name, why in silent.items()])


def _listed(names: t.Sequence[str]) -> str:
    return " and ".join(sorted(names)) if len(names) < 3 else ", ".join(sorted(names))
