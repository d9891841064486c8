# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole tasks on the control node: a real ledger, the module's own code, fake hosts."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import follow
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.dispatch import MAX_ADOPTIONS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import ControllerGone
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB, MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import run_one_move

HOST_ID = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"


def in_ledger(control: Control, status: str, to: str = "kvm2", uuid: str = UUID, source: t.Optional[HostRef] = None) -> MoveRecord:
    """A record that a run before this one left, in that status."""
    machine = control.fleet.machines[to]
    source, destination = source or HostRef("kvm1", None, control.fleet.source.host_uuid), HostRef(to, None, machine.host_uuid)
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web1"), source, destination, {}, "earlier", {"memory_mib": 1024})
    stored = control.ledger.open_record(record)
    for step in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
        if stored.record.status == status:
            break
        record = stored.record.advance(step, "earlier")
        stored = control.ledger.update_record(stored, record)
    return stored.record


def test_a_move_has_a_record_of_all_its_steps(control: Control) -> None:
    control.fleet.guest()
    job = run_one_move(control)
    assert (job.moved, job.error, job.record.status) == (True, None, s.COMPLETED)
    (record,) = control.records()
    assert [line.status for line in record.history if line.status not in ("migrate", "arrived")] == [
        s.ACCEPTED,
        s.SCHEDULED,
        s.QUEUED,
        s.PREPARING,
        s.RUNNING,
        s.COMPLETED,
    ]
    assert (record.source.host_uuid, record.destination.host_uuid) == (control.fleet.source.host_uuid, control.fleet.destination.host_uuid)
    assert "watcher" not in encode(record)
    assert control.shown


def test_the_same_task_again_changes_nothing_and_shows_the_record(control: Control) -> None:
    control.fleet.guest()
    first = run_one_move(control)
    again = run_one_move(control)
    assert (again.moved, again.error, again.record.id) == (False, None, first.record.id)
    assert control.source.phases.count("start") == 1


def test_a_domain_that_is_at_its_destination_already_is_no_change(control: Control) -> None:
    control.fleet.guest(on="kvm2")
    job: t.Any = control.run(uuid=UUID, destination="kvm2")[0]
    assert (job.moved, job.error, job.record.id) == (False, None, None)
    assert control.records() == []


@pytest.mark.parametrize(("check", "has_tpm"), [(True, False), (False, False), (True, True)])
def test_a_domain_that_left_a_definition_behind_is_at_its_destination_already(control: Control, check: bool, has_tpm: bool) -> None:
    """As after a move that was completed with the reason definition_left. The state of its TPM may be on shared storage, and virsh would delete it."""
    control.fleet.guest()
    first = run_one_move(control)
    control.fleet.guest(state=domain_states.SHUTOFF, reason="migrated", has_tpm=has_tpm)
    (again,) = t.cast("t.Any", control.run(check=check, name="web1", destination="kvm2"))
    assert (again.moved, again.error, again.record.id) == (False, None, first.record.id)
    (warning,) = control.warnings
    assert warning.startswith("Domain web1 is active on kvm2, and kvm1 still has a definition of it")
    assert warning.endswith("virsh undefine web1 --keep-nvram --keep-tpm" if has_tpm else "virsh undefine web1 --keep-nvram")
    (elsewhere,) = control.run(check=check, name="web1", destination="kvm3")
    assert isinstance(elsewhere.error, e.InvalidState)
    assert [call for call in control.fleet.source.calls if call.startswith("migrate")] == [f"migrate {UUID}"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("prepare", "given", "error"),
    [
        (lambda c: None, {"name": "nobody", "destination": "kvm2"}, e.NotFound),
        (lambda c: c.fleet.guest(state=domain_states.SHUTOFF, reason="shutdown"), {"name": "web1", "destination": "kvm2"}, e.InvalidState),
        (lambda c: c.fleet.guest(state=domain_states.OTHER_STATE), {"name": "web1", "destination": "kvm2"}, e.InvalidState),
        (lambda c: (c.fleet.guest(), c.fleet.destination.go_dark()), {"name": "web1", "destination": "kvm2"}, e.Unreachable),
        (lambda c: c.fleet.guest(), {"name": "web1", "destination": "kvm9"}, e.Unreachable),
        (lambda c: (c.fleet.guest(), c.fleet.guest(on="kvm2")), {"name": "web1", "destination": "kvm2"}, e.InvalidState),
        (lambda c: (c.fleet.guest(), c.fleet.guest(on="kvm2", uuid=OTHER)), {"name": "web1", "destination": "kvm2"}, e.Conflict),
        (lambda c: c.fleet.guest(memory_bytes=65 * GIB), {"name": "web1", "destination": "kvm2"}, e.Conflict),
        (lambda c: c.fleet.guest(job=domain_states.JOB_OTHER), {"name": "web1", "destination": "kvm2"}, e.InvalidState),
        (lambda c: c.fleet.guest(), {"name": "web1", "destination": "kvm2", "parallel_connections": 2, "compression": "zstd"}, e.NotSupported),
    ],
)
def test_a_domain_that_cannot_be_moved_fails_before_any_change(
    control: Control, prepare: t.Callable[[Control], None], given: t.Dict[str, t.Any], error: t.Type[e.KvmfleetError], check: bool
) -> None:
    prepare(control)
    (job,) = control.run(check=check, **given)
    assert isinstance(job.error, error)
    assert (job.moved, control.unsettled(), control.source.phases) == (False, [], ["prepare"])
    assert [machine.calls for machine in control.fleet.machines.values()] == [[], [], []]


