# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the engine relies on when it talks to a host: the same of the fake and of libvirt."""

from __future__ import annotations

import uuid as uuid_module

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.tests.integration.contract.stages import GUEST_MIB, MIB, Stage, until

UNKNOWN = str(uuid_module.uuid4())


# -- reading ---------------------------------------------------------------------------------------------------------


def test_two_hosts_are_two_by_their_uuid(stage: Stage) -> None:
    one, two = stage.host(1), stage.host(2)
    assert one.host_uuid() == stage.host(1).host_uuid() != two.host_uuid()
    assert one.hostname() != two.hostname()
    assert str(uuid_module.UUID(one.host_uuid())) == one.host_uuid()
    for host in (one, two):
        assert all(number >= 1_000_000 for number in host.versions().values())
        assert 0 < host.memory()["free_bytes"] <= host.memory()["total_bytes"]
        assert host.cpus() >= 1


def test_a_domain_is_found_by_name_and_by_uuid(stage: Stage) -> None:
    name = stage.guest(autostart=True)
    info = stage.host().find(name=name)
    assert stage.host().find(uuid=info.uuid) == info
    assert (info.name, info.memory_bytes, info.vcpus, info.autostart) == (name, GUEST_MIB * MIB, 1, True)
    assert info.view == h.GuestView(True, True, True, True, h.RUNNING, "booted", h.JOB_NONE)


def test_a_domain_that_is_not_there(stage: Stage) -> None:
    host = stage.host()
    for wanted in ({"name": "nobody"}, {"uuid": UNKNOWN}, {"name": UNKNOWN}):
        with pytest.raises(e.NotFound):
            host.find(**wanted)
    assert host.view(UNKNOWN) == h.NOT_THERE
    assert (host.job(UNKNOWN), host.completed_job(UNKNOWN), host.incoming_from(UNKNOWN)) == (None, None, False)


@pytest.mark.parametrize(
    ("state", "active", "described"), [(h.RUNNING, True, "running (booted)"), (h.PAUSED, True, "paused (user)"), (h.SHUTOFF, False, "shut off")]
)
def test_states(stage: Stage, state: str, active: bool, described: str) -> None:
    name = stage.guest(state)
    view = stage.host().view(stage.uuid(name))
    assert (view.present, view.active, view.state, view.job) == (True, active, state, h.JOB_NONE)
    assert view.describe().startswith(described)


def test_the_roster_has_every_domain(stage: Stage) -> None:
    running, defined = stage.guest(), stage.guest(h.SHUTOFF)
    roster = {entry["name"]: entry for entry in stage.host().roster()}
    assert (roster[running]["active"], roster[defined]["active"]) == (True, False)
    assert roster[running]["uuid"] == stage.uuid(running)
    assert (roster[running]["memory_bytes"], roster[running]["vcpus"]) == (GUEST_MIB * MIB, 1)


# -- a migration -----------------------------------------------------------------------------------------------------


