# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single cold moves in which something goes wrong: what is undone, what is left to the next run, and what is said."""

from __future__ import annotations

import errno
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import journal, mover
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import QUARANTINE_FOLDER, Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.saved_memory import SAVED_FOLDER
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Permissions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdAnswer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import Disk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, MigrationFailed, NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.machine import FakeMachine
from ansible_collections.kvmfleet.migration.tests.unit.fakes.saved import resumes_running
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._cold.pair import FLAGS, VARIABLES, Killed, Pair

Make = t.Callable[..., Pair]


@pytest.fixture
def make(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda method, **how: Pair(tmp_path, monkeypatch, method, **how)


def run(pair: Pair) -> ColdAnswer:
    answer = pair.run()
    assert answer is not None
    assert answer.record is not None
    return answer


def acts(pair: Pair) -> list[str]:
    return [act.act for act in pair.record.acts]


def test_a_definition_moves_in_these_steps(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF)
    run(pair)
    assert acts(pair) == ["define", "hold_autostart", "copy_files", "undefine_source", "autostart", "keep_files"]
    assert pair.record.cold
    assert [pathlib.Path(path).name for path in pair.record.cold.kept or ()] == ["definition.xml", "web1_VARS.fd"]


def test_a_guest_that_others_save_meanwhile_is_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon continues to save the memory after its client was killed."""
    pair = make("save")
    save = FakeHost.save_domain

    def save_and_die(host: FakeHost, uuid: str, path: str, image_format: str) -> None:
        pair.guest.enter(ds.PAUSED, "saving")
        pair.guest.job = ds.JOB_OTHER

        def finish() -> None:
            pair.guest.job = ds.JOB_NONE
            save(pair.fleet.open("qemu:///system"), uuid, path, image_format)

        pair.fleet.clock.after(30, finish)
        raise Killed

    monkeypatch.setattr(FakeHost, "save_domain", save_and_die)
    assert pair.run() is None
    assert run(pair).record.status == s.COMPLETED
    assert (pair.places(), pair.images()) == ({"kvm2": ds.RUNNING}, [])


def test_a_job_that_does_not_end_leaves_the_record_to_the_next_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "WAIT_SECONDS", 5.0)
    pair = make("save")
    pair.guest.job = ds.JOB_OTHER
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.ERROR, "internal")
    assert (pair.places(), pair.record.acts) == ({"kvm1": ds.RUNNING}, ())


def test_a_restore_whose_connection_breaks_is_waited_for_however_long_the_save_took(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon of the destination goes on restoring. To save the memory of a large guest takes hours, and leaves the wait its full time."""
    pair = make("save")
    save, restore = FakeHost.save_domain, FakeHost.restore_paused

    def save_for_hours(host: FakeHost, uuid: str, path: str, image_format: str) -> None:
        pair.fleet.clock.sleep(mover.WAIT_SECONDS + 60)
        save(host, uuid, path, image_format)

    def restore_and_break(host: FakeHost, path: str, definition: str | None = None) -> None:
        restore(host, path, definition)
        pair.at(pair.destination).job = ds.JOB_OTHER  # type: ignore[union-attr]
        pair.fleet.clock.after(600, lambda: setattr(pair.at(pair.destination), "job", ds.JOB_NONE))
        raise Unreachable("Failed to restore: the connection broke.")

    monkeypatch.setattr(FakeHost, "save_domain", save_for_hours)
    monkeypatch.setattr(FakeHost, "restore_paused", restore_and_break)
    assert run(pair).record.status == s.COMPLETED
    assert pair.places() == {"kvm2": ds.RUNNING}


def test_memory_returns_to_the_source_if_the_destination_is_lost_before_it_could_restore(make: Make) -> None:
    pair = make("save")
    pair.fleet.before_call = lambda machine, call: pair.destination.go_dark() if call == "save" else None
    answer = run(pair)
    assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.RUNNING, [".restored-at-source"])
    pair.destination.come_back()
    assert run(pair).record.status == s.FAILED
    assert (pair.places(), pair.guest.autostart, pair.images()) == ({"kvm1": ds.RUNNING}, True, [])


def test_memory_stays_in_its_image_if_the_destination_may_have_restored_it(make: Make) -> None:
    pair = make("save")
    pair.fleet.before_call = lambda machine, call: pair.destination.go_dark() if call == "restore" else None
    answer = run(pair)
    assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.SHUTOFF, [""])
    assert "the image of its memory is ready" in answer.msg
    pair.destination.come_back()
    pair.fleet.before_call = lambda machine, call: None
    assert run(pair).record.status == s.COMPLETED
    assert (pair.places(), pair.images()) == ({"kvm2": ds.RUNNING}, [])


