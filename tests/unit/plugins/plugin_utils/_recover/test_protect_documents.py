# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover import protect_documents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import Judgement, ProtectInputs
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import (
    DOMAIN,
    KVM1,
    KVM2,
    KVM3,
    Body,
    disk,
    evacuation,
    move,
    reported_domain,
)


def judge(told: Body, inputs: ProtectInputs, protected_host: HostRef = KVM1, disks: t.Optional[list[Body]] = None) -> Judgement:
    return protect_documents.judge_domain(decode(SavedDomain, {**told, "disks": disks or [disk(seen_by=[])]}), inputs, protected_host, "somebody")


def document_of(judgement: Judgement) -> Body:
    """Return the document of the domain as the ledger has it."""
    assert judgement.entry
    return t.cast("Body", encode(judgement.entry))


def inputs_with(body: Body, unsettled: t.Optional[MoveRecord] = None, tombstone: t.Optional[MoveRecord] = None) -> ProtectInputs:
    return ProtectInputs({DOMAIN: Document(body, 3)}, {DOMAIN: unsettled} if unsettled else {}, {DOMAIN: [tombstone]} if tombstone else {})


def document(*places: HostRef) -> Body:
    """Return the document of a domain that was saved at the first of these hosts, and may be at all."""
    return {**document_of(judge(reported_domain(), ProtectInputs(), *places[:1])), "possible_hosts": encode(list(places)), "generation": 1}


def test_a_new_domain_is_saved_with_all_that_a_restart_needs() -> None:
    judgement = judge(reported_domain(), ProtectInputs())
    assert judgement.kind == protect_documents.SAVED
    assert document_of(judgement)["possible_hosts"] == [encode(KVM1)]
    protected = document_of(judgement)["protected"]
    assert {key: protected[key] for key in ("host", "state", "persistent", "origin")} == {
        "host": encode(KVM1),
        "state": "running",
        "persistent": True,
        "origin": None,
    }
    assert protected["definition"] == reported_domain()["definition"]
    assert protected["state_at"] == protected["at"]


def test_an_unchanged_domain_or_a_growing_image_is_not_written_again() -> None:
    before = document(KVM1)
    assert judge(reported_domain(allocated=5000), inputs_with(before)).kind == protect_documents.UNCHANGED
    changed = judge(reported_domain(autostart=True), inputs_with(before))
    assert (changed.kind, changed.changed) == (protect_documents.SAVED, ("autostart",))
    assert document_of(changed)["protected"]["state_at"] == before["protected"]["state_at"]


def test_the_kind_of_a_network_is_kept_while_it_is_not_known() -> None:
    """libvirt's daemon for networks may be stopped. The documents of all domains would be written, and written again afterwards."""

    def report(*kinds: Body) -> Body:
        told = reported_domain()
        return {**told, "request": {**told["request"], "networks": [{"type": "network", "source": "lan", **kind} for kind in kinds]}}

    before = document_of(judge(report({"forward": "bridge", "network_vlan": "42"}), ProtectInputs()))
    assert judge(report({}), inputs_with(before)).kind == protect_documents.UNCHANGED
    assert judge(report({"forward": None}), inputs_with(before)).changed == ("request",)
    assert judge(report({"network_vlan": "43"}), inputs_with(before)).changed == ("request",)
    more = document_of(judge(report({}, {"portgroup": "dmz"}), inputs_with(before)))
    assert [network.get("forward") for network in more["protected"]["request"]["networks"]] == ["bridge", "bridge"]
    assert [network.get("network_vlan") for network in more["protected"]["request"]["networks"]] == ["42", None]


def test_a_changed_state_gets_a_new_time_and_other_keys_are_kept() -> None:
    before = document(KVM1)
    before["protected"] = {**before["protected"], "origin": "kvm9", "state_at": "2020-01-01T00:00:00.000Z", "later": 1}
    after = judge(reported_domain(state="paused"), inputs_with({**before, "generation": 7, "last_record": "x"}))
    assert after.changed == ("state",)
    assert document_of(after)["protected"]["state_at"] > "2020-01-02"
    assert (document_of(after)["protected"]["origin"], document_of(after)["protected"]["later"], document_of(after)["last_record"]) == ("kvm9", 1, "x")


@pytest.mark.parametrize(("active", "saved", "wanted"), [(True, "paused", "paused"), (False, "running", "running")])
def test_an_unknown_state_keeps_the_saved_one(active: bool, saved: str, wanted: str) -> None:
    before = document(KVM1)
    before["protected"]["state"] = saved
    assert judge(reported_domain(state=None, active=active), inputs_with(before)).kind == protect_documents.UNCHANGED


@pytest.mark.parametrize(("active", "state"), [(True, "running"), (False, "shut off")])
def test_an_unknown_state_of_a_new_domain_follows_whether_it_is_active(active: bool, state: str) -> None:
    assert document_of(judge(reported_domain(state=None, active=active), ProtectInputs()))["protected"]["state"] == state


