# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is fenced in a maintenance run, by its step, by what its agent reports, and by the moves of the ledger."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import records
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostStep, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.fence_decision import (
    FENCE,
    FINISH,
    WAIT,
    KnownGuests,
    check_fence,
    check_guests_at_boot,
    decide_fence,
    list_placed,
    read_moves,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import night, passed

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
LONG_AGO, FAR_AHEAD = "2000-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("fenced_at", "is_off", "boot_id", "expected"),
    [
        (ABSENT, False, None, FENCE),
        (ABSENT, True, None, FENCE),
        (LONG_AGO, True, None, FINISH),
        (LONG_AGO, False, None, WAIT),
        (LONG_AGO, False, "boot-2", WAIT),
        (LONG_AGO, False, "boot-1", FENCE),
    ],
)
def test_a_fence_that_was_begun_is_finished_or_waited_for_and_not_repeated(fenced_at: t.Any, is_off: bool, boot_id: str | None, expected: str) -> None:
    step = HostStep(m.REBOOT, LONG_AGO, None, "boot-1", fenced_at)
    assert decide_fence(step, is_off, boot_id) == expected


HELD: dict[str, t.Any] = {"guard": {"installed": True, "systemd": True, "held_at_boot": True}}
TOKEN = {"token_id": "66666666-0000-4000-8000-000000000006"}


@pytest.mark.parametrize(
    ("starts_guests", "protected", "boot_id", "refused"),
    [
        (True, None, None, True),
        (ABSENT, None, None, True),
        (True, {"guard": {"installed": True, "systemd": False, "held_at_boot": False}}, None, True),
        (True, {**HELD, **TOKEN}, None, True),
        (True, None, "boot-2", True),
        (True, HELD, None, False),
        (False, None, None, False),
        (True, None, "boot-1", False),
    ],
)
def test_a_host_that_may_have_started_guests_at_its_boot_is_not_fenced(starts_guests: t.Any, protected: t.Any, boot_id: str | None, refused: bool) -> None:
    step = HostStep(m.REBOOT, LONG_AGO, None, "boot-1", starts_guests=starts_guests)
    entry = host_entry({"name": "kvm1", "state": "maintenance", **({"protected": protected} if protected else {})})
    if refused:
        with pytest.raises(Unsafe, match="kvm1 is not fenced: it may have started guests when it booted"):
            check_guests_at_boot(step, entry, boot_id)
    else:
        check_guests_at_boot(step, entry, boot_id)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"boot_id": ABSENT}, "has not recorded that it is safe to reboot"),
        ({"step": m.VERIFY}, "has not recorded that it is safe to reboot"),
        (None, "has not recorded that it is safe to reboot"),
    ],
)
@pytest.mark.parametrize("state", [s.MAINTENANCE, s.ENABLED])
def test_only_a_host_in_maintenance_whose_boot_was_recorded_before_its_reboot_is_fenced(changes: dict[str, t.Any] | None, why: str | None, state: str) -> None:
    """No step of another kind states that no guest ran, whatever it has recorded."""
    run = passed(night("kvm1"), "kvm1", until=m.REBOOT)
    host, step = run.hosts[0], dataclasses.replace(HostStep(m.REBOOT, LONG_AGO, None, "boot-1"), **changes or {})
    run = run.replace_host(dataclasses.replace(host, steps=(step,) if changes is not None else ()))
    entry = host_entry({"name": "kvm1", "state": state})
    why = why or (None if state == s.MAINTENANCE else "it is enabled in the ledger")
    if why:
        with pytest.raises((InvalidState, Unsafe), match=why):
            check_fence(run, entry, KnownGuests((), (), {}))
    else:
        assert check_fence(run, entry, KnownGuests((), (), {})) == step


def run_drained_at(moment: str) -> MaintenanceRun:
    run = passed(night("kvm1"), "kvm1", until=m.DRAIN)
    host = run.hosts[0]
    return run.replace_host(dataclasses.replace(host, steps=(*host.steps[:-1], dataclasses.replace(host.steps[-1], began_at=moment))))


