# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup import (
    ALARM,
    CLEAN,
    REFUSE,
    SUPERSEDED,
    Copy,
    DiskFacts,
    Elsewhere,
    judge,
    judge_disk,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.token import SEPARATE, SHARED, UNPROVED

OFF, ON, GONE = Copy(True), Copy(True, True), Copy(False)
SILENT = {"kvm3": "No route to host."}
ONE = Elsewhere(active=["kvm2"], defined=["kvm2"], expected=["kvm2"])
MOUNT = {"path": "/var", "kind": "ext4", "store": None}
PATH = "/var/lib/libvirt/images/web.qcow2"


@pytest.mark.parametrize(
    ("copy", "elsewhere", "kind", "words"),
    [
        (OFF, ONE, CLEAN, ""),
        (GONE, ONE, CLEAN, ""),
        (ON, ONE, ALARM, "kvm2 too"),
        (ON, Elsewhere(), ALARM, "nowhere else"),
        (OFF, Elsewhere(), REFUSE, "may be the only one"),
        (GONE, Elsewhere(), REFUSE, "may be the only one"),
        (OFF, Elsewhere(silent=SILENT), REFUSE, "kvm3 did not answer (No route to host)"),
        (OFF, Elsewhere(defined=["kvm2"], expected=["kvm2"]), REFUSE, "shut off on kvm2"),
        (OFF, Elsewhere(active=["kvm2", "kvm3"], defined=["kvm2", "kvm3"], expected=["kvm2"]), REFUSE, "runs twice"),
        # Where the ledger has it, others may be silent; where it does not, all have to say that they have it not.
        (OFF, Elsewhere(active=["kvm2"], silent=SILENT, expected=["kvm2"]), CLEAN, ""),
        (OFF, Elsewhere(active=["kvm2"], silent=SILENT, expected=["kvm3"]), REFUSE, "kvm3 did not answer (No route to host)"),
        (OFF, Elsewhere(active=["kvm2"], expected=["kvm3"]), CLEAN, ""),
        (Copy(True, False, "2 snapshots"), ONE, REFUSE, "2 snapshots"),
        (Copy(False, False, "2 snapshots"), ONE, CLEAN, ""),
    ],
)
def test_a_copy_is_removed_only_where_exactly_one_other_runs(copy: Copy, elsewhere: Elsewhere, kind: str, words: str) -> None:
    verdict = judge(copy, elsewhere)
    assert verdict.kind == kind, verdict
    assert words in verdict.reason
    assert (verdict.where is not None) or kind != CLEAN


@pytest.mark.parametrize(
    ("elsewhere", "kind"),
    [
        (Elsewhere(defined=["kvm2"], expected=["kvm2"]), CLEAN),
        (Elsewhere(active=["kvm2"], defined=["kvm2", "kvm3"], expected=["kvm2"]), CLEAN),
        (Elsewhere(defined=["kvm2", "kvm3"], expected=["kvm2"]), REFUSE),
        (Elsewhere(), REFUSE),
        (Elsewhere(defined=["kvm2"], silent=SILENT, expected=["kvm3"]), REFUSE),
    ],
)
def test_one_definition_is_enough_where_only_that_was_wanted(elsewhere: Elsewhere, kind: str) -> None:
    assert judge(OFF, elsewhere, defined_only=True).kind == kind


@pytest.mark.parametrize(
    ("copy", "elsewhere", "kind"),
    [
        (ON, Elsewhere(), SUPERSEDED),
        (OFF, Elsewhere(), SUPERSEDED),
        (ON, Elsewhere(defined=["kvm2"]), SUPERSEDED),
        (ON, ONE, ALARM),
        (OFF, ONE, REFUSE),
    ],
)
def test_a_domain_that_came_back_is_no_leftover(copy: Copy, elsewhere: Elsewhere, kind: str) -> None:
    assert judge(copy, elsewhere, came_back=True).kind == kind


def disk(**changes: t.Any) -> DiskFacts:
    saved = {"path": PATH, "mount": MOUNT, "seen_by": ["me"], "shared": False, **changes.pop("saved_as", {})}
    facts: dict[str, t.Any] = {"target": "vda", "kind": "file", "path": PATH, "saved": saved, "mount": MOUNT, "verdict": SEPARATE, "replaced": True}
    return DiskFacts(**{**facts, **changes})


def test_a_disk_that_meets_every_condition_is_put_aside() -> None:
    assert judge_disk(disk(), "me") == {"target": "vda", "path": PATH, "quarantine": True, "reason": "", "only_copy": False}


@pytest.mark.parametrize(
    ("changes", "words", "only_copy"),
    [
        ({"readonly": True}, "read-only", False),
        ({"kind": "block"}, "kind 'block'", True),
        ({"kind": "network"}, "kind 'network'", False),
        ({"kind": "volume"}, "kind 'volume'", True),
        ({"saved": None}, "no record of this disk", True),
        ({"verdict": SHARED}, "other hosts see it", False),
        ({"saved_as": {"seen_by": ["me", "other"]}}, "other hosts see it", False),
        ({"saved_as": {"shared": True}}, "other hosts see it", False),
        ({"problem": "it is not there"}, "it is not there", True),
        ({"mount": {**MOUNT, "kind": "xfs"}}, "xfs on /var now, ext4 on /var then", True),
        ({"mount": None}, "none that is known now", True),
        ({"saved_as": {"mount": None}}, "none that is known then", True),
        ({"mount": None, "saved_as": {"mount": None}}, "none that is known", True),
        ({"users": ["domain other"]}, "used by domain other", True),
        ({"locked": True}, "open for writing", True),
        ({"replaced": False}, "no disk of that target", True),
        ({"verdict": UNPROVED, "why": "no folder"}, "no folder", True),
        ({"verdict": ""}, "could not be proved", True),
    ],
)
def test_a_disk_that_lacks_one_is_kept_with_the_reason(changes: dict[str, t.Any], words: str, only_copy: bool) -> None:
    verdict = judge_disk(disk(**changes), "me")
    assert (verdict["quarantine"], verdict["only_copy"]) == (False, only_copy), verdict
    assert words in verdict["reason"]
