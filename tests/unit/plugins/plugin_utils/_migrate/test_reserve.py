# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verification and reservation of a destination: a real ledger, fake hosts, and changes between the survey and the lock."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import (
    ARRIVED,
    OTHER,
    another_move,
    close_host,
    room_for,
    run_one_move,
)


@pytest.mark.parametrize("check", [False, True])
def test_a_refusal_gives_the_reasons_of_all_filters(control: Control, check: bool) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    close_host(control, "kvm2", "new disks")
    job = run_one_move(control, check=check)
    assert isinstance(job.error, e.Conflict)
    assert "new disks" in str(job.error)
    assert "MiB" in str(job.error)
    assert "Nothing was moved" in str(job.error)
    assert control.source.phases == ["prepare"]
    assert job.moved is False
    if check:
        assert control.records() == []
    else:
        (record,) = control.records()
        assert (record.status, record.forced) == (s.CONFLICT, None)
        assert "new disks" in record.history[-1].detail
        assert job.error.result["migrations"] == [encode(record)]


def test_check_mode_gives_the_same_reasons(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    close_host(control, "kvm3", "a fan")
    for destination in ("kvm2", None):
        foreseen = run_one_move(control, destination=destination, check=True)
        assert control.unsettled() == []
        assert str(foreseen.error) == str(run_one_move(control, destination=destination).error)


def test_without_a_destination_every_host_has_its_reason(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    close_host(control, "kvm3", "a fan")
    refused = str(run_one_move(control, destination=None).error)
    assert "kvm2: " in refused
    assert "4096 MiB" in refused
    assert "kvm3: It is in maintenance (a fan)." in refused


def test_a_silent_host_is_named_in_the_refusal(control: Control) -> None:
    control.fleet.guest()
    control.fleet.machines["kvm2"].go_dark()
    close_host(control, "kvm3", "a fan")
    job = run_one_move(control, destination=None)
    assert isinstance(job.error, e.Conflict)
    assert "kvm2 does not answer" in str(job.error)
    assert "a fan" in str(job.error)


def test_an_exact_fit_is_accepted_and_one_mib_less_is_refused(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 4)
    assert run_one_move(control, check=True).error is None
    room_for(control, "kvm2", 4 - 1 / 1024)
    assert "1 MiB short" in str(run_one_move(control, check=True).error)


@pytest.mark.parametrize("steps", [(s.SCHEDULED,), (s.SCHEDULED, s.RUNNING), ARRIVED])
def test_a_guest_reserved_or_arrived_since_the_survey_counts(control: Control, steps: tuple[str, ...]) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)
    control.source.after_prepare = lambda: another_move(control, "kvm2", 3 * 1024, *steps)
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert "1024 MiB short" in str(job.error)
    assert control.source.phases == ["prepare"]


def test_a_guest_without_a_reservation_does_not_count(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)
    control.source.after_prepare = lambda: another_move(control, "kvm2", 3 * 1024)
    assert run_one_move(control).record.status == s.COMPLETED


def test_a_guest_that_arrived_and_left_again_does_not_count(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)

    def to_and_fro() -> None:
        another_move(control, "kvm2", 3 * 1024, *ARRIVED, domain=OTHER)
        another_move(control, "kvm2", 3 * 1024, *ARRIVED, domain=OTHER, back=True)

    control.source.after_prepare = to_and_fro
    assert run_one_move(control).record.status == s.COMPLETED


def test_a_guest_that_left_before_the_survey_does_not_count(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)
    another_move(control, "kvm2", 3 * 1024, *ARRIVED)
    assert run_one_move(control).record.status == s.COMPLETED


def first_time_under_lock(control: Control, monkeypatch: pytest.MonkeyPatch, then: Callable[[], t.Any]) -> None:
    """Let something happen between the first choice of a host and its lock."""
    locked, pending = control.ledger.hold_lock, [then]

    @contextlib.contextmanager
    def late(key: str, timeout_seconds: float = 30) -> Iterator[None]:
        while pending:
            pending.pop()()
        with locked(key, timeout_seconds):
            yield

    monkeypatch.setattr(control.ledger, "hold_lock", late)


def test_capacity_lost_before_the_lock_leads_to_the_next_host(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 9)
    room_for(control, "kvm3", 6)
    first_time_under_lock(control, monkeypatch, lambda: another_move(control, "kvm2", 6 * 1024, s.SCHEDULED))
    job = run_one_move(control, destination=None)
    assert job.record.destination.host == "kvm3"
    assert job.record.connection.destination_uri == "qemu+tcp://kvm3/system"


def test_a_host_put_in_maintenance_before_the_lock_is_refused(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    first_time_under_lock(control, monkeypatch, lambda: close_host(control, "kvm2", "just now"))
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert "just now" in str(job.error)
    assert [record.status for record in control.records()] == [s.CONFLICT]


@pytest.mark.parametrize("check", [False, True])
def test_reservations_of_one_task_count_for_each_other(control: Control, check: bool) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    control.fleet.guest("db1", OTHER, memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)
    jobs = control.run(check=check, moves=[{"name": "web1"}, {"name": "db1"}], destination="kvm2")
    assert [job.error and job.error.error_code for job in jobs] == [None, "conflict"]
    room_for(control, "kvm2", 20)
    room_for(control, "kvm3", 9)
    spread = control.run(check=check, moves=[{"name": "db1"}])
    assert [job.error for job in spread] == [None]


@pytest.mark.parametrize("wrong", [{"ram_allocation_ratio": 0}, {"cpu_allocation_ratio": -1}, {"ram_allocation_ratio": "much"}, {"rations": 1}, "text"])
@pytest.mark.parametrize("of", ["kvm1", "kvm2"])
def test_invalid_scheduler_settings_are_refused_before_a_record_is_opened(control: Control, wrong: t.Any, of: str) -> None:
    control.fleet.guest()
    control.fleet.guest("db1", OTHER)
    control.variables(of)["kvmfleet_scheduler"] = wrong
    with pytest.raises(e.InvalidArgument, match=f"kvmfleet_scheduler.* of {of}"):
        control.run(moves=[{"name": "web1", "destination": "kvm3"}, {"name": "db1", "destination": "kvm2"}])
    assert control.records() == []
    assert control.source.phases == ["prepare"]


def test_fresh_facts_of_the_destination_are_used(control: Control) -> None:
    control.fleet.guest()
    control.source.needs[UUID] = {"networks": [{"type": "bridge", "source": "br0"}]}
    control.source.facts["kvm2"] = {"bridges": None, "networks": []}
    unsure = run_one_move(control, check=True)
    assert unsure.error is None
    assert any("br0" in warning and "web1 to kvm2" in warning for warning in control.warnings)
    control.say("kvm2", bridges=["br1"])
    sure = run_one_move(control, check=True)
    assert isinstance(sure.error, e.Conflict)
    assert "br0" in str(sure.error)
    control.say("kvm2", bridges=["br0"])
    assert run_one_move(control, check=True).error is None
    assert not any("br0" in warning for warning in control.warnings)


def test_the_record_keeps_what_the_domain_needs(control: Control) -> None:
    control.fleet.guest(memory_bytes=2 * GIB)
    request = run_one_move(control).record.request
    assert (request["memory_mib"], request["vcpus"]) == (2048, 2)
    assert {"traits", "labels", "group"} <= set(request)


def test_check_mode_does_not_claim_a_reservation(control: Control) -> None:
    control.fleet.guest()
    for given, words in (({}, "The destination would be verified and booked."), ({"force": True}, "The destination would be booked by force.")):
        detail = run_one_move(control, check=True, **given).record.history[-1].detail
        assert detail.startswith(f"Predicted in check mode. {words}")


def test_a_lock_that_is_not_acquired_leaves_no_open_record(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()

    def taken() -> None:
        raise e.TimedOut("The lock host-kvm2 was held by another process for more than 30 s; nothing was changed.")

    first_time_under_lock(control, monkeypatch, taken)
    job = run_one_move(control)
    assert isinstance(job.error, e.TimedOut)
    (record,) = control.records()
    assert (record.status, job.moved) == (s.CONFLICT, False)
    assert record.history[-1].detail.startswith("Nothing was booked: The lock host-kvm2 was held")
    assert job.error.result["migrations"] == [encode(record)]