@pytest.mark.parametrize(
    ("ends", "statuses", "drained_at", "counts"),
    [
        (("kvm2", "kvm1"), (), FAR_AHEAD, True),
        (("kvm1", "kvm2"), (), FAR_AHEAD, True),
        (("kvm2", "kvm1"), (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED), LONG_AGO, True),
        (("kvm2", "kvm1"), (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED), FAR_AHEAD, False),
        (("kvm1", "kvm2"), (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED), LONG_AGO, False),
        (("kvm2", "kvm1"), (s.FAILED,), LONG_AGO, False),
        (("kvm2", "kvm3"), (), LONG_AGO, False),
    ],
)
def test_moves_by_which_a_guest_may_be_on_the_host(
    tmp_path: pathlib.Path, ends: t.Sequence[str], statuses: t.Sequence[str], drained_at: str, counts: bool
) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    places = [HostRef(end, None, None) for end in ends]
    stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), *places, {}, "ann"))
    for status in statuses:
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    assert [record.domain.name for record in read_moves(ledger, run_drained_at(drained_at), "kvm1")] == (["web1"] if counts else [])


def test_a_domain_is_placed_on_the_host_if_it_is_on_no_other_one_and_not_missing(tmp_path: pathlib.Path) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    here, there = ({"host": name, "host_id": None, "host_uuid": f"libvirt {name}"} for name in ("kvm1", "kvm2"))
    note = {"at": LONG_AGO, "by": "ann@control", "host": here}
    for number, (hosts, more) in enumerate([([here], {}), ([there], {}), ([here, there], {}), ([here], {"missing": note})]):
        ledger.put_domain(domain_entry({"uuid": UUID[:-1] + str(number), "name": f"web{number}", "possible_hosts": hosts, **more}), None)
    own = host_entry({"name": "kvm1", "host_id": None, "host_uuid": "libvirt kvm1", "state": "maintenance"})
    assert list_placed(ledger, own) == {UUID[:-1] + "0": "web0"}


def test_without_a_drain_each_guest_that_has_arrived_may_be_on_the_host(tmp_path: pathlib.Path) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    places = [HostRef(end, None, None) for end in ("kvm2", "kvm1")]
    stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), *places, {}, "ann"))
    for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED):
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    assert [record.domain.name for record in read_moves(ledger, night("kvm1"), "kvm1")] == ["web1"]


@pytest.mark.parametrize(("ends", "counts"), [((s.COMPLETED,), False), ((s.FAILED,), True)])
def test_a_guest_that_arrived_during_the_drain_and_was_moved_on_is_not_on_the_host(tmp_path: pathlib.Path, ends: t.Sequence[str], counts: bool) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    ways = [("kvm2", "kvm1", (s.COMPLETED,)), ("kvm1", "kvm3", ends)]
    for source, destination, last in ways:
        places = [HostRef(end, None, None) for end in (source, destination)]
        stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), *places, {}, "ann"))
        for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, *last):
            stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    found = read_moves(ledger, run_drained_at(LONG_AGO), "kvm1")
    assert [record.destination.host for record in found] == (["kvm1"] if counts else [])


@pytest.mark.parametrize(("drained_at", "counts"), [(LONG_AGO, True), (FAR_AHEAD, False)])
def test_a_guest_that_an_evacuation_has_started_may_be_on_the_host(tmp_path: pathlib.Path, drained_at: str, counts: bool) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    places = [HostRef(end, None, None) for end in ("kvm2", "kvm1")]
    stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(UUID, "web1"), *places, {}, "ann"))
    for status in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    assert [record.status for record in read_moves(ledger, run_drained_at(drained_at), "kvm1")] == ([s.DONE] if counts else [])


@pytest.mark.parametrize("later", [(s.COMPLETED,), (s.ERROR, s.COMPLETED)])
def test_the_cleanup_of_a_dead_host_starts_no_guest_where_its_evacuation_had_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, later: t.Sequence[str]
) -> None:
    """The guest came before the drain, which has moved it away."""
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    places = [HostRef(end, None, None) for end in ("kvm2", "kvm1")]
    stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(UUID, "web1"), *places, {}, "ann"))
    for status in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    monkeypatch.setattr(records, "utc_now", lambda: FAR_AHEAD)
    for status in later:
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    assert read_moves(ledger, run_drained_at("2998-01-01T00:00:00.000Z"), "kvm1") == []
