# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One move from its order to its outcome, between fake hosts."""

from __future__ import annotations

import errno
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Aborted, Internal, MigrationFailed, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.adaptive import Adaptive
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.logins import TRIES
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.schedule import Stepped
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intents import ABORT, BANDWIDTH, FORCE_COMPLETE, Intent, leave
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import CALL_OUTLIVES_SECONDS, UNREACHABLE_SECONDS, limits_of, terms_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import Order
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership, Watched
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.settle import WAIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB, MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.migration import FakeMigration
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import (
    acts,
    carry_out,
    mover_of,
    order_of,
    record_of,
    state_in,
    statuses,
)

BUSY = {"dirty_bytes": 256 * MIB, "dirty_rate_bytes": 200 * MIB}


def first(fleet: FakeFleet, act: t.Callable[[FakeMigration], None]) -> t.Callable[[], None]:
    """Do that to the fleet's first migration, which need not be there yet."""
    return lambda: act(fleet.migrations[0])


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def slow(fleet: FakeFleet, **how: t.Any) -> None:
    """A guest that does not converge: it writes faster than the link carries."""
    fleet.link_mib = 100
    fleet.guest(**{**BUSY, **how})


# -- ends ----------------------------------------------------------------------------------------------------------


def test_an_idle_guest_arrives(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
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


def test_no_connection_stays_open(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    carry_out(fleet, tmp_path)
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_no_connection_stays_open_where_nothing_was_started(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=h.SHUTOFF)
    carry_out(fleet, tmp_path)
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_each_migrate_call_has_a_connection_of_its_own(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    before: t.List[t.Tuple[str, int]] = []
    fleet.before_call = lambda machine, call: before.append((call, len(fleet.connections)))
    carry_out(fleet, tmp_path, timeout_seconds=5)
    at_start = next(count for call, count in before if call == "migrate")
    assert min(count for call, count in before if call == "abort") > at_start


def test_a_transient_guest_stays_transient(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(persistent=False)
    assert carry_out(fleet, tmp_path, persistent=False)["status"] == s.COMPLETED
    assert fleet.destination.domains[UUID].persistent is False


def test_autostart_goes_along(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(autostart=True)
    carry_out(fleet, tmp_path)
    assert fleet.destination.domains[UUID].autostart is True


def test_a_paused_guest_arrives_paused(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=h.PAUSED, reason="user")
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["before"]["state"]) == (s.COMPLETED, h.PAUSED)
    assert fleet.destination.domains[UUID].view().describe() == "paused (user)"
    assert not [call for machine in fleet.machines.values() for call in machine.calls if call.startswith("resume")]


def test_the_ramp_ends_what_a_small_downtime_cannot(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
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
    slow(fleet)
    record = carry_out(fleet, tmp_path, timeout_seconds=timeout)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "timeout")
    assert acts(record).count("abort: timeout") == 1
    assert timeout * 1000 <= record["result"]["elapsed_ms"] <= timeout * 1000 + 1500
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    assert fleet.destination.domains == {}
    assert record["progress"]["percent"] < 100


def test_a_stalled_stream_is_aborted_and_its_timeout_was_not_reached(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(4, lambda: setattr(fleet.migrations[0], "link_bytes", 0))
    record = carry_out(fleet, tmp_path, stall_seconds=10)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "stalled")
    assert 13 < fleet.clock() < 17


def test_a_stream_that_stalls_for_a_while_only_goes_on(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet, dirty_rate_bytes=0)
    fleet.clock.at(4, lambda: setattr(fleet.migrations[0], "link_bytes", 0))
    fleet.clock.at(12, lambda: setattr(fleet.migrations[0], "link_bytes", 100 * MIB))
    assert carry_out(fleet, tmp_path, stall_seconds=10)["status"] == s.COMPLETED


def test_a_failed_job_leaves_the_guest_where_it_was(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, first(fleet, FakeMigration.fail))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.FAILED, None)
    assert "Unable to write to socket" in record["history"][-1]["detail"]
    assert "running (booted) on the source" in record["history"][-1]["detail"]


def test_a_call_that_outlives_its_job_is_not_waited_for_for_ever(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """As where QEMU hangs at the destination: the source has cancelled, and libvirt waits for the other side without a limit."""
    slow(fleet)

    def hang(migration: FakeMigration) -> None:
        migration.is_over = True
        fleet.source.domains[UUID].job = h.JOB_NONE

    fleet.clock.at(2, first(fleet, hang))
    record = carry_out(fleet, tmp_path)
    fleet.migrations[0].ended.set()
    assert (record["status"], record["reason"]) == (s.ERROR, "unclear")
    assert fleet.clock() <= 2 + CALL_OUTLIVES_SECONDS + WAIT_SECONDS + 5
    assert fleet.source.domains[UUID].view().state == h.RUNNING


def test_somebody_s_abort_is_the_operator_s(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, lambda: fleet.open(LOCAL_URI).abort(UUID))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "operator")


def test_a_call_that_failed_after_the_guest_had_arrived_is_no_failure(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(MigrationFailed("client socket is closed"), (h.SHUTOFF, "migrated"), (h.RUNNING, "migrated")))
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.COMPLETED
    assert UUID not in fleet.source.domains, "the definition that was left behind"


def test_a_call_that_succeeded_while_the_guest_died_is_an_error(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)

    def die() -> None:
        fleet.migrations[0].complete()
        fleet.destination.domains[UUID].enter(h.CRASHED, "panicked")

    fleet.clock.at(2, die)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "guest_died")


def test_a_guest_that_ended_in_its_own_way_is_not_called_moved(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(MigrationFailed("domain is not running"), (h.SHUTOFF, "shutdown"), None))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "guest_died")
    assert fleet.source.domains[UUID].persistent, "a definition is never removed where no copy runs"


# -- before the job ------------------------------------------------------------------------------------------------


def test_a_guest_that_is_gone_before_the_start_fails_before_anything_is_done(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.ERROR
    assert acts(record) == []
    assert fleet.migrations == []


@pytest.mark.parametrize(("state", "reason"), [(h.SHUTOFF, "shutdown"), (h.CRASHED, "panicked")])
def test_a_guest_that_its_owner_shut_down_meanwhile_is_not_moved(fleet: FakeFleet, tmp_path: pathlib.Path, state: str, reason: str) -> None:
    fleet.guest(state=state, reason=reason)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "Nothing was started" in record["history"][-1]["detail"]
    assert fleet.migrations == []


def test_a_copy_that_runs_at_the_destination_already_stops_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.guest(on="kvm2")
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "running_twice")
    assert all(machine.domains[UUID].active for machine in fleet.machines.values())
    assert [machine.calls for machine in fleet.machines.values()] == [[], []]


def test_a_definition_that_was_at_the_destination_before_survives_a_failed_move(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.guest(on="kvm2", state=h.SHUTOFF, reason="shutdown")
    fleet.clock.at(2, first(fleet, FakeMigration.fail))
    assert carry_out(fleet, tmp_path)["status"] == s.FAILED
    assert UUID in fleet.destination.domains


def test_a_definition_that_the_failed_move_left_at_the_destination_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(MigrationFailed("reset"), (h.RUNNING, "booted"), (h.SHUTOFF, "failed")))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], acts(record)[-1]) == (s.FAILED, "undefine_destination")
    assert fleet.destination.domains == {}


