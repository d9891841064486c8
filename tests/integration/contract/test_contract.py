# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The behaviour of libvirt that the watcher relies on, checked on the fake and on real hosts."""

from __future__ import annotations

import uuid as uuid_module

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.tests.integration.contract.stages import GUEST_MIB, MIB, Stage, until

UNKNOWN = str(uuid_module.uuid4())


# -- reading ---------------------------------------------------------------------------------------------------------


def test_each_host_has_its_own_uuid_versions_memory_and_cpus(stage: Stage) -> None:
    one, two = stage.host(1), stage.host(2)
    assert one.host_uuid() == stage.host(1).host_uuid() != two.host_uuid()
    assert one.read_hostname() != two.read_hostname()
    assert str(uuid_module.UUID(one.host_uuid())) == one.host_uuid()
    for host in (one, two):
        assert all(number >= 1_000_000 for number in host.read_versions().values())
        assert 0 < host.read_memory()["free_bytes"] <= host.read_memory()["total_bytes"]
        assert host.count_cpus() >= 1


def test_a_domain_is_found_by_name_and_by_uuid(stage: Stage) -> None:
    name = stage.guest(autostart=True)
    info = stage.host().find_domain(name=name)
    assert stage.host().find_domain(uuid=info.uuid) == info
    assert (info.name, info.memory_bytes, info.vcpus, info.autostart) == (name, GUEST_MIB * MIB, 1, True)
    assert info.view == domain_states.DomainView(True, True, True, True, domain_states.RUNNING, "booted", domain_states.JOB_NONE)


def test_an_unknown_domain_is_not_found_and_has_no_job(stage: Stage) -> None:
    host = stage.host()
    for wanted in ({"name": "nobody"}, {"uuid": UNKNOWN}, {"name": UNKNOWN}):
        with pytest.raises(e.NotFound):
            host.find_domain(**wanted)
    assert host.view_domain(UNKNOWN) == domain_states.NOT_THERE
    assert (host.read_job(UNKNOWN), host.completed_job(UNKNOWN), host.is_incoming(UNKNOWN)) == (None, None, False)


@pytest.mark.parametrize(
    ("state", "active", "described"),
    [(domain_states.RUNNING, True, "running (booted)"), (domain_states.PAUSED, True, "paused (user)"), (domain_states.SHUTOFF, False, "shut off")],
)
def test_states_of_domains_are_read_and_described(stage: Stage, state: str, active: bool, described: str) -> None:
    name = stage.guest(state)
    view = stage.host().view_domain(stage.uuid(name))
    assert (view.present, view.active, view.state, view.job) == (True, active, state, domain_states.JOB_NONE)
    assert view.describe().startswith(described)


def test_list_presence_lists_active_and_inactive_domains(stage: Stage) -> None:
    running, defined = stage.guest(), stage.guest(domain_states.SHUTOFF)
    presence = stage.host().list_presence()
    assert (presence[stage.uuid(running)], presence[stage.uuid(defined)]) == (True, False)


# -- a migration -----------------------------------------------------------------------------------------------------