def test_a_guest_arrives(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    stage.migrate(uuid)
    assert stage.host(1).view(uuid) == h.NOT_THERE
    assert stage.host(2).view(uuid) == h.GuestView(True, True, True, True, h.RUNNING, "migrated", h.JOB_NONE)
    stats = stage.host(2).completed_job(uuid)
    assert stats is not None
    assert 0 < stats.elapsed_ms < 60_000
    assert stats.downtime_ms is not None
    assert stats.memory_total_bytes >= GUEST_MIB * MIB
    assert stage.host(2).job(uuid) is None


def test_a_transient_guest_arrives_transient(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(persistent=False))
    stage.migrate(uuid, persistent=False)
    assert stage.host(1).view(uuid) == h.NOT_THERE
    view = stage.host(2).view(uuid)
    assert (view.active, view.persistent) == (True, False)


def test_a_paused_guest_arrives_paused_and_not_as_one_that_is_being_received(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(h.PAUSED))
    stage.migrate(uuid)
    assert stage.host(1).view(uuid) == h.NOT_THERE
    view = stage.host(2).view(uuid)
    assert (view.describe(), view.job) == ("paused (user)", h.JOB_NONE)


def test_autostart_does_not_go_along_by_itself(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(autostart=True))
    stage.migrate(uuid)
    assert stage.host(2).find(uuid=uuid).autostart is False
    stage.host(2).set_autostart(uuid, True)
    assert stage.host(2).find(uuid=uuid).autostart is True


def test_both_ends_while_memory_is_on_its_way(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    source, destination = stage.host(1), stage.host(2)
    first = source.job(uuid)
    assert first is not None
    assert first.memory_total_bytes >= GUEST_MIB * MIB
    assert (source.view(uuid).state, source.view(uuid).job) == (h.RUNNING, h.JOB_OUTGOING)
    there = destination.view(uuid)
    assert (there.active, there.state, there.job) == (True, h.PAUSED, h.JOB_INCOMING)
    assert there.reason in (h.MIGRATION, h.STARTING_UP)
    assert destination.incoming_from(uuid)
    assert destination.job(uuid) is None
    assert not source.incoming_from(uuid)
    assert any(entry["uuid"] == uuid and entry["active"] for entry in destination.roster())
    until(lambda: (source.job(uuid) or first).data_processed_bytes > first.data_processed_bytes)
    source.abort(uuid)
    call.ends()


def test_a_second_migration_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    with pytest.raises(e.InvalidState):
        stage.migrate(uuid)
    assert stage.host(1).job(uuid) is not None
    stage.host(1).abort(uuid)
    call.ends()


def test_an_aborted_guest_runs_on_where_it_was(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    stage.host(1).abort(uuid)
    # Where the destination notices the end first, libvirt 9.0 tells its error instead.
    assert isinstance(call.ends(), (e.Aborted, e.MigrationFailed))
    view = stage.host(1).view(uuid)
    assert (view.state, view.job, view.persistent) == (h.RUNNING, h.JOB_NONE, True)
    until(lambda: stage.host(2).view(uuid) == h.NOT_THERE)
    assert stage.host(1).job(uuid) is None
    assert stage.host(1).completed_job(uuid) is None


def test_an_abort_without_a_job(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.InvalidState):
        stage.host().abort(uuid)
    with pytest.raises(e.NotFound):
        stage.host().abort(UNKNOWN)


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_not_running_is_not_moved(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(h.SHUTOFF))
    with pytest.raises(e.InvalidState):
        stage.migrate(uuid)
    with pytest.raises(e.NotFound):
        stage.migrate(UNKNOWN)
    assert stage.host(1).view(uuid).present


def test_a_destination_that_does_not_answer_changes_nothing(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.MigrationFailed):
        stage.migrate(uuid, to="qemu+tcp://127.0.0.1:9/system")
    assert stage.host(1).view(uuid).describe() == "running (booted)"


def test_a_guest_is_not_moved_to_where_it_is(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.MigrationFailed):
        stage.migrate(uuid, to=stage.uri(1))
    assert stage.host(1).view(uuid).describe() == "running (booted)"


def test_storage_that_is_not_shared_is_unsafe_unless_asked_for(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(unsafe=True))
    with pytest.raises(e.Unsafe):
        stage.migrate(uuid)
    assert stage.host(1).view(uuid).describe() == "running (booted)"
    stage.migrate(uuid, unsafe=True)
    assert stage.host(2).view(uuid).active


# -- downtime --------------------------------------------------------------------------------------------------------


def test_the_downtime_is_kept(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    host = stage.host()
    assert host.max_downtime_ms(uuid) == 300
    for milliseconds in (0, 1, 450, 2_000_000):
        host.set_max_downtime_ms(uuid, milliseconds)
        assert host.max_downtime_ms(uuid) == milliseconds


def test_a_downtime_that_is_too_long(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.Internal):
        stage.host().set_max_downtime_ms(uuid, 2_000_001)
    assert stage.host().max_downtime_ms(uuid) == 300


def test_the_downtime_of_what_does_not_run(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(h.SHUTOFF))
    with pytest.raises(e.InvalidState):
        stage.host().set_max_downtime_ms(uuid, 100)
    with pytest.raises(e.NotFound):
        stage.host().set_max_downtime_ms(UNKNOWN, 100)


def test_a_downtime_set_in_a_migration_is_undone_when_it_is_aborted(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    stage.host().set_max_downtime_ms(uuid, 700)
    call = stage.begin(uuid)
    stage.host().set_max_downtime_ms(uuid, 5)
    assert stage.host().max_downtime_ms(uuid) == 5
    stage.host().abort(uuid)
    call.ends()
    until(lambda: stage.host().max_downtime_ms(uuid) == 700, 5)


# -- acts ------------------------------------------------------------------------------------------------------------


def test_destroying(stage: Stage) -> None:
    persistent, transient = stage.uuid(stage.guest()), stage.uuid(stage.guest(persistent=False))
    host = stage.host()
    host.destroy(persistent)
    host.destroy(transient)
    assert host.view(persistent).describe() == "shut off (destroyed)"
    assert host.view(transient) == h.NOT_THERE
    with pytest.raises(e.InvalidState):
        host.destroy(persistent)
    with pytest.raises(e.NotFound):
        host.destroy(UNKNOWN)


def test_undefining_only_what_is_not_active(stage: Stage) -> None:
    running, defined = stage.uuid(stage.guest()), stage.uuid(stage.guest(h.SHUTOFF))
    host = stage.host()
    for uuid in (running, defined, UNKNOWN):
        host.undefine(uuid)
    view = host.view(running)
    assert (view.active, view.persistent) == (True, True)
    assert host.view(defined) == h.NOT_THERE


def test_resuming(stage: Stage) -> None:
    paused, off = stage.uuid(stage.guest(h.PAUSED)), stage.uuid(stage.guest(h.SHUTOFF))
    host = stage.host()
    host.resume(paused)
    assert host.view(paused).describe() == "running (unpaused)"
    with pytest.raises(e.InvalidState):
        host.resume(off)
    with pytest.raises(e.NotFound):
        host.resume(UNKNOWN)


def test_autostart(stage: Stage) -> None:
    persistent, transient = stage.uuid(stage.guest()), stage.uuid(stage.guest(persistent=False))
    host = stage.host()
    for wanted in (True, True, False):
        host.set_autostart(persistent, wanted)
        assert host.find(uuid=persistent).autostart is wanted
    with pytest.raises(e.InvalidState):
        host.set_autostart(transient, True)
    assert host.find(uuid=transient).autostart is False


# -- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_that_was_closed_is_unreachable(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    host = stage.host()
    host.close()
    host.close()
    for call in (host.hostname, host.roster, lambda: host.view(uuid), lambda: host.job(uuid), lambda: host.find(uuid=uuid), lambda: host.abort(uuid)):
        with pytest.raises(e.Unreachable):
            call()


def test_a_connection_that_was_lost_stays_lost_and_a_new_one_is_had(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(on=2), on=2)
    host = stage.host(2)
    assert host.view(uuid).active
    stage.restart_daemon(2)
    for _again in range(2):
        with pytest.raises(e.Unreachable):
            host.view(uuid)
    assert stage.host(2).view(uuid).describe() == "running (booted)"