def test_a_destination_that_does_not_answer_at_the_start_moves_nothing(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.destination.go_dark()
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert fleet.migrations == []
    assert fleet.source.domains[UUID].active


def test_what_libvirt_refuses_at_once_is_failed_with_its_words(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.refuse_to_migrate = MigrationFailed("Failed to move domain: unsupported configuration")
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "unsupported configuration" in record["history"][-1]["detail"]


DROPPED = MigrationFailed(
    "Failed to move domain: operation failed: Failed to connect to remote libvirt URI qemu+ssh://kvm2/system: Cannot recv data: "
    "kex_exchange_identification: Connection closed by remote host: Connection reset by peer"
)


def dropping(fleet: FakeFleet, times: int, act: t.Callable[[], object] = lambda: None) -> t.List[float]:
    """Let this many migrate calls fail as when the SSH server drops libvirt's login, and do something at each; return when they were made."""
    called: t.List[float] = []

    def drop(_machine: object, call: str) -> None:
        if call == "migrate":
            called.append(fleet.clock())
            fleet.refuse_to_migrate = DROPPED if len(called) <= times else None
            act()

    fleet.before_call = drop
    return called


def test_a_call_whose_login_was_dropped_is_made_again(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    domain.max_downtime_ms = 777
    called = dropping(fleet, 2)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(called)) == (s.COMPLETED, 3)
    assert acts(record) == ["migrate"] * 3
    dropped = [line["detail"] for line in record["history"] if line["status"] == "login_dropped"]
    assert len(dropped) == 2
    assert "kex_exchange_identification" in dropped[0]
    assert record["before"]["max_downtime_ms"] == 777
    assert record["before"]["at_destination"] is False
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_logins_that_are_always_dropped_end_the_move_where_it_began(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    domain.max_downtime_ms = 777
    called = dropping(fleet, 100)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(called)) == (s.FAILED, TRIES)
    assert "kex_exchange_identification" in record["history"][-1]["detail"]
    assert called[-1] < 60
    assert (fleet.source.domains[UUID].view().describe(), domain.max_downtime_ms) == ("running (booted)", 777)


def test_whoever_waits_for_the_next_try_is_told_so_and_may_abort(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    called = dropping(fleet, 100)
    told: t.List[str] = []
    order = order_of(record_of())

    def abort() -> None:
        told.append(state_in(tmp_path)["waits_for"])
        asked(order, ABORT, tmp_path)

    fleet.clock.at(1, abort)
    mover = mover_of(fleet, order, tmp_path)
    mover.run()
    record = state_in(tmp_path)
    assert told == ["waits for try 2 of 5: kvm2 dropped the login of this host's libvirt"]
    assert (record["status"], record["reason"], len(called)) == (s.CANCELLED, "operator", 1)
    assert "waits_for" not in record


def test_a_guest_that_was_shut_off_before_the_next_try_is_not_moved(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    called = dropping(fleet, 100)
    fleet.clock.at(0.6, lambda: fleet.source.domains[UUID].enter(h.SHUTOFF, "shutdown"))
    carry_out(fleet, tmp_path)
    assert (len(called), fleet.migrations) == (1, [])


def test_a_connection_that_breaks_once_memory_has_moved_is_not_begun_anew(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, first(fleet, lambda migration: migration.end(DROPPED, (h.RUNNING, "migration canceled"), None)))
    record = carry_out(fleet, tmp_path)
    assert (record["status"], len(fleet.migrations)) == (s.FAILED, 1)


def test_a_downtime_that_is_refused_before_the_start_moves_nothing(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.source.refuse["set_max_downtime_ms"] = NotFound("no domain")
    assert carry_out(fleet, tmp_path)["status"] == s.FAILED
    assert fleet.migrations == []


# -- hosts that stop answering -------------------------------------------------------------------------------------


def test_a_source_daemon_that_is_started_anew_cancels_and_that_is_a_failure(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)

    def restart() -> None:
        fleet.source.go_dark()
        fleet.migrations[0].end(Unreachable("End of file while reading data"), (h.RUNNING, "migration canceled"), None)

    fleet.clock.at(2, restart)
    fleet.clock.at(5, fleet.source.come_back)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.FAILED
    assert "running (migration canceled) on the source" in record["history"][-1]["detail"]


def test_a_source_that_comes_back_in_time_is_followed_on(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet, dirty_rate_bytes=0)
    fleet.clock.at(2, fleet.source.go_dark)
    fleet.clock.at(4, fleet.source.come_back)
    record = carry_out(fleet, tmp_path)
    assert record["status"] == s.COMPLETED
    assert [line["status"] for line in record["history"]].count("source_lost") == 1


def test_a_destination_that_is_lost_in_the_move_is_unsettled(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)

    def lose() -> None:
        fleet.destination.go_dark()
        fleet.migrations[0].end(MigrationFailed("client socket is closed"), (h.RUNNING, "booted"), (h.PAUSED, h.MIGRATION))

    fleet.clock.at(2, lose)
    record = carry_out(fleet, tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert "no answer on the destination" in record["history"][-1]["detail"]
    assert fleet.source.domains[UUID].active


def test_an_adopter_gives_up_on_a_source_that_stays_silent(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    fleet.source.go_dark()
    record = carry_out(fleet, tmp_path, adopt=True, status=s.RUNNING)
    assert (record["status"], record["reason"]) == (s.ERROR, "unreachable")
    assert UNREACHABLE_SECONDS <= fleet.clock() < UNREACHABLE_SECONDS + 120


# -- adoption ------------------------------------------------------------------------------------------------------


def begun(fleet: FakeFleet, seconds_ago: float) -> FakeMigration:
    migration = fleet.begin_elsewhere()
    fleet.clock.sleep(seconds_ago)
    return migration


def test_a_move_in_flight_is_followed_to_its_end(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet, dirty_rate_bytes=0)
    begun(fleet, 3)
    record = carry_out(fleet, tmp_path, adopt=True)
    assert statuses(record) == [s.RUNNING, s.COMPLETED]
    assert "migrate" not in acts(record)


def test_the_adopter_s_clock_is_the_job_s(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    begun(fleet, 8)
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "timeout")
    assert 10 <= fleet.clock() < 12


def test_an_overdue_abort_is_done_at_once_and_once(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    begun(fleet, 30)
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10)
    assert acts(record).count("abort: timeout") == 1
    assert 30 <= fleet.clock() < 31


@pytest.mark.parametrize("where", ["kvm1", "kvm2"])
def test_a_job_that_ended_unseen_is_settled_by_what_both_hosts_say(fleet: FakeFleet, tmp_path: pathlib.Path, where: str) -> None:
    fleet.guest(on=where)
    record = carry_out(fleet, tmp_path, adopt=True, status=s.RUNNING)
    assert record["status"] == (s.COMPLETED if where == "kvm2" else s.FAILED)


def test_a_move_that_was_never_begun_and_lost_its_run_is_cancelled(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    record = carry_out(fleet, tmp_path, adopt=True, status=s.QUEUED)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "controller_lost")


def test_an_error_is_settled_once_both_hosts_answer(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(on="kvm2")
    record = carry_out(fleet, tmp_path, adopt=True, status=s.ERROR)
    assert record["status"] == s.COMPLETED


def test_post_copy_is_not_timed_out(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    migration = begun(fleet, 3)
    migration.start_post_copy()
    migration.link_bytes = 4 * MIB
    fleet.clock.at(60, lambda: setattr(migration, "link_bytes", 500 * MIB))
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10, stall_seconds=5)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert statuses(record) == [s.RUNNING_POST_COPY, s.COMPLETED]
    assert acts(record) == []
    assert fleet.clock() > 60


def test_a_stalled_post_copy_is_broken_and_resumed_and_never_aborted(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    migration = begun(fleet, 3)
    migration.start_post_copy()
    migration.link_bytes = 0
    record = carry_out(fleet, tmp_path, adopt=True, timeout_seconds=10, stall_seconds=5)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert acts(record)[:2] == ["recover: pause", "recover: resume"]
    assert not [act for act in acts(record) if act.startswith("abort")]
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"


# -- around --------------------------------------------------------------------------------------------------------


def test_the_lock_is_held_for_the_move_and_free_after_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    with pytest.raises(Watched):
        Ownership(UUID, str(tmp_path))
    mover.run()
    Ownership(UUID, str(tmp_path)).release()


def test_cancelling_a_move_that_waits_touches_no_host(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.cancel("controller_lost", "Nothing was started.")
    assert (state_in(tmp_path)["status"], state_in(tmp_path)["reason"]) == (s.CANCELLED, "controller_lost")
    assert fleet.connections == []
    Ownership(UUID, str(tmp_path)).release()


def test_the_intent_is_on_disk_before_libvirt_is_asked(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    seen: t.List[t.List[str]] = []
    fleet.on_begin = lambda migration: seen.append(acts(state_in(tmp_path)))
    carry_out(fleet, tmp_path)
    assert seen == [["migrate"]]


def test_the_limits_are_the_record_s() -> None:
    record = record_of(timeout_seconds=600, downtime_ms=400, downtime_steps=10, stall_seconds=7, downtime_strategy="stepped")
    record["request"]["memory_mib"] = 8 * 1024
    limits = limits_of(order_of(record))
    assert (limits.timeout_seconds, limits.stall_seconds) == (600, 7)
    assert isinstance(limits.downtime, Stepped)
    assert [limits.downtime.ramp[0], limits.downtime.ramp[-1]] == [(0, 40), (300, 400)]


def test_the_adaptive_downtime_is_the_record_s() -> None:
    record = record_of(timeout_seconds=600, downtime_ms=400, downtime_steps=10)
    record["connection"] = {"link_mib": 100}
    assert limits_of(order_of(record)).downtime == Adaptive(40, 400, full_from_seconds=300, link_rate_bytes=100 * MIB)
    order = order_of(record_of(timeout_seconds=0))
    order.flags.append("COMPRESSED")
    assert limits_of(order).downtime == Adaptive(50, 500, is_compressed=True)


def test_without_a_timeout_the_ramp_reaches_the_full_pause_in_half_the_default_one() -> None:
    record = record_of(downtime_strategy="stepped")
    record["request"]["memory_mib"] = 16 * 1024
    limits = limits_of(order_of(record))
    assert limits.timeout_seconds == 12_800
    assert isinstance(limits.downtime, Stepped)
    assert limits.downtime.ramp[-1] == (6_400, 500)


def test_without_a_timeout_the_limit_goes_by_the_guest_s_size() -> None:
    assert limits_of(order_of(record_of())).timeout_seconds == 1600
    assert limits_of(order_of(record_of(timeout_seconds=0))).timeout_seconds == 0


def test_an_aborted_call_alone_does_not_say_where_the_guest_is(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(2, lambda: fleet.migrations[0].end(Aborted("canceled by client"), (h.SHUTOFF, "migrated"), (h.RUNNING, "migrated")))
    assert carry_out(fleet, tmp_path)["status"] == s.COMPLETED


# -- an abort before there is a job --------------------------------------------------------------------------------


def asked(order: Order, act: str, folder: pathlib.Path) -> Intent:
    intent = Intent(act, order.record["id"], order.record["generation"], "ann@control", 7 if act == BANDWIDTH else None)
    leave(UUID, intent, str(folder))
    return intent


def test_an_abort_while_it_waits_cancels_it_and_touches_no_host(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    assert mover.heed_while_waiting() is False
    intent = asked(order, ABORT, tmp_path)
    assert mover.heed_while_waiting() is True
    state = state_in(tmp_path)
    assert (state["status"], state["reason"], state["answers"][intent.id]) == (s.CANCELLED, "operator", {})
    events = [line["status"] for line in state["history"]]
    assert events.index("abort_start") < events.index("abort_end") < events.index(s.CANCELLED)
    assert fleet.connections == []
    Ownership(UUID, str(tmp_path)).release()


@pytest.mark.parametrize("act", [FORCE_COMPLETE, BANDWIDTH])
def test_what_waits_cannot_be_forced_and_waits_on(fleet: FakeFleet, tmp_path: pathlib.Path, act: str) -> None:
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    intent = asked(order, act, tmp_path)
    assert mover.heed_while_waiting() is False
    assert state_in(tmp_path)["answers"][intent.id]["error_code"] == "invalid_state"
    assert state_in(tmp_path)["status"] == s.QUEUED


def test_an_adopted_move_is_never_called_cancelled_while_its_job_runs(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    migration = begun(fleet, 3)
    order = order_of(record_of(status=s.RUNNING), adopt=True)
    mover = mover_of(fleet, order, tmp_path)
    asked(order, ABORT, tmp_path)
    assert mover.heed_while_waiting() is False
    mover.run()
    state = state_in(tmp_path)
    assert migration.ended.is_set()
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    assert "running (booted) on the source" in state["history"][-1]["detail"]


def test_an_abort_while_it_is_prepared_starts_nothing(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    fleet.before_call = lambda machine, call: asked(order, ABORT, tmp_path) if call == "find" else None
    mover.run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    assert (fleet.migrations, "migrate" in acts(state)) == ([], False)
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"


def test_an_abort_while_it_runs_has_a_start_and_an_end(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    order = order_of(record_of())
    mover = mover_of(fleet, order, tmp_path)
    fleet.clock.at(5, lambda: asked(order, ABORT, tmp_path))
    mover.run()
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.CANCELLED, "operator")
    events = [line["status"] for line in state["history"]]
    assert events.index("abort_start") < events.index("abort_end") < events.index(s.CANCELLED)
    assert 5 <= fleet.clock() < 6


# -- forcing -------------------------------------------------------------------------------------------------------


def capped(order: Order, mib: int) -> Order:
    order.parameters["bandwidth"] = mib
    order.record["connection"] = {"bandwidth_mib": mib}
    return order


def test_a_capped_move_that_is_forced_arrives_after_about_the_pause_that_was_predicted(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.link_mib = 400
    fleet.guest(dirty_bytes=200 * MIB, dirty_rate_bytes=800 * MIB)
    order = capped(order_of(record_of(timeout_seconds=8, on_timeout="force_complete", downtime_ms=100)), 32)
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"], record["result"]["rung"]) == (s.COMPLETED, "paused", "downtime")
    assert acts(record) == ["migrate", "force: bandwidth", "force: downtime"]
    assert 0.5 <= record["result"]["downtime_ms"] / record["result"]["predicted_downtime_ms"] <= 2
    assert fleet.clock() < 15


def test_a_move_that_may_switch_is_forced_by_post_copy(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    order = order_of(record_of(timeout_seconds=8, on_timeout="force_complete", post_copy=True))
    order.flags.append("POSTCOPY")
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"]) == (s.COMPLETED, "post-copy")
    assert acts(record) == ["migrate", "force: post_copy"]
    assert record["result"]["downtime_ms"] is not None, "the source told it"


def test_a_pause_that_overruns_is_given_up_and_the_guest_runs_on_here(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)

    def crawl(machine: t.Any, call: str) -> None:
        if call == "suspend":
            fleet.migrations[0].link_bytes = MIB

    fleet.before_call = crawl
    fleet.clock.at(1, lambda: fleet.source.refuse.update(set_max_downtime_ms=Internal("no")))
    record = carry_out(fleet, tmp_path, timeout_seconds=5, on_timeout="force_complete", force_suspend_seconds=3, force_pause_max_seconds=20)
    assert (record["status"], record["reason"]) == (s.CANCELLED, "pause_overrun")
    assert 28 <= fleet.clock() < 40
    assert fleet.source.domains[UUID].state == h.RUNNING


def test_a_guest_that_we_stopped_is_resumed_where_libvirt_did_not(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    slow(fleet)
    fleet.clock.at(1, lambda: fleet.source.refuse.update(set_max_downtime_ms=Internal("no")))
    stopped = (h.PAUSED, "user")

    def die(machine: t.Any, call: str) -> None:
        if call == "suspend":
            fleet.clock.after(0.2, lambda: fleet.migrations[0].end(MigrationFailed("reset"), stopped, None))

    fleet.before_call = die
    record = carry_out(fleet, tmp_path, timeout_seconds=5, on_timeout="force_complete", force_suspend_seconds=2)
    assert record["status"] == s.FAILED
    assert fleet.source.domains[UUID].view().describe() == "running (unpaused)"
    assert acts(record)[-1] == "resume_source"


def test_a_guest_that_was_paused_before_is_never_switched(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(state=h.PAUSED, reason="user")
    order = order_of(record_of(post_copy=True))
    order.flags.append("POSTCOPY")
    mover_of(fleet, order, tmp_path).run()
    assert state_in(tmp_path)["status"] == s.COMPLETED
    assert "POSTCOPY" not in fleet.migrations[0].flags


@pytest.mark.parametrize(("paused", "expected"), [(False, True), (True, False)])
def test_the_terms_are_the_record_s(paused: bool, expected: bool) -> None:
    record = record_of(post_copy=True, force_suspend_seconds=7, force_pause_max_seconds=9, downtime_ms=300)
    record["connection"] = {"bandwidth_mib": 5, "link_mib": 100}
    record["before"] = {"state": h.PAUSED if paused else h.RUNNING}
    terms = terms_of(order_of(record))
    assert (terms.post_copy, terms.capped, terms.link_rate_bytes) == (expected, True, 100 * MIB)
    assert (terms.suspend_seconds, terms.pause_max_seconds, terms.downtime_ms) == (7, 9, 300)


# -- broken post-copy ----------------------------------------------------------------------------------------------


def switched(fleet: FakeFleet) -> Order:
    """A move that goes over to post-copy after 3 s."""
    slow(fleet)
    order = order_of(record_of(post_copy=True))
    order.flags.append("POSTCOPY")
    fleet.clock.at(3, first(fleet, FakeMigration.start_post_copy))
    return order


def test_a_post_copy_that_breaks_is_recovered_by_the_same_watcher(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = switched(fleet)
    fleet.clock.at(5, first(fleet, FakeMigration.break_post_copy))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["result"]["mode"], acts(record)) == (s.COMPLETED, "post-copy", ["migrate", "recover: resume"])
    assert fleet.destination.domains[UUID].view().describe() == "running (migrated)"
    assert fleet.source.domains == {}


def test_a_definition_that_an_unattended_end_left_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = switched(fleet)
    fleet.clock.at(5, first(fleet, FakeMigration.leave_unattended))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], acts(record)) == (s.COMPLETED, ["migrate", "undefine_source"])
    assert fleet.source.domains == {}


def test_a_post_copy_that_cannot_be_recovered_stays_unsettled_and_another_run_recovers_it(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    order = switched(fleet)
    fleet.clock.at(5, first(fleet, FakeMigration.break_post_copy))
    fleet.clock.at(5, lambda: fleet.destination.versions.update(libvirt=11003000))
    mover_of(fleet, order, tmp_path).run()
    record = state_in(tmp_path)
    assert (record["status"], record["reason"]) == (s.ERROR, "post_copy_failed")
    assert all(machine.domains[UUID].active for machine in fleet.machines.values())
    fleet.destination.versions["libvirt"] = 11004000
    again = order_of({key: value for key, value in record.items() if key not in ("watcher", "answers")}, adopt=True)
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


def test_without_room_for_its_state_no_job_is_started(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    FullRun(monkeypatch)
    mover = mover_of(fleet, order_of(record_of()), tmp_path)
    mover.run()
    assert (mover.journal.record["status"], fleet.migrations) == (s.FAILED, [])
    assert "No space left" in mover.journal.record["history"][-1]["detail"]
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    Ownership(UUID, str(tmp_path)).release()


def test_a_limit_holds_although_there_is_no_room_any_more(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(fleet)
    run = FullRun(monkeypatch, is_full=False)

    def fill(machine: t.Any, call: str) -> None:
        run.is_full = run.is_full or call == "migrate"

    fleet.before_call = fill
    mover = mover_of(fleet, order_of(record_of(timeout_seconds=5)), tmp_path)
    mover.run()
    assert (mover.journal.record["status"], mover.journal.record["reason"]) == (s.CANCELLED, s.REASON_TIMEOUT)
    assert fleet.source.domains[UUID].view().state == h.RUNNING
    assert state_in(tmp_path)["status"] == s.PREPARING