def test_a_running_domain_overrides_the_possible_hosts_of_the_ledger() -> None:
    moved_by_hand = judge(reported_domain(), inputs_with(document(KVM2)))
    assert (moved_by_hand.kind, document_of(moved_by_hand)["possible_hosts"]) == (protect_documents.SAVED, [encode(KVM1)])
    assert document_of(moved_by_hand)["protected"]["host"] == encode(KVM1)


def test_an_inactive_definition_of_a_domain_on_another_host_is_skipped() -> None:
    judgement = judge(reported_domain(active=False, state="shut off"), inputs_with(document(KVM2)))
    assert judgement.kind == protect_documents.SKIPPED
    # It may be the only one, if the ledger was set back.
    assert "Before you remove it, verify that kvm2 has the domain" in judgement.why
    assert "kvm2" in judgement.why


def test_an_unknown_domain_that_waits_for_a_recovery_is_placed_on_no_host() -> None:
    """Another host may have noted it as well, and the recovery has refused both: the host that is protected first must not decide."""
    waiting = reported_domain(active=False, state="shut off", awaits_start=True)
    for inputs in (ProtectInputs(), inputs_with(document())):
        skipped = judge(waiting, inputs)
        assert (skipped.kind, skipped.entry, "the ledger does not know it" in skipped.why) == (protect_documents.SKIPPED, None, True)
    for told, inputs in (({**waiting, "awaits_start": False}, ProtectInputs()), (waiting, inputs_with(document(KVM1)))):
        assert judge(told, inputs).kind == protect_documents.SAVED


def test_an_inactive_domain_keeps_two_possible_hosts() -> None:
    judgement = judge(reported_domain(active=False, state="shut off"), inputs_with(document(KVM1, KVM2)))
    assert document_of(judgement)["possible_hosts"] == encode([KVM1, KVM2])


def test_an_unsettled_move_keeps_both_possible_hosts() -> None:
    before = document(KVM1, KVM2)
    for here in (KVM1, KVM2):
        judgement = judge(reported_domain(state="paused"), inputs_with(before, move(KVM1, KVM2, s.SCHEDULED, s.QUEUED)), here)
        assert (judgement.kind, document_of(judgement)["possible_hosts"]) == (protect_documents.SAVED, encode([KVM1, KVM2]))


def test_an_inactive_definition_is_saved_on_the_source_of_an_unsettled_move_and_skipped_on_its_destination() -> None:
    record, off = move(KVM1, KVM2, s.SCHEDULED, s.QUEUED), reported_domain(active=False, state="shut off")
    saved = judge(off, inputs_with(document(KVM1), record))
    assert (saved.kind, document_of(saved)["possible_hosts"]) == (protect_documents.SAVED, [encode(KVM1)])
    assert judge(off, inputs_with(document(KVM1), record), KVM2).kind == protect_documents.SKIPPED


@pytest.mark.parametrize(
    "record",
    [
        move(KVM2, KVM3, s.SCHEDULED),
        evacuation(KVM2, KVM3, s.PRE_MIGRATING),
        evacuation(KVM1, KVM2, s.PRE_MIGRATING),
        evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.ERROR),
    ],
)
def test_a_running_domain_that_an_unsettled_record_places_elsewhere_is_a_conflict(record: MoveRecord) -> None:
    judgement = judge(reported_domain(), inputs_with(document(KVM1, KVM2), record))
    assert judgement.kind == protect_documents.CONFLICT
    assert judgement.entry is None
    for word in ("web1", "kvm1", record.record_id, record.status):
        assert word in judgement.why


def test_an_accepted_evacuation_is_no_conflict_on_its_source() -> None:
    assert judge(reported_domain(), inputs_with(document(KVM1), evacuation(KVM1, KVM2))).kind != protect_documents.CONFLICT
    assert judge(reported_domain(), inputs_with(document(KVM2, KVM1), evacuation(KVM2, KVM1, s.PRE_MIGRATING))).kind == protect_documents.SAVED


def test_an_evacuated_domain_that_runs_here_is_a_conflict_unless_it_came_back() -> None:
    tombstone = evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE)
    alarm = judge(reported_domain(), inputs_with(document(KVM2), tombstone=tombstone))
    assert alarm.kind == protect_documents.CONFLICT
    assert "may run twice" in alarm.why
    assert judge(reported_domain(), inputs_with(document(KVM1), tombstone=tombstone)).kind == protect_documents.UNCHANGED
    assert judge(reported_domain(active=False), inputs_with(document(KVM2), tombstone=tombstone)).kind == protect_documents.SKIPPED