@pytest.mark.parametrize("job", [domain_states.JOB_NONE, domain_states.JOB_OTHER], ids=["of a disk", "of the domain"])
def test_another_job_of_the_domain_is_named_and_the_move_waits_only_if_it_may(control: Control, job: str) -> None:
    control.fleet.guest(other_job="a backup", job=job)
    refused = run_one_move(control)
    assert isinstance(refused.error, e.InvalidState)
    assert "has a job in progress (a backup)" in str(refused.error)
    assert control.records() == []
    assert run_one_move(control, busy_wait_seconds=60).order.busy_wait_seconds == 60


@pytest.mark.parametrize("given", [{}, {"busy_wait_seconds": 60}])
def test_a_migration_of_another_tool_is_no_job_to_wait_for(control: Control, given: t.Dict[str, t.Any]) -> None:
    control.fleet.guest(job=domain_states.JOB_INCOMING)
    assert isinstance(run_one_move(control, **given).error, e.InvalidState)
    assert control.records() == []


def test_checkpoints_that_are_lost_in_a_move_are_a_warning(control: Control) -> None:
    control.fleet.guest(checkpoints=(Checkpoint("monday", "<domaincheckpoint/>"),))
    control.fleet.destination.broken_bitmaps.add("monday")
    job = run_one_move(control)
    assert (job.error, job.record.reason) == (None, "checkpoints_lost")
    assert control.warnings == [
        f"Not all checkpoints of domain web1 can be used on kvm2; the history of record {job.record.id} names them. Begin a new chain with a full backup."
    ]


def test_a_negative_wait_is_refused(control: Control) -> None:
    control.fleet.guest()
    with pytest.raises(e.InvalidArgument, match="busy_wait_seconds is -1"):
        run_one_move(control, busy_wait_seconds=-1)


def test_storage_that_is_not_shared_is_unsafe_unless_unsafe_is_set(control: Control) -> None:
    control.fleet.guest(disks=(domain_states.Disk("vda", "file", "/images/a"),))
    control.source.shared = False
    assert isinstance(run_one_move(control).error, e.Unsafe)
    assert run_one_move(control, unsafe=True).record.status == s.COMPLETED
    assert "UNSAFE" in control.source.orders[0]["flags"]


def test_the_source_under_another_name_is_refused_as_destination(control: Control) -> None:
    control.fleet.guest()
    with pytest.raises(e.InvalidArgument, match="by libvirt's UUID"):
        control.run(name="web1", destination_uri="qemu+tcp://kvm1/system")
    assert control.records() == []


def test_a_host_in_maintenance_is_refused_as_destination(control: Control) -> None:
    control.fleet.guest()
    body = {"schema": 1, "host_id": None, "name": "kvm2", "machine_id": None, "host_uuid": control.fleet.destination.host_uuid, "state": "maintenance"}
    control.ledger.put_host(host_entry({**body, "ledger_id": control.ledger.ledger_id, "reason": "new disks", "since": None, "by": "x"}), None)
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert "new disks" in str(job.error)
    assert run_one_move(control, destination=None).record.destination.host == "kvm3"


