# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_verdicts import (
    ALARM,
    CLEAN,
    REFUSE,
    SUPERSEDED,
    DiskFacts,
    LocalCopy,
    OtherCopies,
    judge_copy,
    judge_disk,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import DiskVerdict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import SEPARATE, SHARED, UNPROVED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk, SavedMount

OFF, ON, GONE = LocalCopy(True), LocalCopy(True, True), LocalCopy(False)
SILENT = {"kvm3": "No route to host."}
ONE = OtherCopies(active=["kvm2"], defined=["kvm2"], expected=["kvm2"])
MOUNT = SavedMount("/var", "ext4", None)
PATH = "/var/lib/libvirt/images/web.qcow2"


@pytest.mark.parametrize(
    ("copy", "others", "kind", "words"),
    [
        (OFF, ONE, CLEAN, ""),
        (GONE, ONE, CLEAN, ""),
        (ON, ONE, ALARM, "kvm2 too"),
        (ON, OtherCopies(), ALARM, "nowhere else that answered"),
        (OFF, OtherCopies(), REFUSE, "may be the only one"),
        (OFF, OtherCopies(), REFUSE, "If it was deleted, undefine it here too"),
        (GONE, OtherCopies(expected=["kvm2"]), REFUSE, "If it was deleted, protect kvm2, which notes that"),
        (GONE, OtherCopies(silent=SILENT), REFUSE, "kvm3 did not answer (No route to host)"),
        (OFF, OtherCopies(silent=SILENT), REFUSE, "kvm3 did not answer (No route to host)"),
        (OFF, OtherCopies(defined=["kvm2"], expected=["kvm2"]), REFUSE, "shut off on kvm2. If that one is right, undefine it here too"),
        (GONE, OtherCopies(defined=["kvm2"], expected=["kvm2"]), CLEAN, ""),
        (GONE, OtherCopies(defined=["kvm2"], silent=SILENT, expected=["kvm3"]), REFUSE, "kvm3 did not answer (No route to host)"),
        # What is left over on a third host is not about this one.
        (GONE, OtherCopies(defined=["kvm2", "kvm4"], expected=["kvm2"]), CLEAN, ""),
        (GONE, OtherCopies(defined=["kvm2", "kvm4"], silent=SILENT, expected=["kvm2"]), CLEAN, ""),
        (GONE, OtherCopies(defined=["kvm2", "kvm4"]), REFUSE, "shut off on kvm2 and kvm4"),
        (GONE, OtherCopies(defined=["kvm2", "kvm4"], expected=["kvm2", "kvm4"]), REFUSE, "shut off on kvm2 and kvm4"),
        (GONE, OtherCopies(active=["kvm2", "kvm4"], defined=["kvm2", "kvm4"], expected=["kvm2"]), REFUSE, "runs twice"),
        (OFF, OtherCopies(active=["kvm2", "kvm3"], defined=["kvm2", "kvm3"], expected=["kvm2"]), REFUSE, "runs twice"),
        # Where the ledger has it, others may be silent; where it does not, all have to say that they have it not.
        (OFF, OtherCopies(active=["kvm2"], silent=SILENT, expected=["kvm2"]), CLEAN, ""),
        (OFF, OtherCopies(active=["kvm2"], silent=SILENT, expected=["kvm3"]), REFUSE, "kvm3 did not answer (No route to host)"),
        (OFF, OtherCopies(active=["kvm2"], expected=["kvm3"]), CLEAN, ""),
        (LocalCopy(True, False, "2 snapshots"), ONE, REFUSE, "2 snapshots"),
        (LocalCopy(False, False, "2 snapshots"), ONE, CLEAN, ""),
    ],
)
def test_a_copy_is_removed_only_if_exactly_one_other_copy_runs(copy: LocalCopy, others: OtherCopies, kind: str, words: str) -> None:
    verdict = judge_copy(copy, others)
    assert verdict.kind == kind, verdict
    assert words in verdict.reason
    assert (verdict.where is not None) or kind != CLEAN


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        (OtherCopies(defined=["kvm2"], expected=["kvm2"]), CLEAN),
        (OtherCopies(active=["kvm2"], defined=["kvm2", "kvm3"], expected=["kvm2"]), CLEAN),
        (OtherCopies(defined=["kvm2", "kvm3"], expected=["kvm2"]), REFUSE),
        (OtherCopies(), REFUSE),
        (OtherCopies(defined=["kvm2"], silent=SILENT, expected=["kvm3"]), REFUSE),
    ],
)
def test_an_inactive_definition_is_enough_if_only_that_was_requested(others: OtherCopies, kind: str) -> None:
    assert judge_copy(OFF, others, defined_only=True).kind == kind


