# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import cleanup, quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup import CopyCleaner
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_survey import CleanupSurvey
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.images import ImageLocator
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import QUARANTINE_FOLDER, Quarantine, is_moved
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import innermost_mount, read_mounts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import CleanupDone, CleanupPlan, CleanupQuestion
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Internal,
    InvalidState,
    KvmfleetError,
    NotFound,
    Unreachable,
    Unsafe,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import Surroundings
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder

RECORD = "0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11"
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
XML = "<domain><name>web</name><uuid>{uuid}</uuid><devices>{tpm}{disks}</devices></domain>"
DISK = "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{path}'/><target dev='{target}'/></disk>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


class Died(Exception):
    """The process ends here."""


class Host:
    """A host with one domain, or none, and folders of this machine."""

    def __init__(self, uuid: str, disks: t.Sequence[tuple[str, pathlib.Path]] = (), active: bool = False, present: bool = True) -> None:
        self.uuid = uuid
        self.disks = list(disks)
        self.active = active
        self.present = present
        self.tpm = ""
        self.snapshots = 0
        self.can_keep_tpm = True
        self.managed_save: pathlib.Path | None = None
        self.others: list[tuple[str, str, str]] = []
        self.folders: dict[str, DirectoryFolder] = {}
        self.answers = True
        self.forgets = True
        self.own_id: t.Optional[str] = None

    def host_id(self) -> t.Optional[str]:
        return self.own_id

    def host_uuid(self) -> str:
        return self.uuid

    def list_presence(self) -> dict[str, bool]:
        if not self.answers:
            raise Unreachable("no answer")
        return {UUID: self.active} if self.present else {}

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        if not self.answers:
            raise Unreachable("no answer")
        state = domain_states.RUNNING if self.active else domain_states.SHUTOFF
        view = domain_states.DomainView(present=True, active=self.active, persistent=True, state=state, reason="", job=domain_states.JOB_NONE)
        return view if self.present else domain_states.NOT_THERE

    def find_domain(self, name: str | None = None, uuid: str | None = None) -> t.Any:
        if not self.present:
            raise NotFound("gone")
        disks = [domain_states.Disk(target=target, kind="file", source=str(path), readonly=False, shareable=False) for target, path in self.disks]
        return domain_states.DomainInfo(uuid=UUID, name="web", view=self.view_domain(UUID), autostart=False, memory_bytes=0, vcpus=1, disks=tuple(disks))

    def read_surroundings(self) -> Surroundings:
        return Surroundings((), (), (), (), (), ())

    def read_definition(self, uuid: str) -> str:
        return XML.format(uuid=UUID, tpm=self.tpm, disks="".join(DISK.format(path=path, target=target) for target, path in self.disks))

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        return self.read_definition(uuid)

    def iterate_definitions(self) -> t.Iterator[tuple[str, str, str]]:
        yield from [*([(UUID, "web", self.read_definition(UUID))] if self.present else []), *self.others]

    def has_managed_save(self, uuid: str) -> bool:
        return self.managed_save is not None

    def count_snapshots(self, uuid: str) -> tuple[int, int]:
        return self.snapshots, 0

    def keeps_tpm(self) -> bool:
        return self.can_keep_tpm

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[DirectoryFolder]:
        if path not in self.folders:
            raise NotFound(path)
        self.folders[path].refresh_listing()
        yield self.folders[path]

    def undefine_inactive(self, uuid: str) -> None:
        if self.active:
            raise InvalidState("it is active")
        if self.managed_save and self.managed_save.exists():
            raise InvalidState("it has a managed-save image")
        self.present = self.present and not self.forgets

    def close(self) -> None:
        pass