def test_without_a_destination_the_host_with_most_free_memory_is_chosen(control: Control) -> None:
    control.fleet.guest()
    control.fleet.guest("db1", OTHER, on="kvm2", memory_bytes=8 * GIB)
    job = run_one_move(control, destination=None)
    assert (job.record.status, job.record.destination.host) == (s.COMPLETED, "kvm3")
    assert job.record.connection.destination_uri == "qemu+tcp://kvm3/system"


def test_check_mode_predicts_and_writes_nothing(control: Control) -> None:
    control.fleet.guest()
    job: t.Any = control.run(check=True, name="web1", destination="kvm2")[0]
    assert (job.moved, job.record.status, job.record.id, job.record.destination.host) == (True, s.SCHEDULED, None, "kvm2")
    assert (control.records(), control.source.phases) == ([], ["prepare"])


def test_options_of_a_move_are_passed_to_libvirt(control: Control) -> None:
    control.fleet.guest()
    run_one_move(control, bandwidth_mib=500, parallel_connections=2, auto_converge=True, migrate_uri="tcp://10.0.0.2")
    (order,) = control.source.orders
    assert order["parameters"] == {"bandwidth": 500, "parallel.connections": 2, "migrate_uri": "tcp://10.0.0.2"}
    assert {"PARALLEL", "AUTO_CONVERGE", "PERSIST_DEST"} <= set(order["flags"])


@pytest.mark.parametrize(
    ("given", "pinned", "flag", "parameters", "words"),
    [
        ({"link_mib": 2000}, False, True, {"parallel.connections": 2}, "2 connections carry the memory, because the link carries 2000 MiB/s."),
        ({"link_mib": 2000, "parallel_connections": 5}, False, True, {"parallel.connections": 5}, "booked."),
        ({"link_mib": 2000, "post_copy": True}, False, False, {}, "One connection carries the memory: parallel_connections cannot be combined with post_copy"),
        ({"link_mib": 2000}, True, False, {}, "One connection carries the memory: the guest is pinned"),
        ({}, False, False, {}, "booked."),
    ],
)
def test_several_connections_are_used_on_a_fast_link_and_the_record_says_why(
    control: Control, given: t.Dict[str, t.Any], pinned: bool, flag: bool, parameters: t.Dict[str, t.Any], words: str
) -> None:
    guest = control.fleet.guest()
    control.source.needs[guest.uuid] = {"pinning": {"vcpus": {"0": [1]}}} if pinned else {}
    predicted: t.Any = control.run(check=True, name="web1", destination="kvm2", **given)[0]
    job = run_one_move(control, **given)
    (order,) = control.source.orders
    assert ("PARALLEL" in order["flags"], order["parameters"]) == (flag, parameters)
    (line,) = [line.detail for line in job.record.history if line.status == s.SCHEDULED]
    assert words in line
    assert words in predicted.record.history[-1].detail


def test_a_migration_address_of_the_destination_is_used(tmp_path: pathlib.Path) -> None:
    control = Control(tmp_path, kvmfleet_migration_address="10.9.0.2")
    control.fleet.guest()
    run_one_move(control)
    assert control.source.orders[0]["parameters"] == {"migrate_uri": "tcp://10.9.0.2"}


# -- ends that are no arrivals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "happens", "error", "status"),
    [
        ({"timeout_seconds": 3}, lambda m: None, e.TimedOut, s.CANCELLED),
        ({}, lambda m: m.fail(), e.MigrationFailed, s.FAILED),
        ({}, lambda m: m.cancel(), e.Aborted, s.CANCELLED),
        ({}, lambda m: m.end(None, None, (domain_states.CRASHED, "panicked")), e.Internal, s.ERROR),
    ],
)
def test_each_final_status_has_its_error(
    control: Control, given: t.Dict[str, t.Any], happens: t.Callable[..., None], error: t.Type[e.KvmfleetError], status: str
) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest(dirty_bytes=256 * MIB, dirty_rate_bytes=200 * MIB)
    control.fleet.on_begin = lambda migration: control.fleet.clock.after(2, lambda: happens(migration))
    job = run_one_move(control, **given)
    assert isinstance(job.error, error)
    assert (job.moved, job.record.status) == (False, status)
    assert "web1" in str(job.error)
    assert control.records()[0].status == status