def test_a_restore_that_is_refused_is_done_on_the_source(make: Make) -> None:
    pair = make("save")
    pair.destination.refuse["restore"] = MigrationFailed("Failed to restore: no such bridge.")
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.FAILED, "migration_failed")
    assert "no such bridge" in answer.msg
    assert "Its guest ended" not in answer.msg
    assert (pair.places(), pair.images(), pair.guest.autostart) == ({"kvm1": ds.RUNNING}, [], True)


def test_a_guest_that_ends_before_its_memory_is_saved_is_named(make: Make) -> None:
    pair = make("save")
    pair.fleet.before_call = lambda machine, call: pair.guest.enter(ds.SHUTOFF, "shutdown") if call == "save" else None
    answer = run(pair)
    assert (answer.record.status, pair.places()) == (s.FAILED, {"kvm1": ds.SHUTOFF})
    assert "Its guest ended before its memory was saved, and will start from its disks." in answer.msg


@pytest.mark.parametrize(
    ("method", "how", "refused", "noted"),
    [
        ("save", {}, None, ["save"]),
        ("save", {}, "restore", ["save", "restore_back"]),
        ("shutdown", {"start": True}, "undefine", ["start_back"]),
        ("offline", {"state": ds.SHUTOFF, "saved": ds.PAUSED}, None, ["start_paused"]),
        ("offline", {"state": ds.SHUTOFF, "saved": ds.PAUSED}, "migrate", ["start_paused", "save_back"]),
    ],
)
def test_starts_and_stops_on_the_source_are_noted_as_own_acts(
    make: Make, monkeypatch: pytest.MonkeyPatch, method: str, how: dict[str, t.Any], refused: str | None, noted: list[str]
) -> None:
    """Otherwise, a scan of the fleet reports them as acts of others."""
    pair = make(method, **how)
    if refused == "migrate":
        pair.fleet.refuse_to_migrate = MigrationFailed("no")
    elif refused:
        (pair.source if refused == "undefine" else pair.destination).refuse[refused] = MigrationFailed("no")
    found: list[str] = []
    intend = journal.ColdJournal.intend
    monkeypatch.setattr(journal.ColdJournal, "intend", lambda self, act: found.append(act) or intend(self, act))
    own: list[str] = []
    monkeypatch.setattr(mover, "note_own_act", lambda uuid, folder: own.append(found[-1]))
    run(pair)
    assert own == noted


def test_a_part_of_the_definition_that_the_destination_loses_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make("offline", state=ds.SHUTOFF)
    define = FakeHost.define_domain
    monkeypatch.setattr(FakeHost, "define_domain", lambda host, xml: define(host, xml.replace("<a>b</a>", "")))
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.FAILED, "not_supported")
    assert "does not keep /domain/metadata/a" in answer.msg
    assert pair.places() == {"kvm1": ds.SHUTOFF}


@pytest.mark.parametrize(("method", "step"), [("shutdown", "shut_down"), ("save", "save_domain")])
def test_a_guest_whose_definition_has_changed_since_it_was_sent_stays(make: Make, monkeypatch: pytest.MonkeyPatch, method: str, step: str) -> None:
    """A backup makes a snapshot while the guest shuts down: the definition that the destination has names the image below it."""
    pair = make(method, start=method == "shutdown")
    before = "<disk><source file='/srv/web1.qcow2'/></disk>"
    pair.guest.definition = pair.guest.definition.replace("<devices>", f"<devices>{before}")
    act = getattr(FakeHost, step)

    def snapshot_and_act(host: FakeHost, uuid: str, *arguments: t.Any) -> None:
        pair.guest.definition = pair.guest.definition.replace("web1.qcow2", "web1.snap")
        act(host, uuid, *arguments)

    monkeypatch.setattr(FakeHost, step, snapshot_and_act)
    answer = run(pair)
    assert (answer.record.status, answer.error_code, pair.places()) == (s.FAILED, "conflict", {"kvm1": ds.RUNNING})
    assert "was changed on the source since it was sent to the destination (/domain/devices/disk/source/@file)" in answer.msg


