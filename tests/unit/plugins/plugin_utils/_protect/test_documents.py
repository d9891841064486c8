# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect import documents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.documents import Judgement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.known import Known
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._protect.builders import (
    DOMAIN,
    KVM1,
    KVM2,
    KVM3,
    Body,
    disk,
    evacuation,
    move,
    said,
)


def judge(told: Body, known: Known, here: t.Optional[Body] = None, disks: t.Optional[list[Body]] = None) -> Judgement:
    return documents.judge(told, known, here or KVM1, disks or [disk(seen_by=[])], "somebody")


def known(body: Body, unsettled: t.Optional[Body] = None, tombstone: t.Optional[Body] = None) -> Known:
    return Known({DOMAIN: Document(body, 3)}, {DOMAIN: unsettled} if unsettled else {}, {DOMAIN: tombstone} if tombstone else {})


def document(*places: Body) -> Body:
    """Return the document of a domain that was saved at the first of these hosts, and may be at all."""
    return {**judge(said(), Known(), places[0]).body, "possible_hosts": list(places)}


def test_a_new_domain_is_saved_with_all_that_a_restart_needs() -> None:
    judgement = judge(said(), Known())
    assert judgement.kind == documents.SAVED
    assert judgement.body["possible_hosts"] == [KVM1]
    protected = judgement.body["protected"]
    assert {key: protected[key] for key in ("host", "state", "persistent", "origin")} == {"host": KVM1, "state": "running", "persistent": True, "origin": None}
    assert protected["definition"] == said()["definition"]
    assert protected["state_at"] == protected["at"]


def test_what_is_known_is_not_written_again_and_growing_images_change_nothing() -> None:
    before = document(KVM1)
    assert judge(said(allocated=5000), known(before)).kind == documents.UNCHANGED
    changed = judge(said(autostart=True), known(before))
    assert (changed.kind, changed.changed) == (documents.SAVED, ("autostart",))
    assert changed.body["protected"]["state_at"] == before["protected"]["state_at"]


def test_a_change_of_state_has_its_own_time_and_what_others_wrote_is_kept() -> None:
    before = document(KVM1)
    before["protected"] = {**before["protected"], "origin": "kvm9", "state_at": "2020-01-01T00:00:00.000Z", "later": 1}
    after = judge(said(state="paused"), known({**before, "generation": 7, "last_record": "x"}))
    assert after.changed == ("state",)
    assert after.body["protected"]["state_at"] > "2020-01-02"
    assert (after.body["protected"]["origin"], after.body["protected"]["later"], after.body["last_record"]) == ("kvm9", 1, "x")


@pytest.mark.parametrize(("active", "saved", "wanted"), [(True, "paused", "paused"), (False, "running", "running")])
def test_a_state_that_says_nothing_leaves_the_saved_one(active: bool, saved: str, wanted: str) -> None:
    before = document(KVM1)
    before["protected"]["state"] = saved
    assert judge(said(state=None, active=active), known(before)).kind == documents.UNCHANGED


@pytest.mark.parametrize(("active", "state"), [(True, "running"), (False, "shut off")])
def test_a_domain_that_was_never_seen_gets_the_state_it_has(active: bool, state: str) -> None:
    assert judge(said(state=None, active=active), Known()).body["protected"]["state"] == state


def test_the_host_is_right_about_what_runs_there() -> None:
    moved_by_hand = judge(said(), known(document(KVM2)))
    assert (moved_by_hand.kind, moved_by_hand.body["possible_hosts"]) == (documents.SAVED, [KVM1])
    assert moved_by_hand.body["protected"]["host"] == KVM1


def test_an_inactive_definition_of_a_domain_that_is_elsewhere_is_a_leftover() -> None:
    judgement = judge(said(active=False, state="shut off"), known(document(KVM2)))
    assert judgement.kind == documents.SKIPPED
    assert "kvm2" in judgement.why


def test_an_inactive_domain_that_may_be_on_two_hosts_stays_so() -> None:
    judgement = judge(said(active=False, state="shut off"), known(document(KVM1, KVM2)))
    assert judgement.body["possible_hosts"] == [KVM1, KVM2]


def test_an_unsettled_move_keeps_the_possible_hosts_at_both_ends() -> None:
    before = document(KVM1, KVM2)
    for here in (KVM1, KVM2):
        judgement = judge(said(state="paused"), known(before, move(KVM1, KVM2, s.SCHEDULED, s.QUEUED)), here)
        assert (judgement.kind, judgement.body["possible_hosts"]) == (documents.SAVED, [KVM1, KVM2])


@pytest.mark.parametrize(
    "record",
    [
        move(KVM2, KVM3, s.SCHEDULED),
        evacuation(KVM2, KVM3, s.PRE_MIGRATING),
        evacuation(KVM1, KVM2, s.PRE_MIGRATING),
        evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.ERROR),
    ],
)
def test_a_domain_that_an_unsettled_record_gives_to_others_and_runs_here_is_a_conflict(record: Body) -> None:
    judgement = judge(said(), known(document(KVM1, KVM2), record))
    assert judgement.kind == documents.CONFLICT
    assert judgement.body == {}
    for word in ("web1", "kvm1", record["id"], record["status"]):
        assert word in judgement.why


def test_an_evacuation_that_started_nothing_yet_is_no_conflict_at_its_source() -> None:
    assert judge(said(), known(document(KVM1), evacuation(KVM1, KVM2))).kind != documents.CONFLICT
    assert judge(said(), known(document(KVM2, KVM1), evacuation(KVM2, KVM1, s.PRE_MIGRATING))).kind == documents.SAVED


def test_an_evacuated_domain_that_runs_here_too_is_a_conflict_and_one_that_came_back_is_not() -> None:
    tombstone = evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE)
    alarm = judge(said(), known(document(KVM2), tombstone=tombstone))
    assert alarm.kind == documents.CONFLICT
    assert "may run twice" in alarm.why
    assert judge(said(), known(document(KVM1), tombstone=tombstone)).kind == documents.UNCHANGED
    assert judge(said(active=False), known(document(KVM2), tombstone=tombstone)).kind == documents.SKIPPED


def test_missing_is_what_may_be_here_is_not_and_is_not_on_its_way() -> None:
    assert [body["uuid"] for body in documents.missing(known(document(KVM1)), KVM1, set())] == [DOMAIN]
    assert documents.missing(known(document(KVM1)), KVM1, {DOMAIN}) == []
    assert documents.missing(known(document(KVM2)), KVM1, set()) == []
    assert documents.missing(known(document(KVM1), move(KVM1, KVM2, s.SCHEDULED)), KVM1, set()) == []


def test_what_the_tokens_prove_is_in_the_request_too() -> None:
    judgement = judge(said(), Known(), disks=[disk(shared=True, seen_by=[])])
    assert [one["shared"] for one in judgement.body["protected"]["request"]["disks"]] == [True]