def missing_on(host: HostRef) -> Body:
    """Return the document of a domain that its host did not have any more when it was protected last."""
    entry = Document(document(host), 3).domain
    return t.cast("Body", encode(protect_documents.note_missing(entry, ProtectInputs(), host, "a test")))


@pytest.mark.parametrize("left", [missing_on(KVM2), document_of(judge(reported_domain(active=False, state="shut off"), inputs_with(document(KVM2)), KVM2))])
def test_an_evacuated_domain_that_was_moved_on_by_hand_is_no_conflict(left: Body) -> None:
    """C(virsh migrate) has moved it on while its first host is away: its second host has it no more, or has it off."""
    tombstone = evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE)
    moved_on = judge(reported_domain(), inputs_with(left, tombstone=tombstone), KVM3)
    assert (moved_on.kind, document_of(moved_on)["possible_hosts"]) == (protect_documents.SAVED, [encode(KVM3)])
    # The copy on the first host is outdated, whatever has become of the other.
    assert judge(reported_domain(), inputs_with(left, tombstone=tombstone), KVM1).kind == protect_documents.CONFLICT
    # Until its second host was asked again, it may run there.
    assert judge(reported_domain(), inputs_with(document(KVM2), tombstone=tombstone), KVM3).kind == protect_documents.CONFLICT


@pytest.mark.parametrize("record", [move(KVM1, KVM2, s.SCHEDULED, s.ERROR), evacuation(KVM1, KVM2, s.PRE_MIGRATING)])
def test_a_domain_that_may_run_twice_may_be_on_each_of_its_hosts(record: MoveRecord) -> None:
    """Otherwise an evacuation of a host that has it active would leave it out."""
    before = document(KVM1, KVM2)
    judgement = judge(reported_domain(), inputs_with(before, record), KVM3)
    assert judgement.kind == protect_documents.CONFLICT
    after = document_of(judgement)
    assert after["possible_hosts"] == encode([KVM1, KVM2, KVM3])
    assert {key: value for key, value in after.items() if key not in ("possible_hosts", "updated_at")} == {
        key: value for key, value in before.items() if key not in ("possible_hosts", "updated_at")
    }
    assert judge(reported_domain(), inputs_with(after, record), KVM3).entry is None
    assert judge(reported_domain(), ProtectInputs({}, {DOMAIN: record}), KVM3).entry is None


def test_the_copy_on_each_host_that_a_domain_was_evacuated_from_is_outdated() -> None:
    """Two hosts have died, one after the other, and the first one returns without a boot guard while the guest is off on the third."""
    twice = [evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE), evacuation(KVM2, KVM3, s.PRE_MIGRATING, s.DONE)]
    left = document_of(judge(reported_domain(active=False, state="shut off"), inputs_with(document(KVM3)), KVM3))
    inputs = ProtectInputs({DOMAIN: Document(left, 3)}, {}, {DOMAIN: twice})
    assert {host.host: judge(reported_domain(), inputs, host).kind for host in (KVM1, KVM2)} == dict.fromkeys(("kvm1", "kvm2"), protect_documents.CONFLICT)


def test_a_copy_that_was_evacuated_is_outdated_although_the_document_of_the_domain_was_damaged() -> None:
    inputs = ProtectInputs({}, {}, {DOMAIN: [evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE)]})
    alarm = judge(reported_domain(), inputs)
    assert (alarm.kind, alarm.entry, "it was started on kvm2 and may run twice" in alarm.why) == (protect_documents.CONFLICT, None, True)
    left = judge(reported_domain(active=False, state="shut off"), inputs)
    assert (left.kind, "it is on kvm2, and the inactive definition on kvm1 may be left over" in left.why) == (protect_documents.SKIPPED, True)
    # The host that has the domain replaces the document.
    for host in (KVM2, KVM3):
        for told in (reported_domain(), reported_domain(active=False, state="shut off")):
            found = judge(told, inputs, host)
            assert (found.kind, document_of(found)["possible_hosts"]) == (protect_documents.SAVED, [encode(host)])


def test_a_domain_is_missing_if_only_the_ledger_places_it_on_the_host() -> None:
    assert [found.domain.uuid for found in protect_documents.find_missing(inputs_with(document(KVM1)), KVM1, set())] == [DOMAIN]
    assert protect_documents.find_missing(inputs_with(document(KVM1)), KVM1, {DOMAIN}) == []
    assert protect_documents.find_missing(inputs_with(document(KVM2)), KVM1, set()) == []
    assert protect_documents.find_missing(inputs_with(document(KVM1), move(KVM1, KVM2, s.SCHEDULED)), KVM1, set()) == []


def test_disks_proved_by_tokens_are_shared_in_the_request() -> None:
    judgement = judge(reported_domain(), ProtectInputs(), disks=[disk(shared=True, seen_by=[])])
    assert [one["shared"] for one in document_of(judgement)["protected"]["request"]["disks"]] == [True]