class Scene:
    """A domain that was evacuated from C(here) to C(there), with a disk of each host's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.own, self.other, self.root = folder / "own", folder / "other", folder / "root"
        for place in (self.own, self.other, folder / "save"):
            place.mkdir()
        self.image = self.own / "web.img"
        self.image.write_bytes(b"data")
        (self.other / "web.img").write_bytes(b"new")
        self.save_folder = folder / "save"
        self.here = Host("here", [("vda", self.image)])
        self.there = Host("there", [("vda", self.other / "web.img")], active=True)
        self.there.folders = {str(self.other): DirectoryFolder(self.other)}
        saved = ImageLocator().locate_disks([DiskNeed("vda", kind="file", source=str(self.image), shared=False)], (), None)
        self.saved = tuple(dataclasses.replace(disk, seen_by=("me",)) for disk in saved)
        self.fenced = False
        self.mount = pathlib.Path(innermost_mount(str(folder.resolve()), {mount.path for mount in read_mounts()}))

    def ask(self, **expected: t.Optional[str]) -> CleanupQuestion:
        place = {"host": "kvm2", "host_id": None, "host_uuid": None, **expected}
        return CleanupQuestion(UUID, "web", RECORD, defined=False, came_back=False, expected=(place,), saved=self.saved, fenced=self.fenced)

    def plan(self) -> CleanupPlan:
        survey = CleanupSurvey(self.here, "me", {"kvm2": "there"}, lambda uri: self.there, self._put_aside, str(self.save_folder))
        (plan,) = survey.plan_cleanups([self.ask()])
        return plan

    def _put_aside(self, record: str) -> list[str]:
        manifest = Quarantine(record, str(self.root)).read_manifest()
        return [file.source for file in manifest.items if is_moved(file)] if manifest else []

    def clean(self, storage: str = "quarantine", die_at: str = "") -> CleanupDone:
        def step(name: str) -> None:
            if name == die_at:
                raise Died(name)

        return CopyCleaner(self.here, "me", Quarantine(RECORD, str(self.root), step), step).remove_copy(self.plan(), storage)


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> t.Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    # The file system of the test's folder has got a folder of its own: it goes with what was put there.
    for path in (scene.mount / QUARANTINE_FOLDER / RECORD).glob("*"):
        path.unlink()
    for folder in (scene.mount / QUARANTINE_FOLDER / RECORD, scene.mount / QUARANTINE_FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()


def reasons(plan: CleanupPlan) -> list[str]:
    return [disk.reason for disk in plan.disks]


def test_a_disk_of_this_host_alone_is_planned_for_quarantine(scene: Scene) -> None:
    plan = scene.plan()
    assert (plan.kind, plan.where, plan.present) == ("clean", "kvm2", True)
    assert reasons(plan) == [""]


def test_a_disk_that_both_hosts_see_is_kept(scene: Scene) -> None:
    scene.there.folders = {str(place): DirectoryFolder(scene.own) for place in (scene.own, scene.other)}
    assert reasons(scene.plan()) == ["other hosts see it too"]


def test_this_host_under_another_name_does_not_count_as_another_copy(scene: Scene) -> None:
    scene.there.uuid = "here"
    assert scene.plan().kind == "refuse"


def test_a_host_that_shares_its_uuid_with_this_one_is_another_host(scene: Scene) -> None:
    scene.there.uuid = "here"
    scene.there.own_id = "you"
    assert scene.plan().kind == "clean"


def test_the_expected_host_is_recognised_by_its_host_id(scene: Scene) -> None:
    """So the others need not answer."""
    scene.there.own_id = "you"
    dead = Host("dead")
    dead.answers = False
    survey = CleanupSurvey(scene.here, "me", {"kvm2": "there", "kvm3": "dead"}, lambda uri: dead if uri == "dead" else scene.there, lambda record: (), "/none")
    asked = scene.ask(host_id="you", host_uuid="there before")
    assert [(plan.kind, plan.where) for plan in survey.plan_cleanups([asked])] == [("clean", "kvm2")]


def test_a_silent_host_refuses_the_cleanup_and_is_named(scene: Scene) -> None:
    scene.there.answers = False
    plan = scene.plan()
    assert plan.kind == "refuse"
    assert plan.reason.endswith("; kvm2 did not answer (no answer)"), plan.reason


def test_every_disk_is_kept_while_the_fenced_host_that_has_the_domain_is_silent(scene: Scene) -> None:
    scene.there.answers = False
    scene.fenced = True
    plan = scene.plan()
    assert (plan.kind, plan.where, reasons(plan)) == ("clean", None, ["it is not proved to belong to this host alone: no host that has the domain answers"])
    done = scene.clean()
    assert (done.undefined, done.quarantined, [disk.only_copy for disk in done.kept]) == (True, (), [True])
    assert (scene.here.present, scene.image.exists()) == (False, True)


@pytest.mark.parametrize("backing", [False, True])
def test_a_disk_that_another_local_domain_uses_is_kept(scene: Scene, backing: bool) -> None:
    path = scene.image
    if backing:
        path = scene.own / "folder" / "overlay.qcow2"
        path.parent.mkdir()
        name = str(scene.image).encode()
        path.write_bytes(b"QFI\xfb\x00\x00\x00\x03" + (512).to_bytes(8, "big") + len(name).to_bytes(4, "big") + b"\0" * 492 + name)
    scene.here.others = [("other", "other", XML.format(uuid="other", tpm="", disks=DISK.format(path=path, target="vda")))]
    assert reasons(scene.plan()) == ["it is used by domain other"]


def test_a_disk_that_is_not_a_plain_file_is_kept(scene: Scene) -> None:
    os.link(scene.image, scene.own / "second")
    assert "hard link" in reasons(scene.plan())[0]
    (scene.own / "second").unlink()
    scene.image.unlink()
    assert reasons(scene.plan()) == ["it is not there"]
    scene.image.symlink_to(scene.other / "web.img")
    assert reasons(scene.plan()) == ["it is not a regular file"]


def test_a_disk_that_the_ledger_did_not_record_is_kept(scene: Scene) -> None:
    (scene.own / "changed.img").write_bytes(b"x")
    scene.here.disks = [("vda", scene.own / "changed.img")]
    assert reasons(scene.plan()) == ["the ledger has no record of this disk on this host"]


def test_a_disk_that_the_evacuated_domain_does_not_have_is_kept(scene: Scene) -> None:
    scene.there.disks = []
    scene.there.folders = {str(scene.own): DirectoryFolder(scene.other)}
    assert reasons(scene.plan()) == ["where the domain is now, it has no disk with that target"]


@pytest.mark.parametrize("change", ["snapshots", "tpm", "save"])
def test_snapshots_tpm_state_or_foreign_managed_save_refuse_the_cleanup(scene: Scene, change: str) -> None:
    if change == "snapshots":
        scene.here.snapshots = 2
    elif change == "tpm":
        scene.here.tpm, scene.here.can_keep_tpm = TPM, False
    else:
        scene.here.managed_save = scene.save_folder / "web.save"
    plan = scene.plan()
    assert plan.kind == "refuse", plan
    scene.here.can_keep_tpm = True
    if change == "tpm":
        assert scene.plan().tpm == f"/var/lib/libvirt/swtpm/{UUID}"


@pytest.mark.parametrize(
    "variables", ["<nvram>/srv/vars</nvram>", "<nvram type='file'><source file='/srv/vars'/></nvram>", "<varstore template='/fw/t' path='/srv/vars'/>"]
)
def test_the_files_that_stay_are_named(scene: Scene, variables: str) -> None:
    """Wherever the definition names them."""
    state = TPM.replace("/></tpm>", "><source type='dir' path='/srv/tpm'/></backend></tpm>")
    scene.here.tpm = f"{state}</devices><os>{variables}</os><devices>"
    plan = scene.plan()
    assert (plan.nvram, plan.tpm) == ("/srv/vars", "/srv/tpm")


def test_a_domain_is_undefined_and_its_files_are_quarantined(scene: Scene) -> None:
    scene.here.managed_save = scene.save_folder / "web.save"
    scene.here.managed_save.write_bytes(b"memory")
    done = scene.clean()
    assert (done.changed, done.undefined, done.kept) == (True, True, ())
    assert [pathlib.Path(file.quarantine).read_bytes() for file in done.quarantined] == [b"memory", b"data"]
    assert not scene.here.present
    assert not scene.image.exists()


_STEPS = ("definition", "manifest", "move managed_save", "undefine", "finish")


@pytest.mark.parametrize(("storage", "die_at"), [("quarantine", "move disk"), *((storage, step) for storage in ("quarantine", "keep") for step in _STEPS)])
def test_a_cleanup_that_died_at_any_step_is_continued(scene: Scene, die_at: str, storage: str) -> None:
    scene.here.managed_save = scene.save_folder / "web.save"
    scene.here.managed_save.write_bytes(b"memory")
    with pytest.raises(Died):
        scene.clean(storage, die_at)
    done = scene.clean(storage)
    files = [file.path for file in done.quarantined]
    assert files == [str(scene.here.managed_save), *([str(scene.image)] if storage == "quarantine" else [])]
    assert [disk.path for disk in done.kept] == ([] if storage == "quarantine" else [str(scene.image)])
    assert (scene.here.present, scene.image.exists()) == (False, storage == "keep")
    assert "definition.xml" in str(done.restore)
    assert not scene.clean(storage).changed


def test_a_continued_cleanup_keeps_a_disk_that_got_a_user(scene: Scene) -> None:
    with pytest.raises(Died):
        scene.clean(die_at="undefine")
    scene.here.others = [("other", "other", XML.format(uuid="other", tpm="", disks=DISK.format(path=scene.image, target="vda")))]
    done = scene.clean()
    assert (done.quarantined, len(done.kept)) == ((), 1)
    assert scene.image.exists()


@pytest.mark.parametrize("present", [False, True])
def test_a_cleanup_is_not_continued_without_the_file_system_of_its_quarantine(scene: Scene, monkeypatch: pytest.MonkeyPatch, present: bool) -> None:
    """After a reboot, a file system may be mounted late, or not at all: what is in quarantine there must not be forgotten."""
    with pytest.raises(Died):
        scene.clean(die_at="move disk")
    scene.here.present = present
    moved, away = scene.mount / QUARANTINE_FOLDER / RECORD, scene.own.parent / "away"
    moved.rename(away)
    mounts = [mount for mount in read_mounts() if mount.path != str(scene.mount)]
    with monkeypatch.context() as unmounted:
        unmounted.setattr(cleanup, "read_mounts", lambda: mounts)
        with pytest.raises(Internal, match=f"{scene.image} .*{scene.mount}, which is not mounted"):
            scene.clean()
    away.rename(moved)
    scene.here.present = False
    assert [file.path for file in scene.clean().quarantined] == [str(scene.image)]


def test_a_disk_whose_move_could_not_be_synced_stays_in_the_list_of_its_quarantine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was reported as kept at its old path, and no list named it any more: nothing restored or deleted it."""
    sync = quarantine.sync_folder

    def fail_after_the_move(folder: str) -> None:
        if not scene.image.exists():
            raise OSError(errno.ENFILE, "Too many open files in system", folder)
        sync(folder)

    with monkeypatch.context() as full:
        full.setattr(quarantine, "sync_folder", fail_after_the_move)
        with pytest.raises(Internal, match="was interrupted: Too many open files in system") as raised:
            scene.clean()
    assert (scene.image.exists(), raised.value.result) == (False, {"changed": True})
    assert [file.path for file in scene.clean().quarantined] == [str(scene.image)]


