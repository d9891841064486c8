# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One domain is started on a host that is a fake; lock, note and tokens are real files."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import struct
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images, restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.restart import Restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import saved_domains as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import HostTokens, SavedDisk
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_own_act
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import UUID, FakeStartingHost, definition

OTHER = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
RECORD = "2f0f8f8e-8f0c-4c1e-9d5e-0a6a3b7d1c11"
SOURCE = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"


class Bench:
    """A host, and a dead one's token in a folder of images that both see."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.host = FakeStartingHost()
        self.images, self.run, self.notes = (folder / name for name in ("images", "run", "notes"))
        self.images.mkdir()
        self.run.mkdir(mode=0o700)
        (self.images / "web1.qcow2").touch()
        self.tokens = images.leave_tokens([str(self.images)], SOURCE)[0]
        self.clock = FakeClock()

    def order(self, **changes: t.Any) -> r.RestartOrder:
        path = str(self.images / "web1.qcow2")
        disk = SavedDisk("vda", "file", path, readonly=False, optional=False, folders=(str(self.images),), wwn=None)
        order = restart_order(UUID, "web1", definition(path=path), (("vda", path),), (disk,), RECORD)
        return dataclasses.replace(order, tokens=HostTokens(SOURCE, self.tokens), **changes)

    def restart(self, late_after: float = float("inf"), **changes: t.Any) -> r.RestartResult:
        order, where = self.order(**changes), (str(self.run), str(self.notes), self.clock, self.clock.sleep)

        def is_late() -> bool:
            return self.clock() > late_after

        return Restart(self.host, order, *where, lambda: restart.build_restart_result(order, r.DEFERRED) if is_late() else None, is_late).carry_out_order()

    def note(self) -> str | None:
        return restart.read_noted_record(UUID, str(self.notes))


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("wanted", ["running", "paused", "shut off"])
def test_a_domain_gets_the_requested_state_and_keeps_autostart(bench: Bench, wanted: str) -> None:
    result = bench.restart(wanted=wanted)
    assert (result.outcome, result.changed, result.msg) == (r.STARTED, True, "")
    assert bench.host.guests[UUID] == {"name": "web1", "state": wanted, "persistent": True, "autostart": True}
    assert bench.host.starts == ([] if wanted == "shut off" else [UUID])
    assert bench.note() == RECORD


def test_a_transient_domain_stays_transient(bench: Bench) -> None:
    assert bench.restart(persistent=False).outcome == r.STARTED
    assert bench.host.guests[UUID]["persistent"] is False


def test_a_domain_that_does_not_start_is_removed_again(bench: Bench) -> None:
    bench.host.refuses.add("web1")
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "internal")
    assert "no." in result.msg
    assert bench.host.guests == {}
    assert bench.note() is None


def test_a_definition_with_a_tpm_that_an_old_libvirt_would_delete_is_left(bench: Bench) -> None:
    """Its state may be the only one that the hosts have."""
    bench.host.refuses.add("web1")
    bench.host.loses_tpm = True
    result = bench.restart()
    assert (result.outcome, result.changed, result.error_code) == (r.UNKNOWN, True, "internal")
    assert result.msg == "Failed to start web1: no. It was not undefined. Undefine it by hand."
    assert bench.host.guests[UUID]["state"] == "shut off"
    assert bench.note() == RECORD
    bench.host.guests.clear()
    assert bench.restart(rejoin=True, settle_only=True).outcome == r.FAILED


QCOW2, STORE, TPM_SOURCE = " format='qcow2'", "<varstore path='/srv/vars/web1.json'/>", "<source type='dir' path='/srv/tpm/web1'/>"
FIRMWARE = f"<os><loader type='pflash'{QCOW2}>/fw/CODE.qcow2</loader><nvram templateFormat='raw' format='raw'>/srv/vars/web1.qcow2</nvram></os>"
TPM = f"<tpm><backend type='emulator'>{TPM_SOURCE}<profile name='default-v1'/></backend></tpm>"


@pytest.mark.parametrize(
    ("dropped", "named"),
    [
        ((), ""),
        ((" templateFormat='raw'", " format='raw'", "<profile name='default-v1'/>"), ""),
        ((QCOW2,), "os/loader/@format"),
        ((STORE, TPM_SOURCE), "os/varstore and devices/tpm/backend/source"),
    ],
)
@pytest.mark.parametrize("wanted", ["running", "shut off"])
def test_a_host_whose_older_libvirt_loses_where_the_firmware_keeps_its_state_starts_nothing(
    bench: Bench, dropped: tuple[str, ...], named: str, wanted: str
) -> None:
    """It would take variables in qcow2 for raw, or start the guest with fresh ones."""
    bench.host.drops = dropped
    os_part = FIRMWARE.replace("</os>", f"{STORE}</os>")
    there = definition(path=str(bench.images / "web1.qcow2")).replace("<devices>", f"{os_part}<devices>{TPM}")
    result = bench.restart(definition=there, wanted=wanted)
    assert (result.outcome, result.error_code) == ((r.FAILED, "not_supported") if named else (r.STARTED, None))
    assert f"does not keep {named} of its definition" in result.msg if named else not result.msg
    assert (bench.host.starts, list(bench.host.guests)) == ([UUID] if not named and wanted == "running" else [], [] if named else [UUID])


@pytest.mark.parametrize("settle_only", [False, True])
def test_a_domain_that_is_off_and_that_an_older_libvirt_has_changed_is_not_taken_for_done_by_the_next_run(bench: Bench, settle_only: bool) -> None:
    """The first one was killed before it compared the definition."""
    there = definition(path=str(bench.images / "web1.qcow2")).replace("<devices>", f"{FIRMWARE}<devices>{TPM}")
    restart.write_note(UUID, bench.order().note, str(bench.notes))
    bench.host.define_domain(there)
    settled = {"wanted": "shut off", "rejoin": True, "settle_only": settle_only}
    # The next run has other maps, which change names.
    assert bench.restart(definition=there.replace("/srv/", "/mnt/"), **settled).outcome == r.STARTED
    # Nothing tells what was lost. That of the host may be the only one.
    assert (bench.restart(definition="<domain>", **settled).outcome, list(bench.host.guests)) == (r.UNKNOWN, [UUID])
    bench.host.drops = (QCOW2,)
    result = bench.restart(definition=there, **settled)
    assert (result.outcome, result.error_code, bench.host.guests, bench.note()) == (r.FAILED, "not_supported", {}, None)


@pytest.mark.parametrize(("loses_tpm", "outcome", "left"), [(True, r.UNKNOWN, [UUID]), (False, r.FAILED, [])])
def test_a_domain_that_is_off_and_that_an_older_libvirt_has_changed_is_not_taken_for_done_by_the_same_order(
    bench: Bench, loses_tpm: bool, outcome: str, left: list[str]
) -> None:
    """SSH has sent it twice. The first process was killed, or libvirt before 8.9 would have deleted the state of the TPM with the definition."""
    there = definition(path=str(bench.images / "web1.qcow2")).replace("<devices>", f"<devices>{TPM}")
    bench.host.drops, bench.host.loses_tpm = (TPM_SOURCE,), True
    assert bench.restart(definition=there, wanted="shut off").outcome == r.UNKNOWN
    bench.host.loses_tpm = loses_tpm
    again = bench.restart(definition=there, wanted="shut off")
    assert (again.outcome, again.error_code, list(bench.host.guests)) == (outcome, "not_supported", left)


def test_a_domain_is_started_once_libvirt_is_updated_although_its_former_definition_was_left(bench: Bench) -> None:
    """libvirt before 8.9 would have deleted the state of its TPM with it."""
    there = definition(path=str(bench.images / "web1.qcow2")).replace("<devices>", f"<devices>{TPM}")
    bench.host.drops, bench.host.loses_tpm = (TPM_SOURCE,), True
    first = bench.restart(definition=there)
    assert (first.outcome, first.error_code, list(bench.host.guests)) == (r.UNKNOWN, "not_supported", [UUID])
    bench.host.definitions["web1"] = bench.host.read_definition(UUID)
    bench.host.drops, bench.host.loses_tpm = (), False
    assert bench.restart(definition=there, rejoin=True).outcome == r.STARTED


def lock(image: pathlib.Path) -> int:
    """Lock an image as QEMU does when it writes to it; the lock lasts as long as the handle that is returned."""
    handle = os.open(image, os.O_RDWR)
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 101, 1, 0))
    return handle


def test_a_start_refused_for_an_accepted_lock_names_how_to_free_it(bench: Bench) -> None:
    image = bench.images / "web1.qcow2"
    handle = lock(image)
    try:
        bench.host.refuses.add("web1")
        result = bench.restart(accepted_locks=(str(image),))
    finally:
        os.close(handle)
    assert (result.outcome, result.error_code) == (r.FAILED, "unsafe")
    assert str(image) in result.msg
    assert "no." in result.msg, "what libvirt said is lost"
    assert "statd" in result.msg
    assert "evacuate again" in result.msg
    assert bench.host.guests == {}


def test_a_start_that_fails_for_another_reason_does_not_mention_locks(bench: Bench) -> None:
    bench.host.refuses.add("web1")
    result = bench.restart(accepted_locks=(str(bench.images / "web1.qcow2"),))
    assert (result.outcome, result.error_code) == (r.FAILED, "internal")
    assert "lock" not in result.msg


def test_a_domain_that_stops_at_once_is_removed_again(bench: Bench) -> None:
    bench.host.stops_at_once.add("web1")
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "migration_failed")
    assert bench.host.guests == {}


@pytest.mark.parametrize("state", ["running", "shut off"])
def test_a_domain_that_exists_already_is_a_conflict(bench: Bench, state: str) -> None:
    bench.host.add(UUID, "web1", state)
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "conflict")
    assert bench.host.guests[UUID]["state"] == state
    assert bench.host.starts == []


def test_another_domain_with_the_same_name_is_a_conflict(bench: Bench) -> None:
    bench.host.add(OTHER, "web1")
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "conflict")
    assert OTHER in result.msg
    assert list(bench.host.guests) == [OTHER]


def test_a_managed_save_of_the_same_name_is_a_conflict(bench: Bench) -> None:
    bench.host.memory["web1"] = "/var/lib/libvirt/qemu/save/web1.save"
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "conflict")
    assert bench.host.guests == {}


def test_a_domain_whose_storage_token_is_gone_is_not_started(bench: Bench) -> None:
    pathlib.Path(images.token_path(str(bench.images), SOURCE)).unlink()
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.FAILED, "unsafe")
    assert "token" in result.msg
    assert bench.host.guests == {}


def test_a_storage_token_with_another_nonce_is_unsafe(bench: Bench) -> None:
    pathlib.Path(images.token_path(str(bench.images), SOURCE)).unlink()
    images.leave_tokens([str(bench.images)], SOURCE)
    assert bench.restart().error_code == "unsafe"


def test_a_run_after_a_crash_finds_it_running(bench: Bench) -> None:
    """The start had succeeded, and nobody had written so."""
    bench.restart()
    result = bench.restart(rejoin=True)
    assert (result.outcome, result.changed) == (r.STARTED, False)
    assert result.generation == 2
    assert bench.host.starts == [UUID]


@pytest.mark.parametrize("wanted", ["paused", "shut off"])
def test_a_run_after_a_crash_finds_a_domain_that_a_person_has_resumed_or_started_since(bench: Bench, wanted: str) -> None:
    bench.restart(wanted=wanted)
    bench.host.guests[UUID]["state"] = "running"
    result = bench.restart(rejoin=True, wanted=wanted)
    assert (result.outcome, result.changed, result.msg) == (r.STARTED, False, "")


def test_a_run_after_a_crash_continues_with_its_own_definition(bench: Bench) -> None:
    bench.restart(wanted="shut off")
    result = bench.restart(rejoin=True)
    assert result.outcome == r.STARTED
    assert bench.host.starts == [UUID]


def test_a_run_after_a_crash_leaves_a_foreign_definition(bench: Bench) -> None:
    bench.host.add(UUID, "web1", "shut off")
    result = bench.restart(rejoin=True)
    assert (result.outcome, result.error_code) == (r.UNKNOWN, "conflict")
    assert bench.host.guests[UUID]["state"] == "shut off"


def test_an_order_older_than_the_newest_run_is_overtaken(bench: Bench) -> None:
    bench.host.refuses.add("web1")
    assert bench.restart(rejoin=True).outcome == r.FAILED
    bench.host.refuses.clear()
    result = bench.restart()
    assert (result.outcome, result.error_code) == (r.OVERTAKEN, "conflict")
    assert bench.host.guests == {}


def test_a_start_in_progress_is_not_disturbed(bench: Bench) -> None:
    other = Ownership(UUID, str(bench.run))
    try:
        result = bench.restart(rejoin=True)
    finally:
        other.release_lock()
    assert (result.outcome, result.error_code) == (r.UNKNOWN, "conflict")
    assert bench.host.guests == {}


def test_a_start_that_had_to_wait_for_too_long_is_deferred(bench: Bench) -> None:
    other = Ownership(UUID, str(bench.run))
    bench.clock.at(3.0, other.release_lock)
    result = bench.restart(late_after=2.0)
    assert (result.outcome, bench.host.guests, bench.note()) == (r.DEFERRED, {}, None)
    assert bench.restart().outcome == r.STARTED


def test_a_start_whose_checks_of_storage_took_too_long_is_deferred(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "find_unproved", lambda order: bench.clock.sleep(40) or {})
    result = bench.restart(late_after=15.0)
    assert (result.outcome, bench.host.guests, bench.note()) == (r.DEFERRED, {}, None)
    assert bench.restart(rejoin=True).outcome == r.STARTED


def test_a_start_is_deferred_if_libvirt_hung_while_it_defined_the_domain(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    define = bench.host.define_domain
    monkeypatch.setattr(bench.host, "define_domain", lambda definition: define(definition) or bench.clock.sleep(200))
    assert bench.restart(late_after=15.0).outcome == r.DEFERRED
    assert (bench.host.starts, bench.note(), read_own_act(UUID, str(bench.run))) == ([], RECORD, None)
    assert bench.restart(rejoin=True).outcome == r.STARTED


def test_a_deferred_start_whose_domain_is_defined_is_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    define = bench.host.define_domain
    monkeypatch.setattr(bench.host, "define_domain", lambda definition: define(definition) or bench.clock.sleep(200))
    bench.restart(late_after=15.0)
    assert bench.restart(rejoin=True, settle_only=True).outcome == r.FAILED
    assert (bench.host.guests, bench.note()) == ({}, None)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_start_is_deferred_if_the_disk_hung_while_the_note_was_written(bench: Bench, monkeypatch: pytest.MonkeyPatch, persistent: bool) -> None:
    write = restart.write_note
    monkeypatch.setattr(restart, "write_note", lambda *given: write(*given) or bench.clock.sleep(200))
    assert bench.restart(late_after=15.0, persistent=persistent).outcome == r.DEFERRED
    assert bench.host.starts == []


def test_an_order_that_comes_again_too_late_is_answered_with_what_the_first_one_has_started(bench: Bench) -> None:
    assert bench.restart().outcome == r.STARTED
    assert bench.restart(late_after=-1.0).outcome == r.STARTED
    assert bench.host.starts == [UUID]


def test_an_order_that_comes_again_waits_as_long_as_the_first_one_works(bench: Bench) -> None:
    first = Ownership(UUID, str(bench.run))
    first.begin_record(RECORD, bench.order().generation)
    bench.clock.at(restart.LOCK_SECONDS * 3, first.release_lock)
    # The first one has started nothing: this is settled by the next run.
    assert bench.restart().outcome == r.OVERTAKEN
    assert bench.clock() > restart.LOCK_SECONDS * 2


@pytest.mark.parametrize(("rejoin", "outcome"), [(False, r.FAILED), (True, r.UNKNOWN)])
def test_a_damaged_lock_file_prevents_the_start_of_its_domain(bench: Bench, rejoin: bool, outcome: str) -> None:
    (bench.run / f"{UUID}.lock").write_text("torn {", encoding="ascii")
    result = bench.restart(rejoin=rejoin)
    assert (result.outcome, result.error_code, result.changed) == (outcome, "internal", False)
    assert bench.host.guests == {}


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_host_lost_during_the_start_has_an_unknown_outcome(bench: Bench, dies: str) -> None:
    bench.host.dies = dies
    result = bench.restart()
    assert (result.outcome, result.changed) == (r.UNKNOWN, True)
    assert bench.note() == RECORD
    bench.host.dies = None
    assert bench.restart(rejoin=True).outcome == r.STARTED


@pytest.mark.parametrize(("wanted", "is_noted"), [("running", True), ("paused", True), ("shut off", False)])
def test_a_start_is_noted_as_one_of_the_collection(bench: Bench, wanted: str, is_noted: bool) -> None:
    bench.restart(wanted=wanted)
    assert bool(read_own_act(UUID, str(bench.run))) is is_noted