def test_a_migrated_guest_runs_at_its_destination_with_statistics_of_its_job(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    stage.migrate(uuid)
    assert stage.host(1).view_domain(uuid) == domain_states.NOT_THERE
    assert stage.host(2).view_domain(uuid) == domain_states.DomainView(True, True, True, True, domain_states.RUNNING, "migrated", domain_states.JOB_NONE)
    stats = stage.host(2).completed_job(uuid)
    assert stats is not None
    assert 0 < stats.elapsed_ms < 60_000
    assert stats.downtime_ms is not None
    assert stats.memory_total_bytes >= GUEST_MIB * MIB
    assert stage.host(2).read_job(uuid) is None


def test_a_transient_guest_arrives_transient(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(persistent=False))
    stage.migrate(uuid, persistent=False)
    assert stage.host(1).view_domain(uuid) == domain_states.NOT_THERE
    view = stage.host(2).view_domain(uuid)
    assert (view.active, view.persistent) == (True, False)


def test_a_paused_guest_arrives_paused_and_is_not_incoming_any_more(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(domain_states.PAUSED))
    stage.migrate(uuid)
    assert stage.host(1).view_domain(uuid) == domain_states.NOT_THERE
    view = stage.host(2).view_domain(uuid)
    assert (view.describe(), view.job) == ("paused (user)", domain_states.JOB_NONE)


def test_libvirt_does_not_migrate_autostart(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(autostart=True))
    stage.migrate(uuid)
    assert stage.host(2).find_domain(uuid=uuid).autostart is False
    stage.host(2).set_autostart(uuid, True)
    assert stage.host(2).find_domain(uuid=uuid).autostart is True


def test_source_and_destination_report_a_running_migration(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    source, destination = stage.host(1), stage.host(2)
    first = source.read_job(uuid)
    assert first is not None
    assert first.memory_total_bytes >= GUEST_MIB * MIB
    assert (source.view_domain(uuid).state, source.view_domain(uuid).job) == (domain_states.RUNNING, domain_states.JOB_OUTGOING)
    there = destination.view_domain(uuid)
    assert (there.active, there.state, there.job) == (True, domain_states.PAUSED, domain_states.JOB_INCOMING)
    assert there.reason in (domain_states.MIGRATION, domain_states.STARTING_UP)
    assert destination.is_incoming(uuid)
    assert destination.read_job(uuid) is None
    assert not source.is_incoming(uuid)
    assert destination.list_presence()[uuid]
    until(lambda: (source.read_job(uuid) or first).data_processed_bytes > first.data_processed_bytes)
    source.abort_job(uuid)
    call.ends()


def test_a_second_migration_is_refused_and_the_first_continues(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    with pytest.raises(e.InvalidState):
        stage.migrate(uuid)
    assert stage.host(1).read_job(uuid) is not None
    stage.host(1).abort_job(uuid)
    call.ends()


def test_an_aborted_guest_keeps_running_on_its_source(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    call = stage.begin(uuid)
    stage.host(1).abort_job(uuid)
    # Where the destination notices the end first, libvirt 9.0 tells its error instead.
    assert isinstance(call.ends(), (e.Aborted, e.MigrationFailed))
    view = stage.host(1).view_domain(uuid)
    assert (view.state, view.job, view.persistent) == (domain_states.RUNNING, domain_states.JOB_NONE, True)
    until(lambda: stage.host(2).view_domain(uuid) == domain_states.NOT_THERE)
    assert stage.host(1).read_job(uuid) is None
    assert stage.host(1).completed_job(uuid) is None


def test_an_abort_without_a_job_is_refused(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.InvalidState):
        stage.host().abort_job(uuid)
    with pytest.raises(e.NotFound):
        stage.host().abort_job(UNKNOWN)


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_domain_that_is_shut_off_or_unknown_is_not_migrated(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(domain_states.SHUTOFF))
    with pytest.raises(e.InvalidState):
        stage.migrate(uuid)
    with pytest.raises(e.NotFound):
        stage.migrate(UNKNOWN)
    assert stage.host(1).view_domain(uuid).present


def test_a_destination_that_does_not_answer_changes_nothing(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.MigrationFailed):
        stage.migrate(uuid, to="qemu+tcp://127.0.0.1:9/system")
    assert stage.host(1).view_domain(uuid).describe() == "running (booted)"


def test_a_migration_to_the_source_itself_fails(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.MigrationFailed):
        stage.migrate(uuid, to=stage.uri(1))
    assert stage.host(1).view_domain(uuid).describe() == "running (booted)"


def test_storage_that_is_not_shared_is_unsafe_unless_unsafe_is_set(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(unsafe=True))
    with pytest.raises(e.Unsafe):
        stage.migrate(uuid)
    assert stage.host(1).view_domain(uuid).describe() == "running (booted)"
    stage.migrate(uuid, unsafe=True)
    assert stage.host(2).view_domain(uuid).active


# -- downtime --------------------------------------------------------------------------------------------------------


def test_the_longest_downtime_that_is_set_is_read_back(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    host = stage.host()
    assert host.max_downtime_ms(uuid) == 300
    for milliseconds in (0, 1, 450, 2_000_000):
        host.set_max_downtime_ms(uuid, milliseconds)
        assert host.max_downtime_ms(uuid) == milliseconds


def test_a_downtime_over_the_limit_of_libvirt_is_refused(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    with pytest.raises(e.Internal):
        stage.host().set_max_downtime_ms(uuid, 2_000_001)
    assert stage.host().max_downtime_ms(uuid) == 300


def test_the_downtime_of_an_inactive_or_unknown_domain_cannot_be_set(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(domain_states.SHUTOFF))
    with pytest.raises(e.InvalidState):
        stage.host().set_max_downtime_ms(uuid, 100)
    with pytest.raises(e.NotFound):
        stage.host().set_max_downtime_ms(UNKNOWN, 100)


def test_a_downtime_set_during_a_migration_is_reset_by_an_abort(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(busy=True))
    stage.host().set_max_downtime_ms(uuid, 700)
    call = stage.begin(uuid)
    stage.host().set_max_downtime_ms(uuid, 5)
    assert stage.host().max_downtime_ms(uuid) == 5
    stage.host().abort_job(uuid)
    call.ends()
    until(lambda: stage.host().max_downtime_ms(uuid) == 700, 5)


# -- acts ------------------------------------------------------------------------------------------------------------


def test_destroying_ends_a_guest_and_keeps_a_persistent_definition(stage: Stage) -> None:
    persistent, transient = stage.uuid(stage.guest()), stage.uuid(stage.guest(persistent=False))
    host = stage.host()
    host.destroy_domain(persistent)
    host.destroy_domain(transient)
    assert host.view_domain(persistent).describe() == "shut off (destroyed)"
    assert host.view_domain(transient) == domain_states.NOT_THERE
    with pytest.raises(e.InvalidState):
        host.destroy_domain(persistent)
    with pytest.raises(e.NotFound):
        host.destroy_domain(UNKNOWN)


def test_undefining_removes_only_inactive_domains(stage: Stage) -> None:
    running, defined = stage.uuid(stage.guest()), stage.uuid(stage.guest(domain_states.SHUTOFF))
    host = stage.host()
    for uuid in (running, defined, UNKNOWN):
        host.undefine_domain(uuid)
    view = host.view_domain(running)
    assert (view.active, view.persistent) == (True, True)
    assert host.view_domain(defined) == domain_states.NOT_THERE


def test_resuming_starts_only_paused_guests(stage: Stage) -> None:
    paused, off = stage.uuid(stage.guest(domain_states.PAUSED)), stage.uuid(stage.guest(domain_states.SHUTOFF))
    host = stage.host()
    host.resume_domain(paused)
    assert host.view_domain(paused).describe() == "running (unpaused)"
    with pytest.raises(e.InvalidState):
        host.resume_domain(off)
    with pytest.raises(e.NotFound):
        host.resume_domain(UNKNOWN)


def test_autostart_is_set_only_for_persistent_domains(stage: Stage) -> None:
    persistent, transient = stage.uuid(stage.guest()), stage.uuid(stage.guest(persistent=False))
    host = stage.host()
    for wanted in (True, True, False):
        host.set_autostart(persistent, wanted)
        assert host.find_domain(uuid=persistent).autostart is wanted
    with pytest.raises(e.InvalidState):
        host.set_autostart(transient, True)
    assert host.find_domain(uuid=transient).autostart is False


# -- connections -----------------------------------------------------------------------------------------------------


def test_every_call_on_a_closed_connection_is_unreachable(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest())
    host = stage.host()
    host.close()
    host.close()
    for call in (
        host.read_hostname,
        host.list_presence,
        lambda: host.view_domain(uuid),
        lambda: host.read_job(uuid),
        lambda: host.find_domain(uuid=uuid),
        lambda: host.abort_job(uuid),
    ):
        with pytest.raises(e.Unreachable):
            call()


def test_a_lost_connection_stays_unreachable_and_a_new_connection_works(stage: Stage) -> None:
    uuid = stage.uuid(stage.guest(on=2), on=2)
    host = stage.host(2)
    assert host.view_domain(uuid).active
    stage.restart_daemon(2)
    for _again in range(2):
        with pytest.raises(e.Unreachable):
            host.view_domain(uuid)
    assert stage.host(2).view_domain(uuid).describe() == "running (booted)"
