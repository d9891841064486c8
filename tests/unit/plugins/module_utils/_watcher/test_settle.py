# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a move, determined from both hosts, with fakes whose answers change."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Aborted,
    Internal,
    InvalidState,
    KvmfleetError,
    MigrationFailed,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, Checkpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import record_in
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.settle import WAIT_SECONDS, Settlement
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.silent_hosts import AGAIN_SECONDS, ANSWER_SECONDS, SAFE_ANSWER_SECONDS
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.machine import FakeMachine
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import Document, acts, journal_of, record_of, state_in

TO_2 = "qemu+tcp://kvm2/system"
Where = t.Optional[t.Tuple[str, str]]

RUNNING = (domain_states.RUNNING, "booted")
ARRIVED = (domain_states.RUNNING, "migrated")
HANDED_OVER = (domain_states.PAUSED, domain_states.MIGRATION)
POST_COPY = (domain_states.PAUSED, domain_states.POST_COPY)
POST_COPY_FAILED = (domain_states.PAUSED, domain_states.POST_COPY_FAILED)
POST_COPY_THERE = (domain_states.RUNNING, domain_states.POST_COPY)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def places(fleet: FakeFleet, here: Where, there: Where) -> None:
    for machine, where in ((fleet.source, here), (fleet.destination, there)):
        if where is not None:
            fleet.guest(on=machine.name, state=where[0], reason=where[1])


def journal_at_end(folder: pathlib.Path, post_copy: bool = False, **before: t.Any) -> Journal:
    record = dataclasses.replace(record_of(status=s.RUNNING).intend("migrate"), before=Before(**before))
    if post_copy:
        record = record.advance(s.RUNNING_POST_COPY, "test")
    return journal_of(record, folder)


def settlement_of(fleet: FakeFleet, journal: Journal, figures: t.Callable[[], t.Optional[domain_states.JobStats]] = lambda: None) -> Settlement:
    return Settlement(lambda _seconds: fleet.open(LOCAL_URI), lambda _seconds: fleet.open(TO_2), journal, figures, fleet.clock, fleet.clock.sleep)


def settle(fleet: FakeFleet, folder: pathlib.Path, error: t.Optional[KvmfleetError] = None, post_copy: bool = False, **before: t.Any) -> Document:
    assert settlement_of(fleet, journal_at_end(folder, post_copy, **before)).settle_move(error, 4000) is True
    assert all(host.is_closed for host in fleet.connections)
    return state_in(folder)


def calls(machine: FakeMachine) -> t.List[str]:
    return [call.split()[0] for call in machine.calls]


@pytest.mark.parametrize(
    ("here", "there", "post_copy", "expected"),
    [
        (None, ARRIVED, False, (s.COMPLETED, None)),
        ((domain_states.SHUTOFF, "migrated"), ARRIVED, False, (s.COMPLETED, None)),
        (None, ARRIVED, True, (s.COMPLETED, None)),
        (RUNNING, None, False, (s.FAILED, None)),
        (RUNNING, (domain_states.SHUTOFF, "failed"), False, (s.FAILED, None)),
        (HANDED_OVER, ARRIVED, False, (s.COMPLETED, None)),
        (HANDED_OVER, None, False, (s.FAILED, None)),
        (HANDED_OVER, None, True, (s.ERROR, "unclear")),
        (HANDED_OVER, ARRIVED, True, (s.ERROR, "running_twice")),
        (POST_COPY_FAILED, (domain_states.CRASHED, "panicked"), True, (s.ERROR, "memory_lost")),
        (POST_COPY_FAILED, None, True, (s.ERROR, "memory_lost")),
        (None, POST_COPY_THERE, True, (s.ERROR, "memory_lost")),
        (RUNNING, ARRIVED, False, (s.ERROR, "running_twice")),
        (RUNNING, HANDED_OVER, False, (s.ERROR, "unclear")),
        (None, None, False, (s.ERROR, "guest_died")),
        ((domain_states.SHUTOFF, "crashed"), None, False, (s.ERROR, "guest_died")),
    ],
)
def test_the_final_status_follows_the_location_of_the_guest(
    fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, there: Where, post_copy: bool, expected: t.Tuple[str, t.Optional[str]]
) -> None:
    places(fleet, here, there)
    record = settle(fleet, tmp_path, post_copy=post_copy, at_destination=False)
    assert (record["status"], record["reason"]) == expected


