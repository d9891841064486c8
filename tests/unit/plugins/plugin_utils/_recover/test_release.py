# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What forbids the release of a host."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import RememberedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.release import (
    CleanedHost,
    GuardAnswer,
    GuardState,
    Obstacles,
    RecordSummary,
    find_forgotten,
    find_keeping_out,
    find_withholding,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import end, record, uid

Body = dict[str, t.Any]
KVM1 = HostIdentity("kvm1", uid("id kvm1"), uid("libvirt kvm1"), "m1")


def evacuation(status: str, by_name: str = "kvm1", **changes: t.Any) -> MoveRecord:
    return dataclasses.replace(record("web1", by_name, "kvm2", status, kind=s.EVACUATION), **changes)


@pytest.mark.parametrize("status", [s.ACCEPTED, s.PRE_MIGRATING, s.DONE, s.ERROR])
def test_an_open_evacuation_withholds_the_release_of_its_source(status: str) -> None:
    for one in (evacuation(status), evacuation(status, superseded_by="newer")):
        assert find_withholding([one], KVM1) == [one]
        assert find_keeping_out([one], KVM1) == [one]


@pytest.mark.parametrize("one", [evacuation(s.COMPLETED), evacuation(s.FAILED), evacuation(s.DONE, "kvm3"), record("web1", "kvm1", "kvm2", s.RUNNING)])
def test_closed_foreign_and_live_migration_records_do_not_withhold(one: MoveRecord) -> None:
    assert find_withholding([one], KVM1) == []


def test_a_record_without_a_host_id_withholds_by_name_or_libvirt_uuid() -> None:
    for source in (HostRef("kvm1", None, None), HostRef("old", None, KVM1.host_uuid)):
        assert find_withholding([evacuation(s.DONE, source=source)], KVM1)
        assert find_withholding([evacuation(s.DONE, source=dataclasses.replace(source, host_id=uid("id other")))], KVM1) == []


@pytest.mark.parametrize("kind", [s.LIVE_MIGRATION, s.COLD_MIGRATION, s.EVACUATION])
@pytest.mark.parametrize("status", [s.ACCEPTED, s.ERROR])
def test_a_superseded_record_withholds_the_hosts_that_it_may_have_left_a_copy_on(status: str, kind: str) -> None:
    coming, leaving = (dataclasses.replace(record("web1", *ends, status, kind=kind), superseded_by="newer") for ends in (("kvm3", "kvm1"), ("kvm1", "kvm3")))
    foreign = dataclasses.replace(record("web1", "kvm2", "kvm3", status, kind=kind), superseded_by="newer")
    assert find_withholding([coming, leaving, foreign], KVM1) == [coming, leaving]
    assert find_keeping_out([coming, leaving, foreign], KVM1) == [coming, leaving]
    assert find_withholding([coming.note(s.DESTINATION_CLEANED, "me"), coming.advance(s.FAILED, "me")], KVM1) == []


@pytest.mark.parametrize("kind", [s.LIVE_MIGRATION, s.COLD_MIGRATION, s.EVACUATION])
def test_a_superseded_record_does_not_withhold_its_source_once_that_was_cleaned(kind: str) -> None:
    one = dataclasses.replace(record("web1", "kvm1", "kvm3", s.ERROR, kind=kind), superseded_by="newer").note(s.SOURCE_CLEANED, "me")
    assert find_withholding([one], KVM1) == []
    assert find_withholding([one], HostIdentity("kvm3", uid("id kvm3"), uid("libvirt kvm3"), "m3")) == [one]


def test_unsettled_moves_of_a_host_keep_it_in_maintenance() -> None:
    leaving, coming = record("web1", "kvm1", "kvm2", s.ERROR), record("web1", "kvm3", "kvm1", s.RUNNING)
    taken, foreign = record("web1", "kvm3", "kvm1", s.DONE, kind=s.EVACUATION), record("web2", "kvm2", "kvm3", s.RUNNING)
    assert find_keeping_out([leaving, coming, taken, foreign, record("web1", "kvm1", "kvm2")], KVM1) == [leaving, coming]


def test_what_the_ledger_lost_of_other_hosts_is_no_obstacle() -> None:
    away, to, other = (
        RememberedMove(name, 1, s.EVACUATION, s.DONE, DomainRef(uid(name), name), end(source), end(destination), "ledger")
        for name, source, destination in (("web1", "kvm1", "kvm2"), ("web2", "kvm3", "kvm1"), ("web3", "kvm2", "kvm3"))
    )
    assert find_forgotten([away, to, other], KVM1) == [away, to]


