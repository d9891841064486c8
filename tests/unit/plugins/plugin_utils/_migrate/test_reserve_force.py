# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(force): what it bypasses, what it never does, and the mark that it leaves."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_term
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import OTHER, close_host, room_for, run_one_move


def make_kvm2_refuse(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    close_host(control, "kvm2", "new disks")


def test_a_forced_move_completes_and_records_what_was_bypassed(control: Control) -> None:
    make_kvm2_refuse(control)
    job = run_one_move(control, force=True)
    assert (job.error, job.record.status, job.record.forced) == (None, s.COMPLETED, "FORCED_MIGRATE")
    booked = next(line.detail for line in job.record.history if line.status == s.SCHEDULED)
    assert "by force" in booked
    assert "new disks" in booked
    assert "MiB" in booked
    assert sum("bypassed by force" in warning and "web1 to kvm2" in warning for warning in control.warnings) >= 2


def test_a_forced_move_reserves_its_capacity(control: Control) -> None:
    make_kvm2_refuse(control)
    control.source.deaths = 100
    assert run_one_move(control, force=True).error is not None
    (record,) = control.unsettled()
    assert record.request["memory_mib"] == 4096
    control.fleet.guest("db1", OTHER, memory_bytes=GIB)
    (job,) = control.run(name="db1", destination="kvm2", check=True)
    assert "short of memory" in str(job.error)


def test_a_forced_move_that_bypassed_nothing_is_recorded_as_forced(control: Control) -> None:
    control.fleet.guest()
    job = run_one_move(control, force=True)
    assert job.record.forced == "FORCED_MIGRATE"
    assert "Nothing had to be bypassed" in next(line.detail for line in job.record.history if line.status == s.SCHEDULED)
    assert not any("bypassed" in warning for warning in control.warnings)


def test_all_forced_moves_are_listed(control: Control) -> None:
    make_kvm2_refuse(control)
    run_one_move(control, force=True)
    control.fleet.guest("db1", OTHER)
    control.run(name="db1", destination="kvm3")
    assert [record["domain"]["name"] for record in read_term(control.ledger, "migrations", Conditions(forced=True))] == ["web1"]
    assert [record["domain"]["name"] for record in read_term(control.ledger, "migrations", Conditions(forced=False))] == ["db1"]


def test_check_mode_predicts_a_forced_move(control: Control) -> None:
    make_kvm2_refuse(control)
    job = run_one_move(control, force=True, check=True)
    assert (job.error, job.record.forced, job.moved) == (None, "FORCED_MIGRATE", True)
    assert "new disks" in job.record.history[-1].detail
    assert control.records() == []


def test_force_without_a_destination_moves_nothing(control: Control) -> None:
    control.fleet.guest()
    control.fleet.guest("db1", OTHER)
    for given in ({"name": "web1"}, {"moves": [{"name": "web1", "destination": "kvm2"}, {"name": "db1"}]}):
        with pytest.raises(e.InvalidArgument, match="force"):
            control.run(force=True, **given)
    assert control.source.phases == []


def test_force_applies_only_to_its_own_move(control: Control) -> None:
    make_kvm2_refuse(control)
    control.fleet.guest("db1", OTHER, memory_bytes=GIB)
    jobs = control.run(moves=[{"name": "web1", "force": True}, {"name": "db1"}], destination="kvm2")
    assert [job.error and job.error.error_code for job in jobs] == [None, "conflict"]


def test_force_does_not_permit_unsafe_storage(control: Control) -> None:
    control.fleet.guest(disks=(domain_states.Disk("vda", "file", "/images/a"),))
    control.source.shared = False
    job = run_one_move(control, force=True)
    assert isinstance(job.error, e.Unsafe)
    (record,) = control.records()
    assert (record.status, record.forced) == (s.CONFLICT, "FORCED_MIGRATE")


def test_force_does_not_permit_a_silent_destination(control: Control) -> None:
    control.fleet.guest()
    control.fleet.machines["kvm2"].go_dark()
    assert isinstance(run_one_move(control, force=True).error, e.Unreachable)


def test_force_does_not_permit_a_missing_machine_type(control: Control) -> None:
    control.fleet.guest()
    control.source.needs[UUID] = {"machine": "pc-q35-9.9"}
    close_host(control, "kvm2", "new disks")
    job = run_one_move(control, force=True)
    assert isinstance(job.error, e.Conflict)
    assert "pc-q35-9.9" in str(job.error)
    assert "new disks" not in str(job.error), "what force bypasses is no reason"
    (record,) = control.records()
    assert (record.status, record.forced) == (s.CONFLICT, "FORCED_MIGRATE")
