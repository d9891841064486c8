# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole tasks of cold moves on the control node: what they write to the ledger, and how killed ones are settled."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold import run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, MissingNote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import ControllerGone
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.saved import resumes_running
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._cold.control import ColdControl
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import settings_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import another_move, close_host, room_for


def off(control: ColdControl, **how: t.Any) -> None:
    control.fleet.guest(state=ds.SHUTOFF, reason="shutdown", **how)


def test_a_definition_that_moved_has_a_record_of_all_its_steps(control: ColdControl) -> None:
    off(control, autostart=True)
    job = control.move(method="offline")
    assert (job.moved, job.error, control.places()) == (True, None, {"kvm2": ds.SHUTOFF})
    (record,) = control.records()
    assert (record.type, record.method, record.status) == (s.COLD_MIGRATION, "offline", s.COMPLETED)
    assert [line.status for line in record.history] == [s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.RUNNING, s.COMPLETED]
    document = control.ledger.read_domain(UUID)
    assert document is not None
    assert [host.host for host in document.domain.possible_hosts] == ["kvm2"]
    assert control.fleet.machines["kvm2"].domains[UUID].autostart


def test_a_second_run_changes_nothing(control: ColdControl) -> None:
    off(control)
    first = control.move(method="offline").record
    again = control.move(method="offline")
    assert first is not None
    assert again.record is not None
    assert (again.moved, again.error, again.record.id) == (False, None, first.id)


def test_check_mode_predicts_the_record_and_changes_nothing(control: ColdControl) -> None:
    off(control)
    job = control.move(method="offline", check=True)
    assert job.record is not None
    assert (job.moved, job.record.id, job.record.status, job.record.method) == (True, None, s.SCHEDULED, "offline")
    assert (control.records(), control.places(), control.source.phases) == ([], {"kvm1": ds.SHUTOFF}, ["prepare"])


def test_a_domain_that_stays_off_needs_no_memory_and_one_that_is_started_does(control: ColdControl) -> None:
    off(control)
    room_for(control, "kvm2", 0.5)
    refused = control.move(method="shutdown", start=True)
    assert isinstance(refused.error, e.Conflict)
    assert "short of memory" in str(refused.error) or "the whole host has" in str(refused.error)
    assert control.move(method="offline").moved
    assert control.records()[-1].request == {}


def test_a_started_guest_books_its_memory(control: ColdControl) -> None:
    control.fleet.guest()
    assert control.move(method="shutdown", start=True).moved
    assert control.records()[0].memory_bytes > 0
    assert control.places() == {"kvm2": ds.RUNNING}


def test_a_guest_that_is_shut_down_needs_what_its_next_start_needs(control: ColdControl) -> None:
    domain = control.fleet.guest()
    domain.live_definition = domain.xml()
    domain.definition = domain.xml().replace(f"<memory unit='b'>{GIB}</memory>", f"<memory unit='b'>{256 * GIB}</memory>")
    refused = control.move(method="shutdown", start=True)
    assert isinstance(refused.error, e.Conflict)
    assert (control.records()[-1].status, control.records()[-1].memory_bytes) == (s.CONFLICT, 256 * GIB)
    assert control.places() == {"kvm1": ds.RUNNING}


def test_a_host_in_maintenance_is_refused_with_a_record(control: ColdControl) -> None:
    off(control)
    close_host(control, "kvm2", "disk")
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert "disk" in str(job.error)
    assert [record.status for record in control.records()] == [s.CONFLICT]


def test_memory_is_saved_to_a_folder_that_both_hosts_share(control: ColdControl) -> None:
    control.fleet.guest()
    job = control.move(method="save", save_folder=str(control.shared))
    assert (job.error, control.places(), list(control.shared.iterdir())) == (None, {"kvm2": ds.RUNNING}, [])
    assert job.record is not None
    assert job.record.cold
    assert job.record.cold.image == f"{control.shared}/kvmfleet-{job.record.id}.save"


@pytest.mark.parametrize("destination", ["kvm3", None])
def test_without_a_shared_folder_no_memory_is_saved(control: ColdControl, destination: str | None) -> None:
    """The scheduler chooses among the hosts that share it."""
    control.fleet.guest()
    job = control.move(method="save", save_folder=str(control.shared), destination=destination)
    if destination is None:
        assert control.places() == {"kvm2": ds.RUNNING}
    else:
        assert isinstance(job.error, e.Unsafe)
        assert control.places() == {"kvm1": ds.RUNNING}