@pytest.mark.parametrize("here", [POST_COPY, POST_COPY_FAILED])
@pytest.mark.parametrize("there", [POST_COPY_THERE, (domain_states.RUNNING, domain_states.POST_COPY_FAILED), POST_COPY_FAILED])
def test_a_broken_post_copy_is_left_to_recovery_and_no_copy_is_changed(fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, there: Where) -> None:
    places(fleet, here, there)
    journal = journal_at_end(tmp_path, post_copy=True)
    assert settlement_of(fleet, journal).settle_move(None, 4000) is False
    assert (journal.record.status, acts(journal.record)) == (s.RUNNING_POST_COPY, ["migrate"])
    assert calls(fleet.source) == calls(fleet.destination) == []
    assert all(host.is_closed for host in fleet.connections)


def test_a_recovery_that_was_given_up_is_an_unsettled_error(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, POST_COPY_FAILED, POST_COPY_THERE)
    settlement_of(fleet, journal_at_end(tmp_path, post_copy=True)).give_up("It took too long.")
    record = state_in(tmp_path)
    assert (record["status"], record["reason"], record["history"][-1]["detail"]) == (
        s.ERROR,
        "post_copy_failed",
        "It took too long. Neither copy was touched.",
    )
    assert record["status"] in s.UNSETTLED
    assert calls(fleet.source) == calls(fleet.destination) == []


def test_a_post_copy_that_finishes_unattended_is_awaited(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, POST_COPY, ARRIVED)
    fleet.clock.at(20, lambda: fleet.source.domains[UUID].enter(domain_states.SHUTOFF, "migrated"))
    record = settle(fleet, tmp_path, post_copy=True)
    assert record["status"] == s.COMPLETED
    assert UUID not in fleet.source.domains


def test_the_copy_of_the_source_is_destroyed_only_after_a_second_check_of_both(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, ARRIVED)
    order: t.List[str] = []
    fleet.before_call = lambda machine, call: order.append(f"{machine.name} {call}")
    settle(fleet, tmp_path)
    before = order[: order.index("kvm1 destroy")]
    assert before.count("kvm2 view") == 2
    assert before.count("kvm1 view") == 4
    assert calls(fleet.destination) == []


def test_the_act_to_destroy_is_recorded_first(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, ARRIVED)
    seen: t.List[t.List[str]] = []
    fleet.before_call = lambda machine, call: seen.append(acts(state_in(tmp_path))) if call == "destroy" else None
    settle(fleet, tmp_path)
    assert seen == [["migrate", "destroy_source"]]


@pytest.mark.parametrize("there", [None, (domain_states.SHUTOFF, "failed")])
def test_the_guest_is_resumed_only_after_a_second_check_of_both_hosts(fleet: FakeFleet, tmp_path: pathlib.Path, there: Where) -> None:
    places(fleet, HANDED_OVER, there)
    order: t.List[str] = []
    fleet.before_call = lambda machine, call: order.append(f"{machine.name} {call}")
    settle(fleet, tmp_path)
    assert order[: order.index("kvm1 resume")].count("kvm2 view") == 2
    assert fleet.source.domains[UUID].view().describe() == "running (unpaused)"


