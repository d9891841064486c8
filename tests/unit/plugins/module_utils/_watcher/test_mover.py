# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One move from its order to its outcome, between fake hosts."""

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
import re
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Aborted, Internal, MigrationFailed, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, Checkpoint, Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder, read_state
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import AlreadyWatched, Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import MAX_TRIES, ArrivalEvents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import (
    ABORT,
    BANDWIDTH,
    FORCE_COMPLETE,
    Intent,
    leave_intent,
    new_intent,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import CALL_OUTLIVES_SECONDS, UNREACHABLE_SECONDS, Mover
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.settle import WAIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.unit.fakes import domain as fake_domain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB, MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.migration import FakeMigration
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import (
    acts,
    carry_out,
    journal_of,
    mover_of,
    order_of,
    record_of,
    state_in,
    statuses,
)

BUSY = {"dirty_bytes": 256 * MIB, "dirty_rate_bytes": 200 * MIB}


def act_on_first(fleet: FakeFleet, act: t.Callable[[FakeMigration], None]) -> t.Callable[[], None]:
    """Do that to the fleet's first migration, which need not be there yet."""
    return lambda: act(fleet.migrations[0])


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def add_slow_guest(fleet: FakeFleet, **how: t.Any) -> None:
    """A guest that does not converge: it writes faster than the link carries."""
    fleet.link_mib = 100
    fleet.guest(**{**BUSY, **how})


# -- ends ----------------------------------------------------------------------------------------------------------


def test_the_move_of_an_idle_guest_completes(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    record = carry_out(fleet, tmp_path)
    assert statuses(record) == [s.PREPARING, s.RUNNING, s.COMPLETED]
    assert acts(record) == ["migrate"]
    assert record["progress"]["percent"] == 100
    assert record["result"]["mode"] == "pre-copy"
    assert record["result"]["elapsed_ms"] > 900
    assert record["result"]["bytes"] >= GIB
    assert fleet.source.domains == {}
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"


def test_a_completed_move_closes_all_connections(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    carry_out(fleet, tmp_path)
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_a_move_that_was_not_started_closes_all_connections(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=domain_states.SHUTOFF)
    carry_out(fleet, tmp_path)
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_the_migrate_call_has_its_own_connection(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    before: t.List[t.Tuple[str, int]] = []
    fleet.before_call = lambda machine, call: before.append((call, len(fleet.connections)))
    carry_out(fleet, tmp_path, timeout_seconds=5)
    at_start = next(count for call, count in before if call == "migrate")
    assert min(count for call, count in before if call == "abort") > at_start


def test_a_transient_guest_stays_transient(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(persistent=False)
    assert carry_out(fleet, tmp_path, persistent=False)["status"] == s.COMPLETED
    assert fleet.destination.domains[UUID].persistent is False


def test_autostart_is_set_at_the_destination(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(autostart=True)
    carry_out(fleet, tmp_path)
    assert fleet.destination.domains[UUID].autostart is True


def test_a_paused_guest_arrives_paused(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=domain_states.PAUSED, reason="user")
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["before"]["state"]) == (s.COMPLETED, domain_states.PAUSED)
    assert fleet.destination.domains[UUID].view().describe() == "paused (user)"
    assert not [call for machine in fleet.machines.values() for call in machine.calls if call.startswith("resume")]


def test_the_ramp_completes_a_move_that_a_short_downtime_cannot(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.link_mib = 500
    fleet.guest(dirty_bytes=160 * MIB, dirty_rate_bytes=600 * MIB)
    record = carry_out(fleet, tmp_path, timeout_seconds=60)
    assert record["status"] == s.COMPLETED
    allowed = [sample["allowed_downtime_ms"] for sample in record["samples"]]
    assert allowed == sorted(allowed)
    assert allowed[0] == 50
    assert 300 < allowed[-1] <= 500
    assert 0 < record["result"]["downtime_ms"] <= allowed[-1]


@pytest.mark.parametrize("timeout", [3, 20])
def test_a_guest_that_never_converges_is_aborted_after_the_timeout(fleet: FakeFleet, tmp_path: pathlib.Path, timeout: int) -> None:
    add_slow_guest(fleet)
    record = carry_out(fleet, tmp_path, timeout_seconds=timeout)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "timeout")
    assert acts(record).count("abort: timeout") == 1
    assert timeout * 1000 <= record["result"]["elapsed_ms"] <= timeout * 1000 + 1500
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    assert fleet.destination.domains == {}
    assert record["progress"]["percent"] < 100


def test_a_stalled_stream_is_aborted_before_the_timeout(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(4, lambda: setattr(fleet.migrations[0], "link_bytes", 0))
    record = carry_out(fleet, tmp_path, stall_seconds=10)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "stalled")
    assert 13 < fleet.clock() < 17


def test_a_stream_that_stalls_briefly_completes(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet, dirty_rate_bytes=0)
    fleet.clock.at(4, lambda: setattr(fleet.migrations[0], "link_bytes", 0))
    fleet.clock.at(12, lambda: setattr(fleet.migrations[0], "link_bytes", 100 * MIB))
    assert carry_out(fleet, tmp_path, stall_seconds=10)["status"] == s.COMPLETED


def test_a_failed_job_leaves_the_guest_on_its_source(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, act_on_first(fleet, FakeMigration.fail))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.FAILED, None)
    assert "Unable to write to socket" in record["history"][-1]["detail"]
    assert "running (booted) on the source" in record["history"][-1]["detail"]


def test_a_migrate_call_that_outlives_its_job_is_given_up(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """As where QEMU hangs at the destination: the source has cancelled, and libvirt waits for the other side without a limit."""
    add_slow_guest(fleet)

    def hang(migration: FakeMigration) -> None:
        migration.is_over = True
        fleet.source.domains[UUID].job = domain_states.JOB_NONE

    fleet.clock.at(2, act_on_first(fleet, hang))
    record = carry_out(fleet, tmp_path)
    fleet.migrations[0].ended.set()
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert fleet.clock() <= 2 + CALL_OUTLIVES_SECONDS + WAIT_SECONDS + 5
    assert fleet.source.domains[UUID].view().state == domain_states.RUNNING


def test_an_abort_outside_the_collection_counts_as_operator(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, lambda: fleet.open(LOCAL_URI).abort_job(UUID))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "operator")


def test_a_migrate_call_that_fails_after_the_arrival_is_completed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(
        2, lambda: fleet.migrations[0].end(MigrationFailed("client socket is closed"), (domain_states.SHUTOFF, "migrated"), (domain_states.RUNNING, "migrated"))
    )
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.COMPLETED
    assert UUID not in fleet.source.domains, "the definition that was left behind"


def test_a_migrate_call_that_succeeds_while_the_guest_dies_is_an_error(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)

    def die() -> None:
        fleet.migrations[0].complete()
        fleet.destination.domains[UUID].enter(domain_states.CRASHED, "panicked")

    fleet.clock.at(2, die)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "guest_died")


def test_a_guest_that_shuts_down_during_the_move_is_guest_died(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(MigrationFailed("domain is not running"), (domain_states.SHUTOFF, "shutdown"), None))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "guest_died")
    assert fleet.source.domains[UUID].persistent, "a definition is never removed where no copy runs"


# -- before the job ------------------------------------------------------------------------------------------------


def test_a_guest_that_is_missing_before_the_start_is_an_error(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.ERROR
    assert acts(record) == []
    assert fleet.migrations == []


@pytest.mark.parametrize(("state", "reason"), [(domain_states.SHUTOFF, "shutdown"), (domain_states.CRASHED, "panicked")])
def test_a_guest_that_is_inactive_before_the_start_is_failed(fleet: FakeFleet, tmp_path: pathlib.Path, state: str, reason: str) -> None:
    fleet.guest(state=state, reason=reason)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "Nothing was started" in record["history"][-1]["detail"]
    assert fleet.migrations == []


def test_a_copy_that_is_active_at_the_destination_is_running_twice(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.guest(on="kvm2")
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "running_twice")
    assert all(machine.domains[UUID].active for machine in fleet.machines.values())
    assert [machine.calls for machine in fleet.machines.values()] == [[], []]


@pytest.mark.parametrize(("marked", "expected"), [(True, False), (False, True)])
def test_only_an_old_mark_for_autostart_is_taken_away(fleet: FakeFleet, tmp_path: pathlib.Path, marked: bool, expected: bool) -> None:
    """A person marks the guest at its destination while it arrives."""
    add_slow_guest(fleet)
    fleet.guest(on="kvm2", state=domain_states.SHUTOFF, reason="shutdown", autostart=marked)
    fleet.clock.at(2, lambda: setattr(fleet.destination.domains[UUID], "autostart", True))
    fleet.clock.at(3, act_on_first(fleet, FakeMigration.complete))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["before"].get("autostart_at_destination", False)) == (s.COMPLETED, marked)
    assert fleet.destination.domains[UUID].autostart is expected


def test_a_definition_that_was_at_the_destination_before_survives_a_failed_move(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.guest(on="kvm2", state=domain_states.SHUTOFF, reason="shutdown")
    fleet.clock.at(2, act_on_first(fleet, FakeMigration.fail))
    assert carry_out(fleet, tmp_path)["status"] == s.FAILED
    assert UUID in fleet.destination.domains


def test_a_guest_does_not_arrive_beside_an_image_of_its_older_memory(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """libvirt leaves a managed-save image of that domain alone, and its next start would resume that memory with disks that were written since."""
    fleet.guest()
    fleet.guest(on="kvm2", state=domain_states.SHUTOFF, reason="saved")
    fleet.destination.saved_memory["web1"] = "older memory"
    record = carry_out(fleet, tmp_path)
    assert (record["status"], fleet.migrations) == (s.FAILED, [])
    assert "has a managed-save image of domain web1" in record["history"][-1]["detail"]
    assert (fleet.source.domains[UUID].active, fleet.destination.saved_memory) == (True, {"web1": "older memory"})
    assert UUID in fleet.destination.domains


def test_a_definition_that_the_failed_move_left_at_the_destination_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(MigrationFailed("reset"), (domain_states.RUNNING, "booted"), (domain_states.SHUTOFF, "failed")))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], acts(record)[-1]) == (s.FAILED, "undefine_destination")
    assert fleet.destination.domains == {}


def test_a_destination_that_is_silent_at_the_start_is_unreachable(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.destination.go_dark()
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert fleet.migrations == []
    assert fleet.source.domains[UUID].active


def test_a_migration_that_libvirt_refuses_is_failed_with_its_message(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.refuse_to_migrate = MigrationFailed("Failed to move domain: unsupported configuration")
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "unsupported configuration" in record["history"][-1]["detail"]


DROPPED = MigrationFailed(
    "Failed to move domain: operation failed: Failed to connect to remote libvirt URI qemu+ssh://kvm2/system: Cannot recv data: "
    "kex_exchange_identification: Connection closed by remote host: Connection reset by peer"
)


def drop_logins(fleet: FakeFleet, times: int, act: t.Callable[[], object] = lambda: None) -> t.List[float]:
    """Let this many migrate calls fail as when the SSH server drops libvirt's login, and do something at each; return when they were made."""
    called: t.List[float] = []

    def drop(_machine: object, call: str) -> None:
        if call == "migrate":
            called.append(fleet.clock())
            fleet.refuse_to_migrate = DROPPED if len(called) <= times else None
            act()

    fleet.before_call = drop
    return called


def test_a_migrate_call_whose_login_was_dropped_is_repeated(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    domain.max_downtime_ms = 777
    called = drop_logins(fleet, 2)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(called)) == (s.COMPLETED, 3)
    assert acts(record) == ["migrate"] * 3
    dropped = [line["detail"] for line in record["history"] if line["status"] == "login_dropped"]
    assert len(dropped) == 2
    assert "kex_exchange_identification" in dropped[0]
    assert record["before"]["max_downtime_ms"] == 777
    assert record["before"]["at_destination"] is False
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_a_move_fails_after_the_last_dropped_login(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    domain.max_downtime_ms = 777
    called = drop_logins(fleet, 100)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(called)) == (s.FAILED, MAX_TRIES)
    assert "kex_exchange_identification" in record["history"][-1]["detail"]
    assert called[-1] < 60
    assert (fleet.source.domains[UUID].view().describe(), domain.max_downtime_ms) == ("running (booted)", 777)


def test_a_move_that_waits_for_its_next_login_reports_it_and_can_be_aborted(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    called = drop_logins(fleet, 100)
    told: t.List[str] = []
    order = order_of(record_of())

    def abort() -> None:
        told.append(state_in(tmp_path)["waits_for"])
        leave_order(order, ABORT, tmp_path)

    fleet.clock.at(1, abort)
    mover = mover_of(fleet, order, tmp_path)
    mover.run()
    record = state_in(tmp_path)
    assert told == ["waits for attempt 2 of 5: kvm2 dropped the login of this host's libvirt"]
    assert (record["status"], record["reason"], len(called)) == (s.CANCELLED, "operator", 1)
    assert "waits_for" not in record


def test_a_guest_that_is_shut_off_before_the_next_login_is_not_moved(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    called = drop_logins(fleet, 100)
    fleet.clock.at(0.6, lambda: fleet.source.domains[UUID].enter(domain_states.SHUTOFF, "shutdown"))
    carry_out(fleet, tmp_path)
    assert (len(called), fleet.migrations) == (1, [])


def test_a_connection_that_breaks_after_memory_was_sent_is_not_repeated(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, act_on_first(fleet, lambda migration: migration.end(DROPPED, (domain_states.RUNNING, "migration canceled"), None)))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(fleet.migrations)) == (s.FAILED, 1)


def test_a_downtime_that_is_refused_before_the_start_fails_the_move(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.source.refuse["set_max_downtime_ms"] = NotFound("no domain")
    assert carry_out(fleet, tmp_path)["status"] == s.FAILED
    assert fleet.migrations == []


# -- hosts that stop answering -------------------------------------------------------------------------------------


def test_a_restart_of_the_source_daemon_fails_the_move(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)

    def restart() -> None:
        fleet.source.go_dark()
        fleet.migrations[0].end(Unreachable("End of file while reading data"), (domain_states.RUNNING, "migration canceled"), None)

    fleet.clock.at(2, restart)
    fleet.clock.at(5, fleet.source.come_back)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "running (migration canceled) on the source" in record["history"][-1]["detail"]


def test_a_source_that_returns_in_time_is_followed_further(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet, dirty_rate_bytes=0)
    fleet.clock.at(2, fleet.source.go_dark)
    fleet.clock.at(4, fleet.source.come_back)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.COMPLETED
    assert [line["status"] for line in record["history"]].count("source_lost") == 1


def test_a_destination_that_is_lost_during_the_move_is_unreachable(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)

    def lose() -> None:
        fleet.destination.go_dark()
        fleet.migrations[0].end(MigrationFailed("client socket is closed"), (domain_states.RUNNING, "booted"), (domain_states.PAUSED, domain_states.MIGRATION))

    fleet.clock.at(2, lose)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert "no answer on the destination" in record["history"][-1]["detail"]
    assert fleet.source.domains[UUID].active


def test_a_watcher_that_takes_over_gives_up_on_a_silent_source(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.source.go_dark()
    record = carry_out(fleet, tmp_path, adopt=True, status=s.RUNNING)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert UNREACHABLE_SECONDS <= fleet.clock() < UNREACHABLE_SECONDS + 120


# -- adoption ------------------------------------------------------------------------------------------------------


def begin_foreign_job(fleet: FakeFleet, seconds_ago: float) -> FakeMigration:
    migration = fleet.begin_elsewhere()
    fleet.clock.sleep(seconds_ago)
    return migration


def test_a_watcher_that_takes_over_follows_a_running_job_to_its_end(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet, dirty_rate_bytes=0)
    begin_foreign_job(fleet, 3)
    record = carry_out(fleet, tmp_path, adopt=True)
    assert statuses(record) == [s.RUNNING, s.COMPLETED]
    assert "migrate" not in acts(record)


def test_the_timeout_of_an_adopted_job_counts_from_its_start(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    begin_foreign_job(fleet, 8)
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "timeout")
    assert 10 <= fleet.clock() < 12


def test_an_overdue_abort_of_an_adopted_job_is_executed_at_once(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    begin_foreign_job(fleet, 30)
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10)
    assert acts(record).count("abort: timeout") == 1
    assert 30 <= fleet.clock() < 31


@pytest.mark.parametrize("where", ["kvm1", "kvm2"])
def test_a_job_that_ended_without_a_watcher_is_settled_from_both_hosts(fleet: FakeFleet, tmp_path: pathlib.Path, where: str) -> None:
    fleet.guest(on=where)
    record = carry_out(fleet, tmp_path, adopt=True, status=s.RUNNING)
    assert record["status"] == (s.COMPLETED if where == "kvm2" else s.FAILED)


def test_an_adopted_move_that_never_began_is_cancelled_as_controller_lost(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    record = carry_out(fleet, tmp_path, adopt=True, status=s.QUEUED)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "controller_lost")


@pytest.mark.parametrize(("reason", "may_have_begun"), [("", True), ("daemon", True), ("shutdown", False), ("destroyed", False)])
def test_a_move_without_a_state_whose_guest_ended_with_its_source_may_have_begun(
    fleet: FakeFleet, tmp_path: pathlib.Path, reason: str, may_have_begun: bool
) -> None:
    fleet.guest(state=domain_states.SHUTOFF, reason=reason)
    fleet.guest(on="kvm2", state=domain_states.SHUTOFF, reason="")
    record = carry_out(fleet, tmp_path, adopt=True, status=s.QUEUED)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "controller_lost")
    assert ("its job may have begun" in record["history"][-1]["detail"]) is may_have_begun
    assert UUID in fleet.destination.domains


def test_an_error_is_settled_when_both_hosts_answer(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(on="kvm2")
    record = carry_out(fleet, tmp_path, adopt=True, status=s.ERROR)
    assert record["status"] == s.COMPLETED


def test_a_move_in_post_copy_has_no_timeout(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    migration = begin_foreign_job(fleet, 3)
    migration.start_post_copy()
    migration.link_bytes = 4 * MIB
    fleet.clock.at(60, lambda: setattr(migration, "link_bytes", 500 * MIB))
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10, stall_seconds=5)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert statuses(record) == [s.RUNNING_POST_COPY, s.COMPLETED]
    assert acts(record) == []
    assert fleet.clock() > 60


def test_a_stalled_post_copy_is_paused_and_resumed_and_never_aborted(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    migration = begin_foreign_job(fleet, 3)
    migration.start_post_copy()
    migration.link_bytes = 0
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10, stall_seconds=5)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert acts(record)[:2] == ["recover: pause", "recover: resume"]
    assert not [act for act in acts(record) if act.startswith("abort")]
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"


def test_a_stalled_post_copy_to_a_libvirt_that_would_crash_is_awaited(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.destination.versions["libvirt"] = 11003000
    add_slow_guest(fleet)
    migration = begin_foreign_job(fleet, 3)
    migration.start_post_copy()
    migration.link_bytes = 0
    fleet.clock.at(60, lambda: setattr(migration, "link_bytes", 500 * MIB))
    record = carry_out(fleet, tmp_path, adopt=True, stall_seconds=5)
    assert (record["status"], acts(record)) == (s.COMPLETED, [])
    assert [line["status"] for line in record["history"]].count("not_paused") == 1


# -- around --------------------------------------------------------------------------------------------------------


def test_the_lock_is_held_during_the_move_and_released_after_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    with pytest.raises(AlreadyWatched):
        Ownership(UUID, str(tmp_path))
    mover.run()
    Ownership(UUID, str(tmp_path)).release_lock()


def test_cancelling_a_queued_move_connects_to_no_host(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.cancel_move("controller_lost", "Nothing was started.")
    assert (state_in(tmp_path)["status"], state_in(tmp_path)["reason"]) == (s.CANCELLED, "controller_lost")
    assert fleet.connections == []
    Ownership(UUID, str(tmp_path)).release_lock()


def test_the_migrate_act_is_written_before_libvirt_is_called(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    seen: t.List[t.List[str]] = []
    fleet.on_begin = lambda migration: seen.append(acts(state_in(tmp_path)))
    carry_out(fleet, tmp_path)
    assert seen == [["migrate"]]


def test_the_job_of_a_paused_guest_has_no_post_copy_flag_and_the_record_keeps_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=domain_states.PAUSED, reason="user")
    order = dataclasses.replace(order_of(record_of(), flags=["POSTCOPY"]), parameters={"bandwidth.postcopy": 3, "bandwidth": 4})
    mover = mover_of(fleet, order, tmp_path)
    mover.run()
    assert ("POSTCOPY" in mover.order.flags, mover.order.parameters) == (False, {"bandwidth": 4})
    connection = state_in(tmp_path)["connection"]
    assert ("POSTCOPY" in connection["flags"], connection["parameters"]) == (True, {"bandwidth": 4})
    assert "POSTCOPY" in order.flags


def test_an_aborted_call_of_a_guest_that_arrived_is_completed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(Aborted("canceled by client"), (domain_states.SHUTOFF, "migrated"), (domain_states.RUNNING, "migrated")))
    assert carry_out(fleet, tmp_path)["status"] == s.COMPLETED


# -- an abort before there is a job --------------------------------------------------------------------------------


ASKED_BY = "ann@control pid 5, AWX user ann, job 42"


def leave_order(order: StartOrder, act: str, folder: pathlib.Path) -> Intent:
    intent = new_intent(act, str(order.record.id), order.record.generation, ASKED_BY, 7 if act == BANDWIDTH else None)
    leave_intent(UUID, intent, str(folder))
    return intent


def test_an_abort_of_a_queued_move_connects_to_no_host(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    assert mover.attend_while_waiting() is False
    intent = leave_order(order, ABORT, tmp_path)
    assert mover.attend_while_waiting() is True
    state = state_in(tmp_path)
    assert (state["status"], state["reason"], state["answers"][intent.id]) == (s.CANCELLED, "operator", {})
    events = [line["status"] for line in state["history"]]
    assert events.index("abort_start") < events.index("abort_end") < events.index(s.CANCELLED)
    assert fleet.connections == []
    assert (state["history"][1]["by"], state["history"][1]["detail"]) == (ASKED_BY, "operator")
    assert state["history"][-1]["by"].endswith(f" for {ASKED_BY}")
    Ownership(UUID, str(tmp_path)).release_lock()


@pytest.mark.parametrize("act", [FORCE_COMPLETE, BANDWIDTH])
def test_a_queued_move_cannot_be_forced_and_stays_queued(fleet: FakeFleet, tmp_path: pathlib.Path, act: str) -> None:
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    intent = leave_order(order, act, tmp_path)
    assert mover.attend_while_waiting() is False
    assert state_in(tmp_path)["answers"][intent.id]["error_code"] == "invalid_state"
    assert state_in(tmp_path)["status"] == s.QUEUED


def test_an_adopted_move_is_cancelled_only_after_its_job_ended(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    migration = begin_foreign_job(fleet, 3)
    order = order_of(record_of(status=s.RUNNING), adopt=True)
    mover = mover_of(fleet, order, tmp_path)
    leave_order(order, ABORT, tmp_path)
    assert mover.attend_while_waiting() is False
    mover.run()
    state = state_in(tmp_path)
    assert migration.ended.is_set()
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    assert "running (booted) on the source" in state["history"][-1]["detail"]


def lines_by(state: t.Dict[str, t.Any]) -> t.Dict[str, str]:
    return {line["status"]: line["by"] for line in state["history"]}


def test_an_adopted_move_is_aborted_for_the_person_of_its_order(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    migration = begin_foreign_job(fleet, 3)
    mover_of(fleet, dataclasses.replace(order_of(record_of(status=s.RUNNING), adopt=True), aborted_by=ASKED_BY), tmp_path).run()
    state = state_in(tmp_path)
    assert (migration.ended.is_set(), state["status"], state["reason"]) == (True, s.CANCELLED, "operator")
    assert (lines_by(state)["abort_start"], acts(state)) == (ASKED_BY, ["abort: operator"])
    assert lines_by(state)[s.CANCELLED].endswith(f" for {ASKED_BY}")


@pytest.mark.parametrize("status", [s.QUEUED, s.PREPARING])
def test_an_adopted_move_that_had_no_job_yet_is_cancelled_for_the_person(fleet: FakeFleet, tmp_path: pathlib.Path, status: str) -> None:
    fleet.guest()
    mover_of(fleet, dataclasses.replace(order_of(record_of(status=status), adopt=True), aborted_by=ASKED_BY), tmp_path).run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"], fleet.migrations) == (s.CANCELLED, "operator", [])
    assert lines_by(state)["abort_start"] == ASKED_BY


def test_an_adopted_move_whose_job_is_over_keeps_its_own_result(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    record = record_of(status=s.RUNNING).intend("migrate")
    mover_of(fleet, dataclasses.replace(order_of(record, adopt=True), aborted_by=ASKED_BY), tmp_path).run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.FAILED, None)
    assert (lines_by(state)["abort_too_late"], "abort_start" in lines_by(state)) == (ASKED_BY, False)


def test_an_abort_is_continued_in_the_name_of_the_same_person(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """The first watcher wrote the abort and died; the second one carries it out."""
    add_slow_guest(fleet)
    begin_foreign_job(fleet, 3)
    record = record_of(status=s.RUNNING).note(s.ABORT_START, ASKED_BY, s.REASON_OPERATOR).intend("abort: operator")
    mover_of(fleet, order_of(record, adopt=True), tmp_path).run()
    state = state_in(tmp_path)
    assert {line["by"] for line in state["history"] if line["status"] == "abort_start"} == {ASKED_BY}
    assert lines_by(state)[s.CANCELLED].endswith(f" for {ASKED_BY}")


def test_an_abort_during_the_preparation_starts_no_job(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    fleet.before_call = lambda machine, call: leave_order(order, ABORT, tmp_path) if call == "find" else None
    mover.run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    assert (fleet.migrations, "migrate" in acts(state)) == ([], False)
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"


def test_an_abort_of_a_running_move_records_its_start_and_end(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    fleet.clock.at(5, lambda: leave_order(order, ABORT, tmp_path))
    mover.run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    events = [line["status"] for line in state["history"]]
    assert events.index("abort_start") < events.index("abort_end") < events.index(s.CANCELLED)
    assert 5 <= fleet.clock() < 6
    by = {line["status"]: line["by"] for line in state["history"]}
    assert by["abort_start"] == ASKED_BY
    assert re.fullmatch(rf"watcher pid \d+ for {ASKED_BY}", by[s.CANCELLED])


# -- forcing -------------------------------------------------------------------------------------------------------


def with_cap(order: StartOrder, mib: int) -> StartOrder:
    record = dataclasses.replace(order.record, connection=Connection(bandwidth_mib=mib))
    return dataclasses.replace(order, record=record, parameters={**order.parameters, "bandwidth": mib})


def test_a_forced_move_with_a_cap_has_about_the_predicted_downtime(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.link_mib = 400
    fleet.guest(dirty_bytes=200 * MIB, dirty_rate_bytes=800 * MIB)
    order = with_cap(order_of(record_of(timeout_seconds=8, on_timeout="force_complete", downtime_ms=100)), 32)
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"], record["result"]["rung"]) == (s.COMPLETED, "paused", "downtime")
    assert acts(record) == ["migrate", "force: bandwidth", "force: downtime"]
    assert 0.5 <= record["result"]["downtime_ms"] / record["result"]["predicted_downtime_ms"] <= 2
    assert fleet.clock() < 15


def test_a_move_with_the_post_copy_flag_is_forced_by_post_copy(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    order = order_of(record_of(timeout_seconds=8, on_timeout="force_complete", post_copy=True), flags=["POSTCOPY"])
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert acts(record) == ["migrate", "force: post_copy"]
    assert record["result"]["downtime_ms"] is not None, "the source told it"


def test_a_pause_overrun_is_aborted_and_the_guest_runs_on_its_source(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)

    def crawl(machine: t.Any, call: str) -> None:
        if call == "suspend":
            fleet.migrations[0].link_bytes = MIB

    fleet.before_call = crawl
    fleet.clock.at(1, lambda: fleet.source.refuse.update(set_max_downtime_ms=Internal("no")))
    record = carry_out(fleet, tmp_path, timeout_seconds=5, on_timeout="force_complete", force_suspend_seconds=3, force_pause_max_seconds=20)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "pause_overrun")
    assert 28 <= fleet.clock() < 40
    assert fleet.source.domains[UUID].state == domain_states.RUNNING


def test_a_guest_suspended_by_the_watcher_is_resumed_after_a_failure(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.clock.at(1, lambda: fleet.source.refuse.update(set_max_downtime_ms=Internal("no")))
    stopped = (domain_states.PAUSED, "user")

    def die(machine: t.Any, call: str) -> None:
        if call == "suspend":
            fleet.clock.after(0.2, lambda: fleet.migrations[0].end(MigrationFailed("reset"), stopped, None))

    fleet.before_call = die
    record = carry_out(fleet, tmp_path, timeout_seconds=5, on_timeout="force_complete", force_suspend_seconds=2)
    assert record["status"] == s.FAILED
    assert fleet.source.domains[UUID].view().describe() == "running (unpaused)"
    assert acts(record)[-1] == "resume_source"


def test_a_guest_that_was_paused_before_is_never_switched_to_post_copy(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=domain_states.PAUSED, reason="user")
    order = order_of(record_of(post_copy=True), flags=["POSTCOPY"])
    mover_of(fleet, order, tmp_path).run()
    assert state_in(tmp_path)["status"] == s.COMPLETED
    assert "POSTCOPY" not in fleet.migrations[0].flags


# -- broken post-copy ----------------------------------------------------------------------------------------------


def post_copy_order(fleet: FakeFleet) -> StartOrder:
    """A move that goes over to post-copy after 3 s."""
    add_slow_guest(fleet)
    order = order_of(record_of(post_copy=True), flags=["POSTCOPY"])
    fleet.clock.at(3, act_on_first(fleet, FakeMigration.start_post_copy))
    return order


def test_a_post_copy_that_breaks_is_recovered_by_the_same_watcher(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = post_copy_order(fleet)
    fleet.clock.at(5, act_on_first(fleet, FakeMigration.break_post_copy))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"], acts(record)) == (s.COMPLETED, "post-copy", ["migrate", "recover: resume"])
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"
    assert fleet.source.domains == {}


def test_a_definition_left_by_an_unattended_post_copy_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = post_copy_order(fleet)
    fleet.clock.at(5, act_on_first(fleet, FakeMigration.leave_unattended))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], acts(record)) == (s.COMPLETED, ["migrate", "undefine_source"])
    assert fleet.source.domains == {}


def test_a_broken_post_copy_that_stays_unsettled_is_recovered_by_another_run(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = post_copy_order(fleet)
    fleet.clock.at(5, act_on_first(fleet, FakeMigration.break_post_copy))
    fleet.clock.at(5, lambda: fleet.destination.versions.update(libvirt=11003000))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "post_copy_failed")
    assert all(machine.domains[UUID].active for machine in fleet.machines.values())
    fleet.destination.versions["libvirt"] = 11004000
    again = order_of(read_state(record).record, adopt=True)
    mover_of(fleet, again, tmp_path).run()
    assert state_in(tmp_path)["status"] == s.COMPLETED
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"


# -- no room for the state file ------------------------------------------------------------------------------------


class FullRun:
    """A folder of state files in which there is no room, from the beginning or from a call to libvirt on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_full: bool = True) -> None:
        self.is_full = is_full
        self._write = journal.write_json
        monkeypatch.setattr(journal, "write_json", self._try)

    def _try(self, path: str, document: t.Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._write(path, document)


def test_no_job_is_started_if_the_state_file_cannot_be_written(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    FullRun(monkeypatch)
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.run()
    assert (mover.journal.record.status, fleet.migrations) == (s.FAILED, [])
    assert "No space left" in str(mover.journal.record.history[-1].detail)
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    Ownership(UUID, str(tmp_path)).release_lock()


def test_the_timeout_is_enforced_while_the_state_file_cannot_be_written(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_slow_guest(fleet)
    run = FullRun(monkeypatch, is_full=False)

    def fill(machine: t.Any, call: str) -> None:
        run.is_full = run.is_full or call == "migrate"

    fleet.before_call = fill
    mover = mover_of(fleet, order_of(record_of(timeout_seconds=5)), tmp_path)
    mover.run()
    assert (mover.journal.record.status, mover.journal.record.reason) == (s.CANCELLED, s.REASON_TIMEOUT)
    assert fleet.source.domains[UUID].view().state == domain_states.RUNNING
    assert state_in(tmp_path)["status"] == s.PREPARING


# -- shares of the link ------------------------------------------------------------------------------------------


def test_a_job_is_started_with_its_share_and_the_record_keeps_the_parameters_of_the_task(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    began: t.List[int] = []
    fleet.clock.at(0.1, lambda: began.append(fleet.migrations[-1].cap_bytes))
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.give_share(9)
    mover.run()
    connection = state_in(tmp_path)["connection"]
    assert (connection["is_shared"], connection["parameters"]) == (True, {})
    assert began == [9 * MIB]


def test_an_aborted_move_gets_back_the_bandwidth_that_its_domain_had(tmp_path: pathlib.Path) -> None:
    fleet = FakeFleet(link_mib=100)
    domain = fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
    domain.bandwidth_mib = 321
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    fleet.clock.at(3, lambda: mover.give_share(7))
    fleet.clock.at(6, lambda: leave_order(order, ABORT, tmp_path))
    mover.run()
    record = state_in(tmp_path)
    assert (record["status"], record["before"]["bandwidth_mib"], domain.bandwidth_mib) == (s.CANCELLED, 321, 321)


def test_the_bandwidth_that_an_earlier_job_has_left_does_not_limit_a_job_that_shares_the_link(tmp_path: pathlib.Path) -> None:
    fleet = FakeFleet(link_mib=100)
    fleet.guest(bandwidth_mib=1)
    fleet.on_begin = lambda migration: setattr(migration, "cap_bytes", 1 * MIB)
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.give_share(0)
    mover.run()
    assert state_in(tmp_path)["status"] == s.COMPLETED
    assert fleet.clock() < 20


@pytest.mark.parametrize("share", [0, 1])
def test_the_job_of_another_tool_gets_no_share_and_keeps_its_bandwidth(tmp_path: pathlib.Path, share: int) -> None:
    fleet = FakeFleet(link_mib=100)
    domain = fleet.guest(bandwidth_mib=20)
    migration = fleet.begin_elsewhere(bandwidth_mib=20)
    mover = mover_of(fleet, order_of(record_of(status=s.ACCEPTED, stall_seconds=5), adopt=True), tmp_path)
    mover.give_share(share)
    fleet.clock.at(3, lambda: setattr(migration, "link_bytes", 0))
    fleet.clock.at(20, migration.fail)
    mover.run()
    assert (migration.cap_bytes, domain.bandwidth_mib) == (20 * MIB, 20)
    assert state_in(tmp_path)["reason"] == "stalled", "its limits act"


def test_a_share_wakes_a_mover_that_sleeps(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = order_of(record_of())
    arrivals = ArrivalEvents(fleet.open)
    mover = Mover(order, journal_of(order.record, tmp_path), Ownership(UUID, str(tmp_path)), fleet.open, arrivals, fleet.clock)
    mover.give_share(7)
    began = time.monotonic()
    mover._sleep(60)
    assert time.monotonic() - began < 30


# -- other jobs and checkpoints of the domain -----------------------------------------------------------------------

CHAIN = (Checkpoint("monday", "<domaincheckpoint/>"),)


def test_the_checkpoints_of_a_guest_are_written_before_its_job_and_follow_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(checkpoints=CHAIN)
    before: t.List[t.Dict[str, t.Any]] = []
    fleet.on_begin = lambda migration: before.append(state_in(tmp_path)["before"])
    state = carry_out(fleet, tmp_path)
    assert before[0]["checkpoints"] == [{"name": "monday", "definition": "<domaincheckpoint/>"}]
    assert (state["status"], state["reason"]) == (s.COMPLETED, None)
    assert fleet.destination.domain(UUID).checkpoints == CHAIN


def test_a_watcher_that_takes_over_after_the_end_of_the_job_defines_the_checkpoints(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(on="kvm2", reason="migrated")
    record = dataclasses.replace(record_of(status=s.RUNNING).intend("migrate").intend("redefine_checkpoints"), before=Before(checkpoints=CHAIN))
    mover_of(fleet, order_of(record, adopt=True), tmp_path).run()
    assert (state_in(tmp_path)["status"], state_in(tmp_path)["reason"]) == (s.COMPLETED, None)
    assert fleet.destination.domain(UUID).checkpoints == CHAIN


def test_the_checkpoints_of_a_foreign_move_are_read_while_its_source_has_them(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_slow_guest(fleet)
    fleet.source.domain(UUID).checkpoints = CHAIN
    begin_foreign_job(fleet, 3)

    def complete() -> None:
        fleet.migrations[0].complete()

    fleet.clock.at(5, complete)
    mover_of(fleet, order_of(record_of(status=s.RUNNING), adopt=True), tmp_path).run()
    assert state_in(tmp_path)["status"] == s.COMPLETED
    assert fleet.destination.domain(UUID).checkpoints == CHAIN


def test_a_guest_that_suspends_itself_before_the_start_is_not_moved(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # libvirt has it as active.
    monkeypatch.setattr(fake_domain, "_ACTIVE", (domain_states.OTHER_STATE,))
    fleet.guest(state=domain_states.OTHER_STATE, reason="")
    record = carry_out(fleet, tmp_path)
    assert (record["status"], acts(record)) == (s.FAILED, [])
    assert "is other with job 'none' on its source host. Nothing was started." in record["history"][-1]["detail"]


def test_a_job_that_began_in_the_meantime_is_named_and_nothing_is_started(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(other_job="a copy of disk vda")
    state = carry_out(fleet, tmp_path)
    assert state["status"] == s.FAILED
    assert "with job 'a copy of disk vda' on its source host. Nothing was started." in state["history"][-1]["detail"]
    assert fleet.migrations == []


def test_a_migrate_call_for_which_the_host_has_no_thread_is_failed(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> t.NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    add_slow_guest(fleet)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "The migrate call cannot begin: can't start new thread." in record["history"][-1]["detail"]
    assert [host.uri for host in fleet.connections if not host.is_closed] == []