@pytest.mark.parametrize("die_at", range(3, 60, 4))
def test_a_task_whose_source_is_lost_is_settled_by_the_next_one(control: ColdControl, die_at: int) -> None:
    control.fleet.guest()
    control.source.die_at = die_at
    lost = control.move(method="save", save_folder=str(control.shared))
    if lost.error is None:
        assert die_at > 40
        return
    assert isinstance(lost.error, e.Unreachable)
    assert [record.status for record in control.unsettled()] == [s.RUNNING]
    control.source.die_at = None
    again = control.move(method="save", save_folder=str(control.shared))
    assert (again.error, again.moved) == (None, True)
    assert control.places() == {"kvm2": ds.RUNNING}
    assert control.unsettled() == []


@pytest.mark.parametrize("options", [{"method": "shutdown"}, {"method": "save"}])
def test_an_order_that_ssh_has_repeated_is_the_order_of_this_run(control: ColdControl, options: dict[str, str]) -> None:
    control.fleet.guest()
    control.source.repeats_start = True
    job = control.move(save_folder=str(control.shared) if options["method"] == "save" else None, **options)
    assert (job.error, job.moved) == (None, True)
    assert [record.status for record in control.records()] == [s.COMPLETED]
    assert list(control.places()) == ["kvm2"]


def test_a_person_settles_a_lost_move(control: ColdControl) -> None:
    off(control, autostart=True)
    control.source.die_at = 20
    assert control.move(method="offline").error is not None
    control.source.die_at = None
    (record,) = control.unsettled()
    stored = control.ledger.find_unsettled(UUID)
    assert stored is not None
    assert control.settlement(stored).predict_end() == record
    assert control.settlement(stored).settle_move().status == s.COMPLETED
    assert (control.places(), control.unsettled()) == ({"kvm2": ds.SHUTOFF}, [])


def test_the_move_of_another_record_is_not_touched(control: ColdControl) -> None:
    off(control)
    another_move(control, "kvm2", 512, s.SCHEDULED, s.RUNNING, domain=UUID)
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert "live-migration record" in str(job.error)
    assert control.places() == {"kvm1": ds.SHUTOFF}


@pytest.mark.parametrize(("kind", "source"), [(s.LIVE_MIGRATION, "kvm1"), (s.COLD_MIGRATION, "kvm3")])
def test_a_record_of_another_kind_or_from_another_host_is_not_adopted(control: ColdControl, kind: str, source: str) -> None:
    off(control)
    ends = (HostRef(name, None, control.fleet.machines[name].host_uuid) for name in (source, "kvm2"))
    control.ledger.open_record(new_record(kind, DomainRef(UUID, "web1"), *ends, {}, "x"))
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert f"Domain web1 is held by {kind} record" in str(job.error)
    assert (control.places(), control.source.phases) == ({"kvm1": ds.SHUTOFF}, ["prepare"])