def test_a_transient_guest_that_left_nothing_at_its_destination_may_have_run_there(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """The processes that could have seen the end of the job are gone, and the guest may have stopped since."""
    places(fleet, HANDED_OVER, None)
    record = settle(fleet, tmp_path, persistent=False)
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert "may have run on the destination" in record["history"][-1]["detail"]
    assert calls(fleet.source) == []


@pytest.mark.parametrize(("error", "suspended"), [(MigrationFailed("lost"), False), (None, True)])
def test_a_transient_guest_is_resumed_if_the_end_of_its_job_was_seen_or_the_move_had_suspended_it(
    fleet: FakeFleet, tmp_path: pathlib.Path, error: t.Optional[KvmfleetError], suspended: bool
) -> None:
    places(fleet, HANDED_OVER, None)
    journal = journal_at_end(tmp_path, persistent=False)
    journal.record = journal.record.intend("force: suspend") if suspended else journal.record
    assert settlement_of(fleet, journal).settle_move(error, 4000) is True
    assert fleet.source.domains[UUID].view().describe() == "running (unpaused)"


def test_a_guest_found_running_by_the_second_check_is_not_resumed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, None)
    fleet.clock.at(0.1, lambda: fleet.guest(on="kvm2", reason="migrated"))
    record = settle(fleet, tmp_path)
    assert "resume" not in calls(fleet.source)
    assert (record["status"], calls(fleet.source)[0]) == (s.COMPLETED, "destroy")


HOST_ID, OTHER_ID = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01", "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"