def test_a_file_that_somebody_removed_ends_no_cleanup(scene: Scene) -> None:
    with pytest.raises(Died):
        scene.clean(die_at="undefine")
    scene.image.unlink()
    assert (scene.clean().quarantined, len(scene.clean().kept)) == ((), 1)


def test_a_cleanup_without_a_local_copy_changes_nothing(scene: Scene) -> None:
    scene.here.present = False
    scene.image.unlink()
    done = scene.clean()
    assert (done.changed, done.undefined, done.restore) == (False, False, None)


def test_a_domain_that_stays_defined_is_an_error_and_its_disks_are_kept(scene: Scene) -> None:
    scene.here.forgets = False
    with pytest.raises(Internal, match="still defined") as error:
        scene.clean()
    assert (scene.image.exists(), error.value.result) == (True, {"changed": False})


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error", "manifest.json"), Unsafe("Another file is there.")])
def test_an_error_after_the_domain_was_undefined_reports_a_change(scene: Scene, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_quarantine: object) -> t.NoReturn:
        raise error

    monkeypatch.setattr(cleanup.Quarantine, "mark_complete", fail)
    with pytest.raises(KvmfleetError) as raised:
        scene.clean()
    assert (scene.here.present, raised.value.result) == (False, {"changed": True})


@pytest.mark.parametrize("host_id", [None, "9d1d7a46-5c1f-4b0c-8a55-6f3a1d1f2b02"])
def test_a_host_with_another_identity_than_the_task_began_with_is_not_changed(monkeypatch: pytest.MonkeyPatch, host_id: str | None) -> None:
    opened: list[str] = []
    monkeypatch.setattr(cleanup, "require_root", lambda: None)
    monkeypatch.setattr(cleanup, "read_host_id", lambda: host_id)
    monkeypatch.setattr(cleanup, "open_host", opened.append)
    work = {"host_id": RECORD, "uris": {}, "domains": [], "storage": "quarantine", "due": [RECORD], "check": False}
    for phase in ("survey", "clean", "quarantined", "expire"):
        with pytest.raises(Conflict, match=f"but this host is {host_id}"):
            cleanup.PHASES[phase]("qemu:///system", work)
    assert opened == []