@pytest.mark.parametrize(
    ("copy", "others", "kind"),
    [
        (ON, OtherCopies(), SUPERSEDED),
        (OFF, OtherCopies(), SUPERSEDED),
        (ON, OtherCopies(defined=["kvm2"]), SUPERSEDED),
        (ON, ONE, ALARM),
        (OFF, ONE, REFUSE),
    ],
)
def test_a_domain_that_came_back_is_superseded_and_not_removed(copy: LocalCopy, others: OtherCopies, kind: str) -> None:
    assert judge_copy(copy, others, came_back=True).kind == kind


@pytest.mark.parametrize(
    ("copy", "others", "kind"),
    [
        (OFF, OtherCopies(silent=SILENT), CLEAN),
        (GONE, OtherCopies(silent=SILENT), CLEAN),
        # Another host may have an old copy, too.
        (OFF, OtherCopies(defined=["kvm2"], silent=SILENT), CLEAN),
        (LocalCopy(True, False, "2 snapshots"), OtherCopies(silent=SILENT), REFUSE),
        (ON, OtherCopies(silent=SILENT), ALARM),
        (OFF, OtherCopies(silent=SILENT, expected=["kvm2"]), REFUSE),
        (OFF, OtherCopies(active=["kvm2"], silent=SILENT), REFUSE),
    ],
)
def test_an_old_copy_is_removed_while_the_fenced_hosts_that_have_the_domain_are_silent(copy: LocalCopy, others: OtherCopies, kind: str) -> None:
    assert judge_copy(copy, others, fenced=True).kind == kind


@pytest.mark.parametrize(
    ("copy", "others", "kind"),
    [
        (GONE, OtherCopies(expected=["kvm2"]), CLEAN),
        (GONE, OtherCopies(silent=SILENT), CLEAN),
        # The deletion may have been a mistake.
        (OFF, OtherCopies(expected=["kvm2"]), REFUSE),
        (GONE, OtherCopies(active=["kvm2", "kvm4"], defined=["kvm2", "kvm4"]), REFUSE),
        (GONE, OtherCopies(defined=["kvm2", "kvm4"]), REFUSE),
        (ON, OtherCopies(), ALARM),
    ],
)
def test_a_host_without_a_copy_is_clean_of_a_domain_that_was_deleted_elsewhere(copy: LocalCopy, others: OtherCopies, kind: str) -> None:
    """The host that had it was protected since, and did not have it any more."""
    assert judge_copy(copy, others, missing=True).kind == kind


def disk(**changes: t.Any) -> DiskFacts:
    known = SavedDisk("vda", "file", PATH, False, False, (), mount=MOUNT, seen_by=("me",), shared=False)
    saved = dataclasses.replace(known, **changes.pop("saved_as", {}))
    facts: dict[str, t.Any] = {"target": "vda", "kind": "file", "path": PATH, "saved": saved, "mount": MOUNT, "verdict": SEPARATE, "replaced": True}
    return DiskFacts(**{**facts, **changes})


def test_a_disk_that_meets_every_condition_is_quarantined() -> None:
    assert judge_disk(disk(), "me") == DiskVerdict("vda", PATH, quarantine=True, reason="", only_copy=False)


@pytest.mark.parametrize(
    ("changes", "words", "only_copy"),
    [
        ({"readonly": True}, "read-only", False),
        ({"kind": "block"}, "of the kind 'block'", True),
        ({"kind": "network"}, "of the kind 'network'", False),
        ({"kind": "volume"}, "of the kind 'volume'", True),
        ({"saved": None}, "no record of this disk", True),
        ({"verdict": SHARED}, "other hosts see it", False),
        ({"saved_as": {"seen_by": ("me", "other")}}, "other hosts see it", False),
        ({"saved_as": {"shared": True}}, "other hosts see it", False),
        ({"problem": "it is not there"}, "it is not there", True),
        ({"mount": dataclasses.replace(MOUNT, kind="xfs")}, "xfs on /var now, ext4 on /var then", True),
        ({"mount": None}, "an unknown one now", True),
        ({"saved_as": {"mount": None}}, "an unknown one then", True),
        ({"mount": None, "saved_as": {"mount": None}}, "an unknown one", True),
        ({"users": ["domain other"]}, "used by domain other", True),
        ({"locked": True}, "open for writing", True),
        ({"replaced": False}, "no disk with that target", True),
        ({"verdict": UNPROVED, "why": "no folder"}, "no folder", True),
        ({"verdict": ""}, "it is not proved", True),
    ],
)
def test_a_disk_that_misses_a_condition_is_kept_with_the_reason(changes: dict[str, t.Any], words: str, only_copy: bool) -> None:
    verdict = judge_disk(disk(**changes), "me")
    assert (verdict.quarantine, verdict.only_copy) == (False, only_copy), verdict
    assert words in verdict.reason