@pytest.mark.parametrize("here", [HANDED_OVER, None, (domain_states.SHUTOFF, "migrated")])
@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (HostRef("kvm2", HOST_ID, None), OTHER_ID),
        (HostRef("kvm2", HOST_ID, None), None),
        (HostRef("kvm2", None, "30313436-3631-5a43-3235-303830305a54"), None),
    ],
)
def test_a_host_that_is_not_the_destination_proves_nothing_by_lacking_the_guest(
    fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, recorded: HostRef, shown: t.Optional[str]
) -> None:
    places(fleet, here, None)
    fleet.destination.host_id = shown
    journal = journal_at_end(tmp_path)
    journal.record = dataclasses.replace(journal.record, destination=recorded)
    assert settlement_of(fleet, journal).settle_move(None, 4000) is True
    record = state_in(tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    detail = record["history"][-1]["detail"]
    assert "What answers as kvm2 is not the host to which the domain was moved" in detail
    assert "settle the record with kvmfleet.migration.host" in detail
    assert calls(fleet.source) == calls(fleet.destination) == []


@pytest.mark.parametrize("shown", [HOST_ID, None])
def test_the_guest_is_resumed_if_its_destination_itself_lacks_it(fleet: FakeFleet, tmp_path: pathlib.Path, shown: t.Optional[str]) -> None:
    """A host whose libvirt has no storage driver shows no host ID."""
    places(fleet, HANDED_OVER, None)
    fleet.destination.host_id = shown
    journal = journal_at_end(tmp_path)
    journal.record = dataclasses.replace(journal.record, destination=HostRef("kvm2", HOST_ID, fleet.destination.host_uuid))
    assert settlement_of(fleet, journal).settle_move(None, 4000) is True
    assert (state_in(tmp_path)["status"], fleet.source.domains[UUID].view().describe()) == (s.FAILED, "running (unpaused)")


def test_a_move_whose_guest_runs_on_the_source_needs_no_identity_of_its_destination(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, None)
    journal = journal_at_end(tmp_path)
    journal.record = dataclasses.replace(journal.record, destination=HostRef("kvm2", HOST_ID, None))
    assert settlement_of(fleet, journal).settle_move(None, 4000) is True
    assert state_in(tmp_path)["status"] == s.FAILED


@pytest.mark.parametrize(("here", "may_have_begun"), [(RUNNING, False), ((domain_states.SHUTOFF, "shutdown"), False), ((domain_states.SHUTOFF, ""), True)])
def test_a_move_without_a_known_job_needs_no_identity_of_its_destination_and_may_have_begun_where_nothing_shows_why_the_guest_is_off(
    fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, may_have_begun: bool
) -> None:
    places(fleet, here, None)
    fleet.destination.host_id = OTHER_ID
    journal = journal_of(dataclasses.replace(record_of(status=s.PREPARING), destination=HostRef("kvm2", HOST_ID, None)), tmp_path)
    assert settlement_of(fleet, journal).settle_move(None, None) is True
    record = state_in(tmp_path)
    assert (record["status"], record["reason"]) == (s.CANCELLED, s.REASON_CONTROLLER_LOST)
    assert ("its job may have begun" in record["history"][-1]["detail"]) is may_have_begun


@pytest.mark.parametrize(
    "end", [lambda fleet: fleet.destination.remove(UUID), lambda fleet: fleet.destination.domains[UUID].enter(domain_states.SHUTOFF, "destroyed")]
)
def test_a_guest_that_ran_at_the_destination_and_vanished_is_unclear(fleet: FakeFleet, tmp_path: pathlib.Path, end: t.Callable[[FakeFleet], object]) -> None:
    places(fleet, HANDED_OVER, ARRIVED)
    fleet.clock.at(0.1, lambda: end(fleet))
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert calls(fleet.source) == []


@pytest.mark.parametrize("there", [(domain_states.CRASHED, "panicked"), (domain_states.SHUTOFF, "crashed")])
def test_a_guest_that_crashed_at_the_destination_is_unclear(fleet: FakeFleet, tmp_path: pathlib.Path, there: Where) -> None:
    places(fleet, HANDED_OVER, there)
    record = settle(fleet, tmp_path, at_destination=False)
    assert (record["status"], record["reason"], calls(fleet.source)) == (s.ERROR, "unclear", [])


@pytest.mark.parametrize("reason", ["shutdown", "destroyed", "saved", ""])
def test_a_guest_that_may_have_run_at_the_destination_is_unclear(fleet: FakeFleet, tmp_path: pathlib.Path, reason: str) -> None:
    """Its definition is there since the move: nothing is resumed, and nothing is removed."""
    places(fleet, HANDED_OVER, (domain_states.SHUTOFF, reason))
    record = settle(fleet, tmp_path, at_destination=False)
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert (calls(fleet.source), calls(fleet.destination)) == ([], [])
    assert "may have run on the destination" in record["history"][-1]["detail"]
    assert "virsh resume" in record["history"][-1]["detail"]


def settle_again(fleet: FakeFleet, folder: pathlib.Path) -> Document:
    """Settle a move that ended without an answer of a host, as a later process does."""
    assert settlement_of(fleet, journal_of(read_record(record_in(state_in(folder))), folder)).settle_move(None, None) is True
    return state_in(folder)


@pytest.mark.parametrize("at_destination", [True, False])
@pytest.mark.parametrize(
    ("here", "reason", "expected"),
    [
        (HANDED_OVER, "shutdown", (s.ERROR, "unclear")),
        (HANDED_OVER, "destroyed", (s.ERROR, "unclear")),
        (HANDED_OVER, "failed", (s.ERROR, "unclear")),
        (None, "shutdown", (s.COMPLETED, None)),
        (None, "", (s.ERROR, "guest_died")),
        (RUNNING, "shutdown", (s.FAILED, None)),
    ],
)
def test_a_later_settlement_knows_that_the_guest_ran_at_its_destination(
    fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, reason: str, expected: t.Tuple[str, t.Optional[str]], at_destination: bool
) -> None:
    """The source was silent while it ran there; it was stopped there before the source answered again."""
    places(fleet, here, ARRIVED)
    fleet.source.go_dark()
    assert settle(fleet, tmp_path, at_destination=at_destination)["reason"] == "unreachable"
    fleet.source.come_back()
    fleet.destination.domains[UUID].enter(domain_states.SHUTOFF, reason)
    record = settle_again(fleet, tmp_path)
    assert (record["status"], record["reason"]) == expected
    assert "arrived" in [line["status"] for line in record["history"]]
    assert (calls(fleet.source), calls(fleet.destination)) == ([], [])


def test_a_guest_whose_start_at_the_destination_failed_is_resumed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, (domain_states.SHUTOFF, "failed"))
    record = settle(fleet, tmp_path, at_destination=False)
    assert (record["status"], calls(fleet.source), UUID in fleet.destination.domains) == (s.FAILED, ["resume"], False)


def test_a_destination_lost_between_the_two_checks_is_unreachable(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, ARRIVED)
    fleet.clock.at(0.1, fleet.destination.go_dark)
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert calls(fleet.source) == []


def test_a_guest_that_was_paused_before_is_not_resumed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, None)
    assert settle(fleet, tmp_path, state=domain_states.PAUSED)["status"] == s.FAILED
    assert calls(fleet.source) == []