def test_a_guest_that_its_host_would_start_again_is_not_shut_down(control: ColdControl, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    monkeypatch.setattr(FakeHost, "on_poweroff", lambda self, uuid: "restart")
    job = control.move(method="shutdown")
    assert isinstance(job.error, e.InvalidState)
    assert "has on_poweroff restart and would not be off" in str(job.error)
    assert control.places() == {"kvm1": ds.RUNNING}
    assert control.move(method="save", save_folder=str(control.shared)).moved


def test_of_several_moves_one_that_is_refused_does_not_stop_the_others(control: ColdControl) -> None:
    off(control)
    control.fleet.guest("web2", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02")
    moves = [{"name": name, "destination": "kvm2", "method": "offline"} for name in ("web2", "web1")]
    refused, moved = control.moves(moves)
    assert isinstance(refused.error, e.InvalidState)
    assert (moved.error, moved.moved) == (None, True)


@pytest.mark.parametrize("failure", [e.Forbidden("Read-only file system.", "Repair it."), e.Internal("No space left on device.", "Free space.")])
def test_a_move_whose_end_the_ledger_cannot_store_is_named_and_does_not_stop_the_others(
    control: ColdControl, monkeypatch: pytest.MonkeyPatch, failure: e.KvmfleetError
) -> None:
    off(control)
    control.fleet.guest("web2", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02", state=ds.SHUTOFF, reason="shutdown")
    update = control.ledger.update_record

    def fail(stored: t.Any, record: t.Any) -> t.Any:
        if record.domain.name == "web2" and record.status == s.COMPLETED:
            raise failure
        return update(stored, record)

    monkeypatch.setattr(control.ledger, "update_record", fail)
    unkept, moved = control.moves([{"name": name, "destination": "kvm2", "method": "offline"} for name in ("web2", "web1")])
    assert (moved.error, moved.moved, unkept.moved) == (None, True, True)
    assert isinstance(unkept.error, type(failure))
    assert "domain web2 from kvm1 to kvm2, which has ended there as 'completed'" in unkept.error.message
    assert [record["status"] for record in unkept.error.result["migrations"]] == [s.COMPLETED]
    monkeypatch.undo()
    assert control.moves([{"name": "web2", "destination": "kvm2", "method": "offline"}])[0].error is None


REFUSALS: list[tuple[dict[str, t.Any], dict[str, t.Any], type[e.KvmfleetError], str]] = [
    ({}, {"method": "offline"}, e.InvalidState, "the method offline moves a domain that is shut off"),
    ({"state": ds.SHUTOFF}, {"method": "save"}, e.InvalidState, "Use the method offline"),
    ({"state": ds.PAUSED}, {"method": "shutdown"}, e.InvalidState, "its guest cannot shut down"),
    ({"persistent": False}, {"method": "save"}, e.NotSupported, "transient"),
    ({"other_job": "a copy of disk vda"}, {"method": "shutdown"}, e.InvalidState, "has a job in progress (a copy of disk vda)"),
    ({"other_job": "a copy of disk vda"}, {"method": "save"}, e.InvalidState, "has a job in progress (a copy of disk vda)"),
]


@pytest.mark.parametrize(("how", "given", "error", "text"), REFUSALS)
def test_a_domain_that_the_method_cannot_move_is_refused(
    control: ColdControl, how: dict[str, t.Any], given: dict[str, t.Any], error: type[e.KvmfleetError], text: str
) -> None:
    control.fleet.guest(**how)
    job = control.move(**given, save_folder=str(control.shared))
    assert isinstance(job.error, error)
    assert text in str(job.error)
    assert (control.records(), control.source.phases) == ([], ["prepare"])


TPM = "<domain><name>web1</name><devices><tpm><backend type='emulator'/></tpm></devices></domain>"
KEPT_TPM = TPM.replace("<backend", "<backend persistent_state='yes'")


@pytest.mark.parametrize(
    ("definition", "version", "is_refused"), [(TPM, 8008000, True), (TPM, 8009000, False), (KEPT_TPM, 8008000, False), (KEPT_TPM, 6010000, True)]
)
def test_a_destination_that_could_not_take_a_tpm_back_is_refused(control: ColdControl, definition: str, version: int, is_refused: bool) -> None:
    """To undo the move there would delete the state of the TPM. A libvirt before 7.0 drops the attribute that keeps it."""
    off(control, definition=definition)
    control.fleet.machines["kvm2"].versions["libvirt"] = version
    job = control.move(method="offline", check=True)
    assert isinstance(job.error, e.NotSupported) is is_refused
    assert ("kvm2 would delete the state of the TPM" in str(job.error)) is is_refused


def save(control: ColdControl, resumes_as: str = ds.RUNNING, **how: t.Any) -> None:
    """Give web1 a managed-save image, as its host has it."""
    for machine in control.fleet.machines.values():
        machine.save_folder = str(control.shared.parent / f"save-{machine.name}")
        pathlib.Path(machine.save_folder).mkdir()
    control.fleet.guest(**how)
    control.fleet.open(LOCAL_URI).save_managed(UUID, resumes_as)
    control.fleet.on_begin = lambda migration: migration.complete()


@pytest.mark.parametrize("resumes_as", [ds.RUNNING, ds.PAUSED])
def test_a_managed_save_image_crosses(control: ColdControl, resumes_as: str) -> None:
    save(control, resumes_as)
    control.variables("kvm2")["kvmfleet_migration_address"] = "192.0.2.2"
    predicted = control.move(check=True, method="offline")
    assert (predicted.error, control.places()) == (None, {"kvm1": ds.SHUTOFF})
    job = control.move(method="offline")
    assert (job.error, job.moved, control.places()) == (None, True, {"kvm2": ds.SHUTOFF})
    image = control.fleet.machines["kvm2"].saved_memory["web1"]
    assert resumes_running(image) == (resumes_as == ds.RUNNING)
    assert list(pathlib.Path(control.fleet.source.save_folder).iterdir()) == []
    assert job.record
    assert job.record.cold
    assert job.record.cold.resumes_as == resumes_as
    # The guest uses the destination, and is booked there.
    assert job.record.request["memory_mib"] == 1024
    assert control.fleet.given_parameters == [{"migrate_uri": "tcp://192.0.2.2"}]


def test_a_managed_save_image_is_judged_like_a_guest_that_runs(control: ColdControl) -> None:
    save(control)
    room_for(control, "kvm2", 0.5)
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert (control.places(), "memory" in str(job.error)) == ({"kvm1": ds.SHUTOFF}, True), job.error


def test_a_move_with_a_managed_save_image_that_was_killed_is_settled(control: ColdControl) -> None:
    save(control)
    control.source.die_at = 60
    job = control.move(method="offline")
    assert isinstance(job.error, e.Unreachable)
    control.source.die_at = None
    (stored,) = [control.ledger.find_unsettled(UUID)]
    assert stored is not None
    assert control.settlement(stored).settle_move().status == s.COMPLETED
    assert control.places() == {"kvm2": ds.SHUTOFF}


@pytest.mark.parametrize(("method", "text"), [("offline", "which cannot be read"), ("shutdown", "the method offline does")])
def test_a_managed_save_image_that_does_not_cross_is_named(control: ColdControl, method: str, text: str) -> None:
    save(control)
    if method == "offline":
        pathlib.Path(control.fleet.source.saved_memory["web1"]).write_bytes(b"LibvirtQemudPart")
    job = control.move(method=method)
    assert isinstance(job.error, e.InvalidState)
    assert text in str(job.error)
    assert (control.records(), control.places()) == ([], {"kvm1": ds.SHUTOFF})


@pytest.mark.parametrize("state", [ds.SHUTOFF, ds.RUNNING])
def test_a_destination_that_has_the_domain_is_refused(control: ColdControl, state: str) -> None:
    off(control)
    control.fleet.guest(on="kvm2", state=state)
    # It may be newer than the disks, so no error advises to discard it.
    control.fleet.machines["kvm2"].saved_memory["web1"] = "memory"
    job = control.move(method="offline")
    assert isinstance(job.error, e.InvalidState if state == ds.RUNNING else e.Conflict)
    assert "managed" not in str(job.error)
    assert control.places() == {"kvm1": ds.SHUTOFF, "kvm2": state}


def write_document(control: ColdControl, *hosts: str, is_missing: bool = False) -> None:
    """Let the ledger have the domain on these hosts."""
    where = tuple(HostRef(host, None, control.fleet.machines[host].host_uuid) for host in hosts)
    missing = MissingNote("2026-11-23T18:00:00.000Z", "a test", where[0]) if is_missing else ABSENT
    control.ledger.put_domain(DomainEntry(UUID, "web1", where, missing=missing), None)


def test_a_definition_of_a_domain_that_is_elsewhere_by_the_ledger_stays(control: ColdControl) -> None:
    """C(virsh migrate) leaves one behind. The host that has the guest need not answer."""
    off(control, autostart=True)
    write_document(control, "kvm3")
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    for words in ("According to the ledger, domain web1 may be on kvm3", "the definition on kvm1", "protect kvm3"):
        assert words in str(job.error)
    document = control.ledger.read_domain(UUID)
    assert document is not None
    assert ([host.host for host in document.domain.possible_hosts], control.places()) == (["kvm3"], {"kvm1": ds.SHUTOFF})


@pytest.mark.parametrize(("has_tpm", "options"), [(False, "--keep-nvram"), (True, "--keep-nvram --keep-tpm")])
def test_a_definition_of_a_domain_that_may_be_elsewhere_too_by_the_ledger_stays(control: ColdControl, has_tpm: bool, options: str) -> None:
    """virsh before 8.9 does not know the option for the state of a TPM."""
    off(control, has_tpm=has_tpm)
    write_document(control, "kvm1", "kvm3")
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert "According to the ledger, domain web1 may be on kvm3, so that the definition on kvm1 may be left over." in str(job.error)
    assert f"undefine it on kvm1 (virsh undefine {options})." in str(job.error)
    assert control.places() == {"kvm1": ds.SHUTOFF}


@pytest.mark.parametrize(("host", "is_missing"), [("kvm1", False), ("kvm3", True)])
def test_a_definition_moves_from_the_host_that_the_ledger_has_and_from_any_if_that_has_lost_it(control: ColdControl, host: str, is_missing: bool) -> None:
    off(control)
    write_document(control, host, is_missing=is_missing)
    assert (control.move(method="offline").error, control.places()) == (None, {"kvm2": ds.SHUTOFF})


@pytest.mark.parametrize(
    ("readonly", "versions", "older"),
    [(True, (7002022, 7002022), ""), (False, (7002022, 10000013), "kvm1"), (False, (10000013, 9002000), "kvm2"), (False, (10000000, 10000013), "")],
)
def test_a_managed_save_image_with_a_disk_that_is_written_crosses_only_between_newer_hypervisors(
    control: ColdControl, readonly: bool, versions: tuple[int, int], older: str
) -> None:
    for name, version in zip(("kvm1", "kvm2"), versions):
        control.fleet.machines[name].versions["hypervisor"] = version
    save(control, disks=(ds.Disk("vda", "file", "/srv/fast/web.qcow2", readonly, False),))
    job = control.move(method="offline")
    if older:
        assert isinstance(job.error, e.NotSupported)
        assert f"has a managed-save image and a disk. The QEMU of {older} is older than 10.0" in str(job.error)
        assert ([record.status for record in control.records()], control.places()) == ([s.CONFLICT], {"kvm1": ds.SHUTOFF})
    else:
        assert (job.error, control.places()) == (None, {"kvm2": ds.SHUTOFF})


def give_image_maps(control: ColdControl, **folders: str) -> None:
    for host, folder in folders.items():
        control.variables(host)["kvmfleet_image_map"] = {"fast": folder}


def test_a_domain_gets_the_names_of_its_destination(control: ColdControl) -> None:
    off(control, disks=(ds.Disk("vda", "file", "/srv/fast/web.qcow2", True, False),))
    give_image_maps(control, kvm1="/srv/fast", kvm2="/data")
    foreseen = control.move(method="offline", check=True).record
    assert foreseen is not None
    assert [(one.before, one.after) for one in foreseen.rewritten or ()] == [("/srv/fast/web.qcow2", "/data/web.qcow2")]
    assert control.places() == {"kvm1": ds.SHUTOFF}
    job = control.move(method="offline")
    assert (job.error, control.places()) == (None, {"kvm2": ds.SHUTOFF})
    assert "/data/web.qcow2" in control.fleet.machines["kvm2"].domains[UUID].xml()
    (record,) = control.records()
    assert record.rewritten == foreseen.rewritten


def test_a_move_between_hosts_with_the_same_names_keeps_the_definition(control: ColdControl) -> None:
    off(control, disks=(ds.Disk("vda", "file", "/srv/fast/web.qcow2", True, False),))
    give_image_maps(control, kvm1="/srv/fast", kvm2="/srv/fast")
    assert control.move(method="offline").error is None
    (record,) = control.records()
    assert record.cold is not None
    assert (record.rewritten, record.cold.renaming) == (ABSENT, ABSENT)


def test_a_host_without_a_name_for_a_resource_is_refused(control: ColdControl) -> None:
    off(control, disks=(ds.Disk("vda", "file", "/srv/fast/web.qcow2", True, False),))
    give_image_maps(control, kvm1="/srv/fast")
    job = control.move(method="offline")
    assert isinstance(job.error, e.NotSupported)
    assert "kvm2 has no folder 'fast' in kvmfleet_image_map" in str(job.error)
    assert control.places() == {"kvm1": ds.SHUTOFF}


def test_an_unknown_domain_is_not_found(control: ColdControl) -> None:
    job = control.move(name="nobody", method="offline")
    assert isinstance(job.error, e.NotFound)


BAD: list[tuple[dict[str, t.Any], str]] = [
    ({}, "has no method"),
    ({"method": "save"}, "needs save_folder"),
    ({"method": "save", "save_folder": "saved"}, "save_folder is 'saved'"),
    ({"method": "shutdown", "shutdown_wait_seconds": 0}, "shutdown_wait_seconds is 0"),
    ({"method": "offline", "destination": "kvm1"}, "is the host that the domain runs on"),
    ({"method": "offline", "uuid": UUID}, "Exactly one of name and uuid"),
    ({"method": "offline", "force": True, "destination": None}, "force is true"),
]


@pytest.mark.parametrize(("given", "text"), BAD)
def test_bad_options_are_refused_before_any_host_is_asked(control: ColdControl, given: dict[str, t.Any], text: str) -> None:
    off(control)
    with pytest.raises(e.InvalidArgument, match=text):
        control.move(**given)
    assert (control.source.phases, control.records()) == ([], [])


def test_a_guest_that_runs_at_its_destination_keeps_the_reserve_for_failover_and_one_that_stays_off_does_not_need_it(control: ColdControl) -> None:
    control.settings = settings_of(kvmfleet_scheduler={"failover_hosts": 1})
    other = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c09"
    control.fleet.guest(memory_bytes=GIB)
    control.fleet.guest(name="db1", uuid=other, on="kvm3", memory_bytes=3 * GIB)
    # The hosts do not say which CPU features they can give a guest.
    control.source.needs = {UUID: {"cpu": None}, other: {"cpu": None}}
    for host, gib in {"kvm1": 1, "kvm2": 3, "kvm3": 3}.items():
        room_for(control, host, gib)
    # Only kvm2 has room for db1.
    refused = control.move(destination=None, method="shutdown", start=True)
    assert isinstance(refused.error, e.Conflict)
    assert "kvm2: The fleet could no longer lose kvm3 for certain (failover_hosts: 1)." in str(refused.error)
    assert control.places() == {"kvm1": ds.RUNNING}
    assert control.move(destination=None, method="shutdown", start=False).moved


@pytest.mark.parametrize(("killed_before", "statuses"), [("find_unsettled", []), ("update_record", [s.RUNNING])])
def test_a_worker_of_a_killed_run_shuts_no_guest_down(control: ColdControl, monkeypatch: pytest.MonkeyPatch, killed_before: str, statuses: list[str]) -> None:
    """A closed terminal ends ansible-playbook alone. The next run settles the record, and moves the guest."""
    control.fleet.guest()
    called = getattr(control.ledger, killed_before)

    def call(*args: t.Any) -> t.Any:
        patch.setattr(os, "getppid", lambda: -1)
        return called(*args)

    with monkeypatch.context() as patch:
        patch.setattr(control.ledger, killed_before, call)
        with pytest.raises(ControllerGone):
            control.move(method="shutdown", start=True)
    assert ([record.status for record in control.records()], control.source.phases, control.places()) == (statuses, ["prepare"], {"kvm1": ds.RUNNING})
    assert control.move(method="shutdown", start=True).error is None
    assert control.places() == {"kvm2": ds.RUNNING}


def test_an_order_that_arrives_too_late_changes_nothing(control: ColdControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ORDER_SECONDS", -1.0)
    off(control)
    job = control.move(method="offline")
    assert isinstance(job.error, e.Conflict)
    assert "came too late" in str(job.error)
    assert (control.records()[-1].status, control.places()) == (s.FAILED, {"kvm1": ds.SHUTOFF})


def test_a_move_may_be_settled_however_long_that_takes(control: ColdControl, monkeypatch: pytest.MonkeyPatch) -> None:
    off(control)
    control.source.die_at = 20
    assert control.move(method="offline").error is not None
    control.source.die_at = None
    monkeypatch.setattr(run, "ORDER_SECONDS", -1.0)
    assert control.move(method="offline").moved
    assert control.places() == {"kvm2": ds.SHUTOFF}