def test_a_failed_move_does_not_stop_the_others(control: Control) -> None:
    control.fleet.guest()
    control.fleet.guest("db1", OTHER)
    jobs = control.run(moves=[{"name": "web1"}, {"name": "nobody"}, {"name": "db1", "destination": "kvm3"}], destination="kvm2")
    assert [job.error and job.error.error_code for job in jobs] == [None, "not_found", None]
    assert [job.record.destination.host for job in jobs if job.record] == ["kvm2", "kvm3"]
    assert control.source.phases == ["prepare", "start"]


def test_a_domain_named_twice_refuses_the_task(control: Control) -> None:
    control.fleet.guest()
    with pytest.raises(e.InvalidArgument, match="more than once"):
        control.run(moves=[{"name": "web1"}, {"uuid": UUID}], destination="kvm2")
    assert control.records() == []


@pytest.mark.parametrize(("error", "closed"), [(e.Forbidden("no root"), True), (e.Unreachable("ssh went away"), False)])
def test_a_failed_start_closes_the_record_only_if_nothing_can_have_started(control: Control, error: e.KvmfleetError, closed: bool) -> None:
    control.fleet.guest()
    control.source.refuse_start = error
    job = run_one_move(control)
    assert job.error is error
    (record,) = control.records()
    assert record.status == (s.FAILED if closed else s.QUEUED)


@pytest.mark.parametrize("silent_surveys", [0, 3])
def test_a_move_is_followed_if_only_the_answer_of_its_start_was_lost(control: Control, silent_surveys: int) -> None:
    control.fleet.guest()
    control.source.lost_answers = 1
    control.source.silent_surveys = silent_surveys
    job = run_one_move(control)
    assert (job.error, job.record.status, job.moved) == (None, s.COMPLETED, True)
    assert control.source.phases.count("start") == 1
    assert len(control.records()) == 1


@pytest.mark.parametrize("silent_surveys", [0, 3])
def test_orders_that_did_not_arrive_are_sent_again(control: Control, silent_surveys: int) -> None:
    control.fleet.guest()
    control.source.lost_orders = 1
    control.source.silent_surveys = silent_surveys
    job = run_one_move(control)
    assert (job.error, job.record.status, job.moved) == (None, s.COMPLETED, True)
    assert control.source.phases.count("start") == 2
    assert len(control.records()) == 1


def test_orders_that_never_arrive_are_not_sent_for_ever(control: Control) -> None:
    control.fleet.guest()
    control.source.lost_orders = 100
    job = run_one_move(control)
    assert isinstance(job.error, e.Unreachable)
    assert control.source.phases.count("start") == 3
    assert [record.status for record in control.unsettled()] == [s.QUEUED]


def test_a_start_that_ssh_has_repeated_is_the_start_of_this_run(control: Control) -> None:
    control.fleet.guest()
    control.source.repeats_start = True
    job = run_one_move(control)
    assert (job.error, job.record.status, job.moved) == (None, s.COMPLETED, True)
    assert len(control.records()) == 1


@pytest.mark.parametrize("trouble", [e.Internal("live_migrate ended before it had answered."), e.Forbidden("The user has lost its rights.")])
def test_a_repeated_start_is_left_open_if_the_source_does_not_tell_what_the_first_one_has_started(
    control: Control, monkeypatch: pytest.MonkeyPatch, trouble: e.KvmfleetError
) -> None:
    control.fleet.guest()
    control.source.repeats_start = True
    prepare, asked = control.source.prepare_moves, list[int]()

    def prepare_once(*args: t.Any) -> t.Any:
        asked.append(1)
        if len(asked) > 1:
            raise trouble
        return prepare(*args)

    monkeypatch.setattr(control.source, "prepare_moves", prepare_once)
    job = run_one_move(control)
    assert isinstance(job.error, e.Unreachable)
    assert trouble.message in str(job.error)
    assert [record.status for record in control.unsettled()] == [s.QUEUED]


def test_a_watcher_that_dies_after_the_answer_of_its_start_was_lost_is_replaced(control: Control) -> None:
    control.fleet.guest()
    control.source.lost_answers, control.source.deaths = 1, 1
    assert run_one_move(control).record.status in s.CLOSED
    assert control.source.phases.count("start") == 2
    # Following a move never comes too late.
    assert control.source.given_until == [control.source.until, ABSENT]


def test_a_source_that_stays_silent_after_the_start_leaves_the_move_to_its_watcher(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "UNREACHABLE_SECONDS", -1.0)
    control.fleet.guest()
    control.source.lost_answers, control.source.silent_surveys = 1, 100
    job = run_one_move(control)
    assert isinstance(job.error, e.Unreachable)
    assert "the connection was closed" in str(job.error)
    assert [record.status for record in control.unsettled()] == [s.QUEUED]