def test_answers_that_keep_changing_are_unclear(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, None)
    reasons = ["unpaused", "booted"]

    def flip(machine: FakeMachine, call: str) -> None:
        if machine is fleet.source and call == "view":
            reasons.reverse()
            machine.domains[UUID].enter(domain_states.RUNNING, reasons[0])

    fleet.before_call = flip
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert "kept changing" in record["history"][-1]["detail"]
    assert WAIT_SECONDS <= fleet.clock() < WAIT_SECONDS + 5
    assert calls(fleet.source) == []


@pytest.mark.parametrize("dark", ["kvm1", "kvm2"])
@pytest.mark.parametrize("seconds", [30, 145, 570])
def test_a_host_that_returns_in_time_is_asked_again(fleet: FakeFleet, tmp_path: pathlib.Path, dark: str, seconds: int) -> None:
    places(fleet, None, ARRIVED)
    fleet.machines[dark].go_dark()
    fleet.clock.at(seconds, fleet.machines[dark].come_back)
    assert settle(fleet, tmp_path)["status"] == s.COMPLETED
    assert fleet.clock() < seconds + 15


def test_an_aborted_move_is_settled_when_a_slow_destination_answers(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, None)
    fleet.destination.go_dark()
    fleet.clock.at(145, fleet.destination.come_back)
    journal = journal_at_end(tmp_path)
    journal.intend_act("abort: operator")
    settlement_of(fleet, journal).settle_move(Aborted("canceled by client"), 4000)
    assert state_in(tmp_path)["status"] == s.CANCELLED


@pytest.mark.parametrize(
    ("here", "limit"),
    [
        (None, ANSWER_SECONDS),
        (HANDED_OVER, ANSWER_SECONDS),
        (POST_COPY_FAILED, ANSWER_SECONDS),
        ((domain_states.PAUSED, "user"), ANSWER_SECONDS),
        (RUNNING, SAFE_ANSWER_SECONDS),
    ],
)
def test_the_limit_for_a_silent_destination_depends_on_the_source(fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, limit: float) -> None:
    places(fleet, here, ARRIVED)
    fleet.destination.go_dark()
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert limit <= fleet.clock() < limit + 15
    detail = record["history"][-1]["detail"]
    assert "no answer on the destination" in detail
    assert f"The destination {record['destination']['host']} did not answer for " in detail
    assert "run the same task again" in detail


def test_a_move_that_never_began_waits_only_briefly_for_a_silent_destination(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, None)
    fleet.destination.go_dark()
    assert settlement_of(fleet, journal_of(record_of(status=s.PREPARING), tmp_path)).settle_move(None, None)
    assert state_in(tmp_path)["reason"] == "unreachable"
    assert fleet.clock() < WAIT_SECONDS + 15