def test_a_record_that_the_ledger_lost_is_an_obstacle_like_one_that_it_has() -> None:
    kept = evacuation(s.ERROR, reason=s.REASON_OPERATOR)
    lost = RememberedMove("r1", 1, s.EVACUATION, s.DONE, DomainRef(uid("web2"), "web2"), end("kvm1"), end("kvm2"), "ledger")
    found = Obstacles.from_records([kept], [lost], KVM1)
    for listed in (found.withheld_by, found.open_records):
        assert [(one.id, one.status, one.reason) for one in listed] == [(kept.id, s.ERROR, s.REASON_OPERATOR), ("r1", s.DONE, None)]


def summary(record_id: str, name: str = "web") -> RecordSummary:
    return RecordSummary(record_id, s.EVACUATION, s.DONE, None, DomainRef(name, name), "kvm1", "kvm2")


OPEN = [summary("r9", "web9")]


def cleanup(**changes: t.Any) -> Body:
    return {"cleaned": [], "superseded": [], "refused": [], "missing_records": [], **changes}


def cleaned(check_mode: bool = False, **changes: t.Any) -> CleanedHost:
    return CleanedHost.from_cleanup("kvm1", cleanup(**changes), check_mode)


def test_an_evacuation_that_the_ledger_lost_prevents_the_release() -> None:
    refused = [{"name": "web1", "record": "r1"}, {"name": "web2", "record": "r2"}]
    with pytest.raises(Unsafe, match=r"lacks the evacuations of web1 from kvm1\. Nothing was released or started there\. Settle the records"):
        cleaned(refused=refused, missing_records=[{"id": "r1"}]).check_nothing_lost()


def test_a_domain_refused_for_another_reason_does_not_prevent_the_release() -> None:
    cleaned(refused=[{"name": "web1", "record": "r1"}], missing_records=[{"id": "r7"}]).check_nothing_lost()


def test_an_open_evacuation_without_a_boot_guard_ends_the_recovery() -> None:
    with pytest.raises(Unsafe, match=r"kvm1 has no boot guard, and its evacuations of web9 are open\. No guest was started\."):
        cleaned().check_guarded(False, OPEN)
    cleaned().check_guarded(False, [])
    cleaned().check_guarded(True, OPEN)
    cleaned(check_mode=True).check_guarded(False, OPEN)


def test_the_boot_guard_is_released_only_if_installed_and_after_the_cleanup() -> None:
    done = {"cleaned": [{"record": "r1", "superseded": ["r0"]}], "superseded": [{"record": "r2"}]}
    assert cleaned(**done).can_release(True)
    assert not cleaned(**done).can_release(False)
    assert cleaned(check_mode=True).can_release(True)
    assert not cleaned(check_mode=True, **done).can_release(True)


@pytest.mark.parametrize(
    ("guard", "has_guard"),
    [
        (GuardState(installed=True), True),
        # Some of its files are missing: it still holds this boot, or has held it.
        (GuardState(installed=False, held={"at": "then"}), True),
        (GuardState(installed=False, released={"at": "then"}), True),
        (GuardState(installed=False), False),
    ],
)
def test_a_boot_guard_that_has_held_the_boot_counts_without_its_files(guard: GuardState, has_guard: bool) -> None:
    assert GuardAnswer(changed=False, guard=guard, to_start=(), damaged=()).has_guard is has_guard


def test_check_mode_ignores_records_that_the_cleanup_would_complete() -> None:
    done = {"cleaned": [{"record": "r1", "superseded": ["r0"]}, {"record": "r4"}], "superseded": [{"record": "r2"}]}
    records = [summary(f"r{number}") for number in range(5)]
    assert cleaned(check_mode=True, **done).without_predicted(records) == [summary("r3")]
    assert cleaned(**done).without_predicted(records) == records


@pytest.mark.parametrize("wrong", [None, "x", {}, cleanup(refused=[{}], missing_records=[{"id": "r1"}]), cleanup(missing_records=[5])])
def test_an_invalid_result_of_a_cleanup_is_refused(wrong: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="evacuation_cleanup"):
        CleanedHost.from_cleanup("kvm1", wrong, check_mode=False)