# -- adoption --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [s.ACCEPTED, s.SCHEDULED, s.QUEUED])
def test_a_move_that_an_earlier_run_never_began_is_cancelled_and_repeated(control: Control, status: str) -> None:
    control.fleet.guest()
    earlier = in_ledger(control, status)
    job = run_one_move(control)
    assert (job.record.status, job.moved) == (s.COMPLETED, True)
    assert job.record.id != earlier.id
    assert [(record.status, record.reason) for record in control.records()] == [(s.CANCELLED, "controller_lost"), (s.COMPLETED, None)]


def test_a_domain_is_moved_while_the_watcher_that_gave_its_move_up_goes_on_with_others(control: Control) -> None:
    control.fleet.guest()
    earlier = in_ledger(control, s.QUEUED)
    control.source.leave_watched_state(earlier.advance(s.CANCELLED, "watcher pid 4711", "Nothing was started.", s.REASON_CONTROLLER_LOST))
    job = run_one_move(control)
    assert (job.error, job.record.status, job.moved) == (None, s.COMPLETED, True)
    assert [(record.id == earlier.id, record.status) for record in control.records()] == [(True, s.CANCELLED), (False, s.COMPLETED)]


def test_a_record_is_adopted_while_the_watcher_of_an_earlier_move_of_the_domain_goes_on_with_others(control: Control) -> None:
    control.fleet.guest()
    ends = (HostRef("kvm1", None, control.fleet.source.host_uuid), HostRef("kvm3", None, None))
    before = new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), *ends, {}, "earlier")
    control.source.leave_watched_state(before.advance(s.CANCELLED, "watcher pid 4711", "Nothing was started.", s.REASON_CONTROLLER_LOST))
    earlier = in_ledger(control, s.QUEUED)
    job = run_one_move(control)
    assert (job.error, job.record.status, job.moved) == (None, s.COMPLETED, True)
    assert [(record.id == earlier.id, record.status) for record in control.records()] == [(True, s.CANCELLED), (False, s.COMPLETED)]


def test_a_move_that_another_ledger_owns_is_a_conflict(control: Control) -> None:
    control.fleet.guest()
    record = new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "another run")
    control.source.leave_watched_state(record.advance(s.SCHEDULED, "another run"))
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert f"record {record.id}, which this ledger does not have" in str(job.error)
    assert "If it is lost, wait for the end of the move, or abort it" in str(job.error)
    assert control.records() == []


def test_a_running_move_without_a_watcher_is_adopted(control: Control) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest()
    earlier = in_ledger(control, s.RUNNING)
    control.fleet.begin_elsewhere()
    job = run_one_move(control)
    assert (job.record.id, job.record.status, job.moved) == (earlier.id, s.COMPLETED, True)
    assert job.record.generation > earlier.generation
    assert control.source.orders[0]["adopt"] is True


def identify(control: Control, **host_ids: str) -> None:
    """Give hosts IDs of their own, the source in its file, which this machine has not."""
    for host, host_id in host_ids.items():
        control.fleet.machines[host].host_id = host_id
        control.source.facts.setdefault(host, {})["host_id"] = host_id


@pytest.mark.parametrize("identified", [True, False])
def test_a_running_move_is_adopted_after_the_source_got_a_new_uuid(control: Control, identified: bool) -> None:
    """Libvirt makes a new UUID at each start of its daemon where the firmware has none."""
    control.fleet.link_mib = 100
    if identified:
        identify(control, kvm1=HOST_ID)
    control.fleet.guest()
    earlier = in_ledger(control, s.RUNNING, source=HostRef("kvm1", HOST_ID if identified else None, control.fleet.source.host_uuid))
    control.fleet.begin_elsewhere()
    control.fleet.source.host_uuid = OTHER
    job = run_one_move(control)
    assert (job.record.id, job.record.status, job.moved) == (earlier.id, s.COMPLETED, True)


def test_a_record_of_another_host_with_the_same_uuid_is_not_adopted(control: Control) -> None:
    identify(control, kvm1=HOST_ID)
    control.fleet.guest()
    in_ledger(control, s.RUNNING, source=HostRef("kvm8", OTHER, control.fleet.source.host_uuid))
    assert isinstance(run_one_move(control).error, e.Conflict)


