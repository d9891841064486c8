# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A destination that is refused ends in a record, whoever refused it; bad input leaves none."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import events_of_change
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import (
    OTHER,
    VARIABLES,
    another_move,
    memory_saved,
    room_for,
    run_one_move,
    variables_taken,
)

POST_COPY = "COMPUTE_MIGRATE_POST_COPY"
Prepare = t.Callable[[Control], t.Any]


def silent(control: Control) -> None:
    control.fleet.guest()
    control.fleet.destination.go_dark()


def name_taken(control: Control) -> None:
    control.fleet.guest()
    control.fleet.guest(on="kvm2", uuid=OTHER)


def not_shared(control: Control) -> None:
    control.fleet.guest(disks=(domain_states.Disk("vda", "file", "/images/a"),))
    control.source.shared = False


def trait_missing_here(control: Control) -> None:
    control.fleet.guest()
    control.source.facts["kvm1"] = {"traits": [], "missing_traits": {POST_COPY: "The sysctl is 0."}}


def trait_missing_there(control: Control) -> None:
    control.fleet.guest()
    control.source.facts["kvm1"] = {"traits": [POST_COPY]}
    control.source.facts["kvm2"] = {"traits": [], "missing_traits": {POST_COPY: "The sysctl is 0."}}


def same_uuid(control: Control) -> None:
    control.fleet.guest()
    control.fleet.destination.host_uuid = control.fleet.source.host_uuid
    control.say("kvm1", host_id="11111111-1111-4111-8111-111111111111")
    control.source.facts["kvm1"] = {"host_id": "11111111-1111-4111-8111-111111111111"}
    control.source.facts["kvm2"] = {"host_id": "22222222-2222-4222-8222-222222222222"}


def copied_id(control: Control) -> None:
    control.fleet.guest()
    for host in ("kvm1", "kvm2"):
        control.source.facts[host] = {"host_id": "11111111-1111-4111-8111-111111111111"}


def too_old(control: Control) -> None:
    control.fleet.guest()
    for host, libvirt in (("kvm1", 11003000), ("kvm2", 9000000), ("kvm3", 11003000)):
        control.source.facts[host] = {"versions": {"libvirt": libvirt, "hypervisor": 10000000}}


def no_capacity(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)


REFUSED: dict[str, tuple[Prepare, dict[str, t.Any], type[e.KvmfleetError], str]] = {
    "silent": (silent, {}, e.Unreachable, "kvm2 does not answer"),
    "name": (name_taken, {}, e.Conflict, f"kvm2 has another domain named web1 ({OTHER})"),
    "firmware variables": (variables_taken, {}, e.Conflict, f"The firmware variables of domain old ({OTHER}) on kvm2 are in {VARIABLES}"),
    "older memory": (memory_saved, {}, e.Conflict, f"kvm2 has a managed-save image of domain web1 ({UUID})"),
    "storage": (not_shared, {}, e.Unsafe, "vda"),
    "trait of the source": (trait_missing_here, {"post_copy": True}, e.NotSupported, POST_COPY),
    "trait of the destination": (trait_missing_there, {"post_copy": True}, e.Conflict, POST_COPY),
    "UUID": (same_uuid, {}, e.NotSupported, "have the same libvirt UUID"),
    "host ID": (copied_id, {}, e.Conflict, "Two hosts report the host ID"),
    "version": (too_old, {"compression": "zstd", "parallel_connections": 2}, e.NotSupported, "kvm2 has 9.0.0"),
    "capacity": (no_capacity, {}, e.Conflict, "MiB"),
}


@pytest.mark.parametrize("who", REFUSED)
def test_a_refused_destination_ends_in_a_record_and_a_notice(control: Control, who: str) -> None:
    prepare, given, error, words = REFUSED[who]
    prepare(control)
    job = run_one_move(control, **given)
    assert (type(job.error), job.moved, words in str(job.error)) == (error, False, True), job.error
    (record,) = control.records()
    assert [line.status for line in record.history] == [s.ACCEPTED, s.CONFLICT]
    assert words in record.last_detail
    assert (record.domain.uuid, record.source.host, record.destination.host, record.forced) == (UUID, "kvm1", "kvm2", None)
    assert job.error.result["migrations"] == [encode(record)]
    before = dataclasses.replace(record, history=record.history[:1], status=s.ACCEPTED)
    (event,) = events_of_change(before, record, control.ledger.ledger_id)
    data = t.cast("dict[str, t.Any]", event["data"])
    assert (str(event["type"]).rpartition("migration.")[2], words in data["detail"]) == ("move.conflict", True)
    assert [machine.calls for machine in control.fleet.machines.values()] == [[], [], []]
    assert control.source.phases == ["prepare"]
    assert not control.ledger.verify_audit()


@pytest.mark.parametrize("who", REFUSED)
def test_check_mode_has_the_same_error_and_writes_nothing(control: Control, who: str) -> None:
    prepare, given, dummy_error, dummy_words = REFUSED[who]
    prepare(control)
    foreseen = run_one_move(control, check=True, **given)
    assert control.records() == []
    assert str(foreseen.error) == str(run_one_move(control, **given).error)


@pytest.mark.parametrize("who", REFUSED)
def test_the_domain_can_move_after_a_refusal(control: Control, who: str) -> None:
    REFUSED[who][0](control)
    run_one_move(control, **REFUSED[who][1])
    control.source.shared = True
    control.source.facts = {}
    job = run_one_move(control, destination="kvm3")
    assert (job.error, [record.status for record in control.records()]) == (None, [s.CONFLICT, s.COMPLETED])