def test_a_definition_that_cannot_be_undone_at_the_destination_is_left_and_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its libvirt would delete the state of a TPM with it."""
    pair = make("offline", state=ds.SHUTOFF)
    define = FakeHost.define_domain
    monkeypatch.setattr(FakeHost, "define_domain", lambda host, xml: define(host, xml.replace("<a>b</a>", "")))
    pair.destination.refuse["undefine"] = NotSupported("It was not undefined.", "Undefine it by hand.")
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.ERROR, "internal")
    assert "does not keep /domain/metadata/a" in answer.msg
    assert answer.msg.count("It was not undefined. Undefine it by hand.") == 1
    assert pair.places() == {"kvm1": ds.SHUTOFF, "kvm2": ds.SHUTOFF}


def test_a_managed_save_image_of_that_name_at_the_destination_is_refused(make: Make) -> None:
    pair = make("shutdown")
    (pair.folder / "kvm2/save/web1.save").write_bytes(b"memory of another start")
    pair.destination.folders[SAVED_FOLDER] = DirectoryFolder(pair.folder / "kvm2/save")
    answer = run(pair)
    assert (answer.record.status, answer.error_code, pair.guest.state) == (s.FAILED, "unsafe", ds.RUNNING)
    assert pair.places() == {"kvm1": ds.RUNNING}


def test_a_file_that_another_domain_needs_leaves_the_guest_as_it_was(make: Make) -> None:
    pair = make("shutdown", start=True)
    (pair.folder / "kvm2/web1_VARS.fd").write_bytes(b"of another")
    pair.fleet.guest("other", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02", on="kvm2", disks=(Disk("vda", "file", str(pair.variables)),))
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.FAILED, "conflict")
    # It was shut down, and is started again, as the move was to do at the destination.
    assert (pair.places(), pair.guest.autostart) == ({"kvm1": ds.RUNNING}, True)


def test_undoing_keeps_an_equal_file_that_was_there_before(make: Make) -> None:
    pair = make("save")
    (pair.folder / "kvm2/web1_VARS.fd").write_bytes(VARIABLES)
    pair.destination.refuse["restore"] = MigrationFailed("Failed to restore.")
    assert run(pair).record.status == s.FAILED
    assert (pair.folder / "kvm2/web1_VARS.fd").read_bytes() == VARIABLES


def test_a_copy_of_a_process_that_was_killed_is_removed_when_the_move_is_undone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make("save")
    copy_file = DirectoryFolder.copy_file

    def copy_and_die(folder: DirectoryFolder, name: str, new_name: str, permissions: Permissions) -> None:
        copy_file(folder, name, new_name, permissions)
        raise Killed

    with monkeypatch.context() as once:
        once.setattr(DirectoryFolder, "copy_file", copy_and_die)
        assert pair.run() is None
    pair.destination.refuse["restore"] = MigrationFailed("Failed to restore.")
    assert run(pair).record.status == s.FAILED
    assert not (pair.folder / "kvm2/web1_VARS.fd").exists()


def test_variables_that_another_domain_of_the_source_needs_stay_there(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF)
    pair.fleet.guest("clone", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02", definition=f"<domain><os><nvram>{pair.variables}</nvram></os></domain>")
    assert run(pair).record.status == s.COMPLETED
    assert pair.variables.read_bytes() == (pair.folder / "kvm2/web1_VARS.fd").read_bytes() == VARIABLES
    assert pair.record.cold
    assert [pathlib.Path(path).name for path in pair.record.cold.kept or ()] == ["definition.xml"]


def test_a_guest_that_does_not_start_at_the_destination_is_started_by_the_next_run(make: Make) -> None:
    pair = make("shutdown", start=True)
    pair.destination.refuse["start"] = MigrationFailed("Failed to start.")
    answer = run(pair)
    assert (answer.record.status, pair.places()) == (s.ERROR, {"kvm2": ds.SHUTOFF})
    pair.destination.refuse.clear()
    assert run(pair).record.status == s.COMPLETED
    assert pair.places() == {"kvm2": ds.RUNNING}


def test_a_guest_that_a_person_started_on_the_source_keeps_running(make: Make) -> None:
    pair = make("save")
    assert pair.run(die_at=40) is None
    if pair.images() == [""]:
        pair.guest.enter(ds.RUNNING, "booted")
    answer = run(pair)
    assert answer.record.status == s.FAILED
    assert (pair.places(), pair.images()) == ({"kvm1": ds.RUNNING}, [])


def test_a_file_that_cannot_be_moved_to_quarantine_stays(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make("offline", state=ds.SHUTOFF)

    def refuse(_source: str, _target: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mover.Quarantine, "move_file", lambda quarantine, file: refuse(file.source, file.destination))
    assert run(pair).record.status == s.COMPLETED
    assert pair.variables.exists()
    assert pair.record.cold
    assert [pathlib.Path(path).name for path in pair.record.cold.kept or ()] == ["definition.xml"]
    assert UUID in pair.destination.domains


def test_a_file_whose_move_could_not_be_synced_is_listed_in_quarantine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make("offline", state=ds.SHUTOFF)
    sync = quarantine.sync_folder

    def fail_after_the_move(folder: str) -> None:
        if not pair.variables.exists():
            raise OSError(errno.ENFILE, "Too many open files in system", folder)
        sync(folder)

    monkeypatch.setattr(quarantine, "sync_folder", fail_after_the_move)
    assert run(pair).record.status == s.COMPLETED
    assert not pair.variables.exists()
    assert pair.record.cold
    assert [pathlib.Path(path).name for path in pair.record.cold.kept or ()] == ["definition.xml", "web1_VARS.fd"]


def test_a_managed_save_image_crosses_in_these_steps(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)
    assert run(pair).record.status == s.COMPLETED
    crossing = ["hold_image", "start_paused", "move_live", "save_at_destination"]
    assert acts(pair) == ["define", "hold_autostart", *crossing, "undefine_source", "autostart", "remove_image", "keep_files"]
    assert pair.saved() == {"kvm1": [], "kvm2": ["web1.save"]}
    (migration,) = pair.fleet.migrations
    assert migration.flags == frozenset(FLAGS)


def test_memory_goes_back_to_a_managed_save_image_if_it_cannot_cross(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.PAUSED)
    pair.fleet.refuse_to_migrate = MigrationFailed("Failed to move: CPU mismatch.")
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.FAILED, "migration_failed")
    assert "CPU mismatch" in answer.msg
    assert (pair.places(), pair.guest.autostart, pair.saved()) == ({"kvm1": ds.SHUTOFF}, True, {"kvm1": ["web1.save"], "kvm2": []})
    assert not resumes_running(pair.source.saved_memory["web1"])


def test_a_migration_that_continues_without_its_process_is_waited_for(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)

    def die(migration: t.Any) -> None:
        pair.fleet.clock.after(30, migration.complete)
        raise Killed

    pair.fleet.on_begin = die
    assert pair.run() is None
    assert run(pair).record.status == s.COMPLETED
    assert (pair.places(), pair.saved()) == ({"kvm2": ds.SHUTOFF}, {"kvm1": [], "kvm2": ["web1.save"]})


def lose_guest(pair: Pair, reason: str) -> None:
    """Kill the process of the move as soon as the guest is paused on the source, and end the guest with that reason."""

    def stop(_moment: int) -> None:
        if pair.guest.active:
            pair.on_moment = lambda moment: None
            pair.guest.enter(ds.SHUTOFF, reason)
            raise Killed

    pair.on_moment = stop


def test_memory_is_restored_from_the_held_image_after_the_source_was_rebooted(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)
    lose_guest(pair, "")
    assert pair.run() is None
    assert pair.saved()["kvm1"] == [f"kvmfleet-{pair.record.id}.memory"]
    assert run(pair).record.status == s.COMPLETED
    assert "restore_back" in acts(pair)
    assert (pair.places(), pair.saved()) == ({"kvm2": ds.SHUTOFF}, {"kvm1": [], "kvm2": ["web1.save"]})


@pytest.mark.parametrize("reason", ["shutdown", "destroyed", "crashed"])
def test_memory_of_a_guest_that_may_have_run_since_is_named_and_kept(make: Make, reason: str) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)
    lose_guest(pair, reason)
    assert pair.run() is None
    answer = run(pair)
    assert (answer.record.status, answer.error_code) == (s.ERROR, "internal")
    assert f"kvmfleet-{pair.record.id}.memory on the source" in answer.msg
    assert pair.saved()["kvm1"] == [f"kvmfleet-{pair.record.id}.memory"]


def test_a_guest_that_a_person_resumes_meanwhile_stays(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)

    def resume(_moment: int) -> None:
        if pair.guest.state == ds.PAUSED and "move_live" not in acts(pair):
            pair.guest.enter(ds.RUNNING, "unpaused")

    pair.on_moment = resume
    answer = run(pair)
    assert (answer.record.status, pair.places(), pair.guest.autostart) == (s.FAILED, {"kvm1": ds.RUNNING}, True)
    assert pair.saved() == {"kvm1": [], "kvm2": []}


def test_memory_goes_back_to_a_file_if_the_destination_is_lost_before_it_could_receive_it(make: Make) -> None:
    pair = make("offline", state=ds.SHUTOFF, saved=ds.RUNNING)
    pair.fleet.before_call = lambda machine, call: pair.destination.go_dark() if call == "start" else None
    answer = run(pair)
    assert (answer.record.status, pair.guest.state, "web1.save" in pair.saved()["kvm1"]) == (s.ERROR, ds.SHUTOFF, True)
    pair.destination.come_back()
    pair.fleet.before_call = lambda machine, call: None
    assert run(pair).record.status == s.COMPLETED
    assert (pair.places(), pair.saved()) == ({"kvm2": ds.SHUTOFF}, {"kvm1": [], "kvm2": ["web1.save"]})


def test_a_file_in_quarantine_stays_listed_while_its_file_system_is_not_mounted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed after the file was moved, and the file system has no mount when the next run continues."""
    pair = make("offline", state=ds.SHUTOFF)
    kept, hidden = pair.folder / QUARANTINE_FOLDER, pair.folder / "not mounted"

    def die(moment: int) -> None:
        if kept.is_dir():
            raise Killed

    pair.on_moment = die
    assert pair.run() is None
    kept.rename(hidden)
    pair.on_moment = lambda moment: None
    monkeypatch.setattr(mover, "read_mounts", list)
    assert run(pair).record.status == s.COMPLETED
    manifest = Quarantine(pair.record.record_id, str(pair.folder / "quarantine")).read_manifest()
    assert manifest is not None
    assert [(hidden / pathlib.Path(file.destination).relative_to(kept)).exists() for file in manifest.items] == [True]