def test_source_and_destination_that_share_a_uuid_are_not_supported(control: Control) -> None:
    control.fleet.guest()
    identify(control, kvm1=HOST_ID, kvm2=OTHER)
    control.fleet.destination.host_uuid = control.fleet.source.host_uuid
    job = run_one_move(control)
    assert isinstance(job.error, e.NotSupported)
    assert "host_uuid" in str(job.error)


def test_source_and_destination_with_the_same_host_id_are_a_conflict(control: Control) -> None:
    control.fleet.guest()
    identify(control, kvm1=HOST_ID, kvm2=HOST_ID)
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert "Two hosts report the host ID" in str(job.error)


@pytest.mark.parametrize("check", [True, False])
def test_a_source_that_belongs_to_another_ledger_is_a_conflict(control: Control, check: bool) -> None:
    control.fleet.guest()
    control.source.facts = {"kvm1": {"ledger_id": OTHER}}
    job = run_one_move(control, check=check)
    assert isinstance(job.error, e.Conflict)
    assert f"kvm1 was protected under the ledger {OTHER}" in str(job.error)
    assert (control.records(), control.source.phases) == ([], ["prepare"])
    control.source.facts = {"kvm1": {"ledger_id": control.ledger.ledger_id}}
    assert run_one_move(control, check=check).error is None


def test_a_destination_that_belongs_to_another_ledger_is_refused(control: Control) -> None:
    control.fleet.guest()
    control.say("kvm2", ledger_id=OTHER)
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert f"kvm2 was protected under the ledger {OTHER}" in str(job.error)
    assert [record.status for record in control.records()] == [s.CONFLICT]
    assert "start" not in control.source.phases


def test_a_move_of_an_earlier_run_ends_though_its_source_belongs_to_another_ledger_now(control: Control) -> None:
    control.fleet.guest(on="kvm2")
    in_ledger(control, s.RUNNING)
    control.source.facts = {"kvm1": {"ledger_id": OTHER}}
    assert run_one_move(control).record.status == s.COMPLETED


def test_a_record_has_the_host_ids_that_both_hosts_reported(control: Control) -> None:
    control.fleet.guest()
    identify(control, kvm1=HOST_ID, kvm2=OTHER)
    record = run_one_move(control).record
    assert (record.source.host_id, record.destination.host_id) == (HOST_ID, OTHER)


def test_a_running_move_to_another_destination_is_a_conflict(control: Control) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest()
    in_ledger(control, s.RUNNING)
    control.fleet.begin_elsewhere()
    job = run_one_move(control, destination="kvm3")
    assert isinstance(job.error, e.Conflict)
    assert "kvm2" in str(job.error)
    assert "kvm3" in str(job.error)
    assert control.source.phases == ["prepare"]


def test_options_that_differ_from_an_adopted_record_are_a_warning(control: Control) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest()
    in_ledger(control, s.RUNNING)
    control.fleet.begin_elsewhere()
    run_one_move(control, downtime_ms=123)
    assert any("downtime_ms=123" in warning for warning in control.warnings)


def test_a_foreign_job_is_adopted_with_a_record(control: Control) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest()
    control.fleet.begin_elsewhere()
    control.fleet.clock.sleep(1)
    job = run_one_move(control)
    assert (job.record.status, job.moved) == (s.COMPLETED, True)
    assert not any(call.startswith("migrate") for call in control.fleet.source.calls)


def test_a_foreign_job_on_a_host_of_another_ledger_is_not_adopted(control: Control) -> None:
    """It may be a move of that ledger whose watcher has died."""
    control.fleet.link_mib = 100
    control.fleet.guest()
    control.fleet.begin_elsewhere()
    control.fleet.clock.sleep(1)
    control.source.facts = {"kvm1": {"ledger_id": OTHER}}
    job = run_one_move(control)
    assert f"kvm1 was protected under the ledger {OTHER}" in str(job.error)
    assert control.records() == []


def test_a_foreign_job_to_another_destination_is_a_conflict(control: Control) -> None:
    control.fleet.link_mib = 100
    control.fleet.guest()
    control.fleet.begin_elsewhere()
    control.fleet.clock.sleep(1)
    assert isinstance(run_one_move(control, destination="kvm3").error, e.Conflict)
    assert control.records() == []