BAD: dict[str, tuple[Prepare, dict[str, t.Any], str]] = {
    "an unknown domain": (lambda c: None, {}, "not_found"),
    "a domain that is off": (lambda c: c.fleet.guest(state=domain_states.SHUTOFF, reason="shutdown"), {}, "invalid_state"),
    "a domain that is active twice": (lambda c: (c.fleet.guest(), c.fleet.guest(on="kvm2")), {}, "invalid_state"),
    "a domain with another job": (lambda c: c.fleet.guest(job=domain_states.JOB_OTHER), {}, "invalid_state"),
    "a host that nobody knows": (lambda c: c.fleet.guest(), {"destination": "kvm9"}, "unreachable"),
    "options that exclude each other": (lambda c: c.fleet.guest(), {"post_copy_bandwidth_mib": 8}, "not_supported"),
    "an unknown profile": (lambda c: (c.fleet.guest(), c.source.policies.update({UUID: {"profile": "gold"}})), {}, "invalid_argument"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_no_record(control: Control, case: str) -> None:
    prepare, given, code = BAD[case]
    prepare(control)
    job = run_one_move(control, **given)
    assert (job.error and job.error.error_code, job.moved, control.records()) == (code, False, [])


def test_a_destination_outside_the_inventory_is_named_as_such(control: Control) -> None:
    control.fleet.guest()
    message = str(run_one_move(control, destination="kvm9").error)
    assert message.startswith("The destination kvm9 does not answer: ")
    assert message.endswith(" The inventory has no host kvm9, so the name was taken as an address. Correct it if it is mistyped. Nothing was moved.")
    silent(control)
    assert "inventory" not in str(run_one_move(control).error)


def test_a_domain_that_is_off_can_be_moved_by_another_module(control: Control) -> None:
    control.fleet.guest(state=domain_states.SHUTOFF, reason="saved")
    message = str(run_one_move(control).error)
    assert message == (
        "Domain web1 on kvm1 is shut off (saved): only a running domain can be moved live. "
        "If it runs on no other host, start it, or move it as it is (cold_migrate with the method offline). Nothing was moved."
    )


def test_bad_input_comes_before_a_refusal(control: Control) -> None:
    """The destination is silent as well."""
    silent(control)
    control.source.policies[UUID] = {"profile": "gold"}
    assert (run_one_move(control).error.error_code, control.records()) == ("invalid_argument", [])


def test_a_domain_that_a_record_holds_has_no_second_one(control: Control) -> None:
    silent(control)
    another_move(control, "kvm3", 1024, s.SCHEDULED, domain=UUID)
    assert run_one_move(control).error.error_code == "conflict"
    assert [record.status for record in control.records()] == [s.SCHEDULED]


def test_without_a_destination_one_record_has_the_reasons_of_all_hosts(control: Control) -> None:
    name_taken(control)
    control.fleet.machines["kvm3"].go_dark()
    job = run_one_move(control, destination=None)
    (record,) = control.records()
    assert (job.error.error_code, record.status, record.destination.host) == ("conflict", s.CONFLICT, "kvm2")
    assert "kvm2: kvm2 has another domain named web1" in record.last_detail
    assert "kvm3: The destination kvm3 does not answer" in record.last_detail


def test_another_host_is_chosen_than_one_with_older_memory_of_the_guest(control: Control) -> None:
    memory_saved(control)
    job = run_one_move(control, destination=None)
    assert (job.error, job.record.destination.host) == (None, "kvm3")


def test_a_guest_may_return_to_the_file_of_its_variables_that_it_has_left(control: Control) -> None:
    variables_taken(control)
    old = control.fleet.machines["kvm2"].domains.pop(OTHER)
    control.fleet.guest(on="kvm2", uuid=UUID, state=domain_states.SHUTOFF, definition=old.definition.replace(OTHER, UUID).replace("old<", "web1<"))
    assert run_one_move(control).error is None


def test_a_candidate_that_is_left_out_is_no_refusal(control: Control) -> None:
    silent(control)
    job = run_one_move(control, destination=None)
    assert (job.record.destination.host, [record.status for record in control.records()]) == ("kvm3", [s.COMPLETED])


def test_a_candidate_that_is_too_old_is_left_out(control: Control) -> None:
    too_old(control)
    job = run_one_move(control, destination=None, compression="zstd", parallel_connections=2)
    assert (job.error, job.record.destination.host) == (None, "kvm3")


def test_the_refusal_of_one_of_several_moves_does_not_stop_the_others(control: Control) -> None:
    silent(control)
    control.fleet.guest("db1", OTHER)
    jobs = control.run(moves=[{"name": "web1", "destination": "kvm2"}, {"name": "db1", "destination": "kvm3"}])
    assert [job.error and job.error.error_code for job in jobs] == ["unreachable", None]
    assert sorted((record.domain.name, record.status) for record in control.records()) == [("db1", s.COMPLETED), ("web1", s.CONFLICT)]


def test_a_refused_move_with_force_is_a_forced_one(control: Control) -> None:
    silent(control)
    run_one_move(control, force=True)
    assert [(record.status, record.forced) for record in control.records()] == [(s.CONFLICT, "FORCED_MIGRATE")]