def test_a_record_in_error_waits_only_briefly_for_a_silent_destination(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.go_dark()
    journal = journal_of(record_of(status=s.ERROR), tmp_path)
    assert settlement_of(fleet, journal).settle_move(None, None)
    assert AGAIN_SECONDS <= fleet.clock() < AGAIN_SECONDS + 15


def test_the_state_file_names_the_host_that_settling_waits_for(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.go_dark()
    told: t.List[t.Mapping[str, t.Any]] = []
    fleet.clock.at(100, lambda: told.append(state_in(tmp_path)))
    fleet.clock.at(145, fleet.destination.come_back)
    after = settle(fleet, tmp_path)
    assert f"no answer from the destination {after['destination']['host']} since" in told[0]["waits_for"]
    assert told[0]["status"] == s.RUNNING
    assert "waits_for" not in record_in(told[0])
    assert "waits_for" not in after


def test_a_slow_host_gets_more_time_at_each_attempt(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    given: t.List[float] = []

    def slow(seconds: float) -> Host:
        given.append(seconds)
        fleet.clock.sleep(min(seconds, 70))
        if seconds < 70:
            raise Unreachable(f"It did not answer within {seconds:.0f} s.")
        return fleet.open(TO_2)

    settlement = Settlement(lambda _seconds: fleet.open(LOCAL_URI), slow, journal_at_end(tmp_path), lambda: None, fleet.clock, fleet.clock.sleep)
    assert settlement.settle_move(None, 4000) is True
    assert (state_in(tmp_path)["status"], given) == (s.COMPLETED, [20, 40, 80])


def test_an_incoming_domain_gets_30_seconds_after_a_silence_of_the_destination(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, HANDED_OVER)
    fleet.destination.go_dark()
    fleet.clock.at(100, fleet.destination.come_back)
    fleet.clock.at(135, lambda: fleet.destination.remove(UUID))
    assert settle(fleet, tmp_path)["status"] == s.FAILED


@pytest.mark.parametrize("dark", ["kvm1", "kvm2"])
def test_a_host_that_stays_silent_leaves_the_record_unsettled(fleet: FakeFleet, tmp_path: pathlib.Path, dark: str) -> None:
    places(fleet, RUNNING, ARRIVED)
    fleet.machines[dark].go_dark()
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert "no answer on the " + ("source" if dark == "kvm1" else "destination") in record["history"][-1]["detail"]
    assert record["status"] in s.UNSETTLED
    assert calls(fleet.source) == calls(fleet.destination) == []


@pytest.mark.parametrize(
    ("here", "post_copy", "expected"),
    [
        (RUNNING, False, (300, 321)),
        (RUNNING, True, (50, 1)),
        (HANDED_OVER, False, (50, 1)),
    ],
)
def test_a_guest_that_runs_as_before_gets_back_its_limits_although_the_destination_is_silent(
    fleet: FakeFleet, tmp_path: pathlib.Path, here: Where, post_copy: bool, expected: t.Tuple[int, int]
) -> None:
    places(fleet, here, None)
    domain = fleet.source.domains[UUID]
    domain.max_downtime_ms, domain.bandwidth_mib = 50, 1
    fleet.destination.go_dark()
    record = settle(fleet, tmp_path, post_copy=post_copy, max_downtime_ms=300, bandwidth_mib=321)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert (domain.max_downtime_ms, domain.bandwidth_mib) == expected


@pytest.mark.parametrize("side", ["kvm1", "kvm2"])
def test_an_error_in_an_answer_counts_as_no_answer(fleet: FakeFleet, tmp_path: pathlib.Path, side: str) -> None:
    places(fleet, None, ARRIVED)
    fleet.machines[side].refuse["view"] = Internal("unexpected")
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")


def test_unreadable_statistics_do_not_prevent_completed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.refuse["completed_job"] = Internal("unexpected")
    assert settle(fleet, tmp_path)["status"] == s.COMPLETED


def test_an_incoming_domain_gets_30_seconds_to_disappear(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, HANDED_OVER)
    fleet.clock.at(31, lambda: fleet.destination.remove(UUID))
    assert settle(fleet, tmp_path)["status"] == s.FAILED


def test_a_failed_destroy_is_noted_and_the_record_is_an_error(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, HANDED_OVER, ARRIVED)
    fleet.source.refuse["destroy"] = InvalidState("Failed to destroy domain: device busy")
    record = settle(fleet, tmp_path)
    assert record["status"] == s.ERROR
    assert any(line["status"] == "destroy_source_failed" and "device busy" in line["detail"] for line in record["history"])
    assert fleet.destination.domains[UUID].active


def test_a_definition_that_cannot_be_removed_is_definition_left(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, (domain_states.SHUTOFF, "migrated"), ARRIVED)
    fleet.source.refuse["undefine"] = InvalidState("no")
    record = settle(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.COMPLETED, "definition_left")


@pytest.mark.parametrize(("before", "expected"), [(True, True), (False, False), (None, True)])
def test_an_old_definition_does_not_give_the_guest_its_autostart(fleet: FakeFleet, tmp_path: pathlib.Path, before: bool | None, expected: bool) -> None:
    """libvirt keeps the setting of a definition that was at the destination before."""
    places(fleet, None, ARRIVED)
    fleet.destination.domains[UUID].autostart = True
    known = {"persistent": True, "at_destination": True, "autostart_at_destination": True}
    assert settle(fleet, tmp_path, autostart=before, **known)["status"] == s.COMPLETED
    assert fleet.destination.domains[UUID].autostart is expected


def test_autostart_that_did_not_come_from_an_old_definition_is_left_alone(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """A person has set it since. The records of another tool's job, and those of earlier versions, do not tell."""
    places(fleet, None, ARRIVED)
    fleet.destination.domains[UUID].autostart = True
    assert settle(fleet, tmp_path, autostart=False, persistent=True, at_destination=True)["status"] == s.COMPLETED
    assert fleet.destination.domains[UUID].autostart is True


def test_the_autostart_of_a_transient_guest_is_left_alone(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    record = settle(fleet, tmp_path, autostart=False, persistent=False, at_destination=True, autostart_at_destination=True)
    assert (record["status"], acts(record)) == (s.COMPLETED, ["migrate"])


@pytest.mark.parametrize(("at_destination", "kept"), [(True, True), (False, False)])
def test_only_a_definition_that_came_with_the_move_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path, at_destination: bool, kept: bool) -> None:
    places(fleet, RUNNING, (domain_states.SHUTOFF, "failed"))
    settle(fleet, tmp_path, at_destination=at_destination)
    assert (UUID in fleet.destination.domains) is kept


def test_a_definition_with_saved_memory_is_kept(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """It came with the move, so the memory is newer than that on the source."""
    places(fleet, RUNNING, (domain_states.SHUTOFF, "saved"))
    fleet.destination.saved_memory["web1"] = "/var/lib/libvirt/qemu/save/web1.save"
    record = settle(fleet, tmp_path, at_destination=False)
    assert UUID in fleet.destination.domains
    assert any(line["status"] == "undefine_destination_failed" for line in record["history"])


def test_a_definition_of_unknown_origin_is_kept(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, (domain_states.SHUTOFF, "failed"))
    settle(fleet, tmp_path)
    assert UUID in fleet.destination.domains


@pytest.mark.parametrize(
    ("error", "abort", "expected"),
    [
        (Aborted("canceled by client"), None, (s.CANCELLED, "operator")),
        (Aborted("canceled by client"), "timeout", (s.CANCELLED, "timeout")),
        (MigrationFailed("reset"), "stalled", (s.CANCELLED, "stalled")),
        (MigrationFailed("reset"), None, (s.FAILED, None)),
        (None, None, (s.FAILED, None)),
    ],
)
def test_the_status_of_a_guest_that_stayed_follows_error_and_abort(
    fleet: FakeFleet, tmp_path: pathlib.Path, error: t.Optional[KvmfleetError], abort: t.Optional[str], expected: t.Tuple[str, t.Optional[str]]
) -> None:
    places(fleet, RUNNING, None)
    record = record_of(status=s.RUNNING).intend("migrate")
    if abort:
        record = record.intend(f"abort: {abort}")
    journal = journal_of(record, tmp_path)
    assert settlement_of(fleet, journal).settle_move(error, 4000) is True
    assert (journal.record.status, journal.record.reason) == expected
    assert journal.record.result.elapsed_ms == 4000


# -- figures, and what the abort's end says ------------------------------------------------------------------------


def test_statistics_of_the_source_take_precedence(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.domains[UUID].completed = domain_states.JobStats(downtime_ms=99)
    settlement_of(fleet, journal_at_end(tmp_path), lambda: domain_states.JobStats(downtime_ms=12)).settle_move(None, 4000)
    assert state_in(tmp_path)["result"]["downtime_ms"] == 12


def test_statistics_of_the_destination_are_used_if_the_source_has_none(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.domains[UUID].completed = domain_states.JobStats(downtime_ms=99)
    assert settle(fleet, tmp_path)["result"]["downtime_ms"] == 99


def test_the_completion_event_is_awaited_only_after_post_copy(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    for post_copy in (True, False):
        other = FakeFleet()
        places(other, None, ARRIVED)
        told = [None, None, domain_states.JobStats(downtime_ms=7)]
        folder = tmp_path / str(post_copy)
        folder.mkdir()
        settlement_of(other, journal_at_end(folder, post_copy), lambda told=told: told.pop(0)).settle_move(None, 4000)  # type: ignore[misc]
        assert state_in(folder)["result"]["downtime_ms"] == (7 if post_copy else None)


def test_only_an_abort_of_an_operator_records_its_end(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    for reason, count in (("operator", 1), ("timeout", 0)):
        other = FakeFleet()
        places(other, RUNNING, None)
        folder = tmp_path / reason
        folder.mkdir()
        journal = journal_at_end(folder)
        journal.intend_act(f"abort: {reason}")
        settlement_of(other, journal).settle_move(Aborted("canceled by client"), 4000)
        assert [line["status"] for line in state_in(folder)["history"]].count("abort_end") == count


@pytest.mark.parametrize(("ours", "expected"), [(True, ["resume"]), (False, [])])
def test_only_a_guest_suspended_by_the_watcher_is_resumed(fleet: FakeFleet, tmp_path: pathlib.Path, ours: bool, expected: t.List[str]) -> None:
    places(fleet, (domain_states.PAUSED, "user"), None)
    journal = journal_at_end(tmp_path, state=domain_states.RUNNING)
    if ours:
        journal.intend_act("force: suspend")
    settlement_of(fleet, journal).settle_move(MigrationFailed("reset"), 4000)
    assert (calls(fleet.source), state_in(tmp_path)["status"]) == (expected, s.FAILED)


# -- checkpoints ---------------------------------------------------------------------------------------------------

CHAIN = (Checkpoint("monday", "<domaincheckpoint><name>monday</name></domaincheckpoint>"), Checkpoint("tuesday", "<domaincheckpoint/>"))


def test_checkpoints_are_defined_at_the_destination_before_the_move_is_completed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, (domain_states.SHUTOFF, "migrated"), ARRIVED)
    record = settle(fleet, tmp_path, checkpoints=CHAIN)
    assert (record["status"], record["reason"]) == (s.COMPLETED, None)
    assert fleet.destination.domain(UUID).checkpoints == CHAIN
    assert acts(record) == ["migrate", "redefine_checkpoints", "undefine_source"]


def test_checkpoints_that_are_defined_already_stay_as_they_are(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.domain(UUID).checkpoints = CHAIN[:1]
    assert settle(fleet, tmp_path, checkpoints=CHAIN)["reason"] is None
    assert fleet.destination.domain(UUID).checkpoints == CHAIN


def test_a_checkpoint_without_its_bitmap_is_named_and_the_move_is_completed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    fleet.destination.broken_bitmaps.add("monday")
    record = settle(fleet, tmp_path, checkpoints=CHAIN)
    assert (record["status"], record["reason"]) == (s.COMPLETED, "checkpoints_lost")
    (why,) = [line["detail"] for line in record["history"] if line["status"] == "redefine_checkpoints_failed"]
    assert why.startswith("monday cannot be used at the destination: checkpoint inconsistent: missing or broken bitmap 'monday'")
    assert why.endswith("Begin a new chain with a full backup.")
    assert fleet.destination.domain(UUID).checkpoints == CHAIN[1:]


def test_a_destination_that_is_lost_while_it_gets_the_checkpoints_is_asked_again(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, None, ARRIVED)
    go_dark = iter([fleet.destination.go_dark])
    fleet.before_call = lambda machine, call: next(go_dark, lambda: None)() if call == "redefine_checkpoint" else None
    fleet.clock.at(20, fleet.destination.come_back)
    record = settle(fleet, tmp_path, checkpoints=CHAIN)
    assert (record["status"], record["reason"]) == (s.COMPLETED, None)
    assert fleet.destination.domain(UUID).checkpoints == CHAIN


def test_checkpoints_of_a_guest_that_did_not_move_are_not_touched(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    places(fleet, RUNNING, None)
    assert settle(fleet, tmp_path, MigrationFailed("no"), checkpoints=CHAIN, at_destination=False)["status"] == s.FAILED
    assert "redefine_checkpoint" not in calls(fleet.source) + calls(fleet.destination)