@pytest.mark.parametrize("where", ["kvm1", "kvm2"])
def test_a_move_that_ended_without_a_follower_is_settled_first(control: Control, where: str) -> None:
    control.fleet.guest(on=where)
    earlier = in_ledger(control, s.RUNNING)
    job = run_one_move(control)
    assert job.record.status == s.COMPLETED
    by_id = {record.id: record.status for record in control.records()}
    assert by_id[earlier.id] == (s.COMPLETED if where == "kvm2" else s.FAILED)
    assert job.moved is (where == "kvm1")


def test_a_watcher_that_dies_is_replaced_with_a_warning(control: Control) -> None:
    control.fleet.guest()
    control.source.deaths = 1
    job = run_one_move(control)
    assert any("has died" in warning for warning in control.warnings)
    assert job.record.status in s.CLOSED


def test_watchers_that_keep_dying_leave_the_record_to_the_next_run(control: Control) -> None:
    control.fleet.guest()
    control.source.deaths = 100
    job = run_one_move(control)
    assert job.error is not None
    assert control.source.phases.count("start") == MAX_ADOPTIONS + 1
    assert not control.source.watchers, "no watcher is started that nobody follows"
    assert len(control.unsettled()) == 1
    control.source.deaths = 0
    assert run_one_move(control).record.status == s.COMPLETED


def test_a_source_that_is_silent_briefly_is_polled_again(control: Control) -> None:
    control.fleet.guest()
    control.source.silent_polls = 5
    assert run_one_move(control).record.status == s.COMPLETED


def test_a_source_that_stays_silent_leaves_the_move_to_its_watcher(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "UNREACHABLE_SECONDS", -1.0)
    control.fleet.guest()
    control.source.silent_polls = 5
    job = run_one_move(control)
    assert isinstance(job.error, e.Unreachable)
    assert "If it runs, moves are watched there" in str(job.error)
    assert len(control.unsettled()) == 1


def test_a_move_that_an_evacuation_has_settled_while_its_source_was_silent_has_that_end(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle_and_be_silent(*_args: t.Any) -> t.Any:
        for record in control.unsettled():
            control.ledger.update_record(control.ledger.read_record(record.record_id), record.advance(s.FAILED, "x", "The guest was started on kvm2."))
        raise e.Unreachable("kvm1 cannot be reached.")

    monkeypatch.setattr(follow, "UNREACHABLE_SECONDS", -1.0)
    monkeypatch.setattr(control.source, "poll_states", settle_and_be_silent)
    control.fleet.guest()
    job = run_one_move(control)
    assert isinstance(job.error, e.MigrationFailed)
    assert "was not moved from kvm1 to kvm2: failed. The guest was started on kvm2." in str(job.error)


def test_a_domain_locked_by_an_evacuation_is_a_conflict(control: Control) -> None:
    control.fleet.guest()
    ends = HostRef("kvm8", None, "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01"), HostRef("kvm2", None, control.fleet.destination.host_uuid)
    stored = control.ledger.open_record(new_record(s.EVACUATION, DomainRef(UUID, "web1"), *ends, {}, "x"))
    record = stored.record.advance(s.PRE_MIGRATING, "x")
    control.ledger.update_record(stored, record)
    job = run_one_move(control)
    assert isinstance(job.error, e.Conflict)
    assert "evacuation" in str(job.error)


def test_a_worker_without_its_parent_opens_no_record(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    control.source.after_prepare = lambda: monkeypatch.setattr(os, "getppid", lambda: -1)
    with pytest.raises(ControllerGone):
        run_one_move(control)
    assert (control.records(), control.source.phases) == ([], ["prepare"])


def test_a_worker_without_its_parent_starts_no_reserved_move(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    opened = control.ledger.open_record

    def opened_by_an_orphan(record: MoveRecord) -> t.Any:
        monkeypatch.setattr(os, "getppid", lambda: -1)
        return opened(record)

    monkeypatch.setattr(control.ledger, "open_record", opened_by_an_orphan)
    with pytest.raises(ControllerGone):
        run_one_move(control)
    assert ([record.status for record in control.records()], control.source.phases) == ([s.QUEUED], ["prepare"])


def test_a_watcher_that_cannot_leave_the_login_session_is_one_warning(control: Control) -> None:
    control.fleet.guest()
    control.source.session_warning = "It stays in the session."
    control.source.deaths = 1
    run_one_move(control)
    assert control.warnings.count("kvm1: It stays in the session.") == 1
    assert control.source.phases.count("start") == 2