def refuse_to_write(path: str, document: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


KINDS: list[tuple[str, dict[str, t.Any]]] = [("save", {}), ("shutdown", {"start": True}), ("offline", {"state": ds.SHUTOFF, "saved": ds.RUNNING})]


@pytest.mark.parametrize(("method", "how"), KINDS)
def test_a_full_run_folder_does_not_stop_a_move(make: Make, monkeypatch: pytest.MonkeyPatch, method: str, how: dict[str, t.Any]) -> None:
    pair = make(method, **how)
    pair.on_moment = lambda moment: monkeypatch.setattr(journal, "write_json", refuse_to_write) if pair.at(pair.destination) else None
    answer = run(pair)
    assert (answer.record.status, list(pair.places()), answer.error_code) == (s.COMPLETED, ["kvm2"], None)
    assert acts(pair)[-1] == "keep_files"
    # A state file without the newest acts would prove that they were never begun.
    assert not list((pair.folder / "run").glob(f"{UUID}.json"))


def test_what_a_full_run_folder_could_not_take_is_assumed_by_the_next_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make("save")

    def die(machine: FakeMachine, call: str) -> None:
        if call == "save":
            full.setattr(journal, "write_json", refuse_to_write)
        if call == "restore":
            raise Killed

    pair.fleet.before_call = die
    with monkeypatch.context() as full:
        assert pair.run() is None
    pair.fleet.before_call = lambda machine, call: None
    pair.destination.go_dark()
    answer = run(pair)
    assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.SHUTOFF, [""])


@pytest.mark.parametrize("name", ["kvm1", "kvm2"])
def test_an_error_of_a_host_that_is_asked_leaves_the_move_to_the_next_run(make: Make, name: str) -> None:
    pair = make("offline", state=ds.SHUTOFF)
    machine = pair.fleet.machines[name]
    machine.refuse["view"] = Internal("Failed to read the state of domain web1.")
    answer = run(pair)
    assert (answer.record.status, answer.error_code, pair.places()) == (s.ERROR, "internal", {"kvm1": ds.SHUTOFF})
    assert "Failed to read the state of domain web1." in answer.msg
    machine.refuse.clear()
    assert run(pair).record.status == s.COMPLETED


def test_an_image_that_libvirt_does_not_read_in_time_leaves_the_move_to_the_next_run(make: Make) -> None:
    pair = make("save")
    pair.source.refuse["read_saved_uuid"] = Unreachable("Failed to read the image: no answer.")
    answer = run(pair)
    assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.SHUTOFF, [""])
    pair.source.refuse.clear()
    assert run(pair).record.status == s.COMPLETED
